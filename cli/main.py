"""The `daybook` command: a group, to which each module of this folder adds its noun."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

import click

import cli


class _Commands(click.Group):
    """A module `noun` of this folder that holds a command `noun` is a command.

    It is imported when it is asked for: `daybook up` must start without the settings that only it makes.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        nouns = {
            module.name.replace("_", "-") for module in iter_modules(cli.__path__) if module.name not in {"main", "__main__"}
        }
        return sorted(noun for noun in {*super().list_commands(ctx), *nouns} if self.get_command(ctx, noun) is not None)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        known = super().get_command(ctx, cmd_name)
        name = cmd_name.replace("-", "_")
        if known is not None or not name.isidentifier() or not any(module.name == name for module in iter_modules(cli.__path__)):
            return known
        command = getattr(import_module(f"cli.{name}"), name, None)
        return command if isinstance(command, click.Command) else None


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Keep books about notifications: run, ask and repair a Daybook."""
