"""What the commands of `daybook policy` take: files, instants, spans."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import click

FILE: Final = click.Path(path_type=Path)  # one that is not there is told by whoever reads it
TENANT: Final = click.option("--tenant", default="demo", show_default=True, help="Whose rules.")
JSON: Final = click.option("--json", "as_json", is_flag=True, help="Print JSON.")

_SPAN: Final = re.compile(r"([1-9][0-9]{0,4})([hd])")


class Instant(click.ParamType[datetime]):
    """An instant with its zone, as RFC 3339 writes it."""

    name = "instant"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:  # noqa: ANN401 - click's
        """Read it."""
        try:
            instant = datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"{value!r} is no instant such as 2026-12-01T08:00:00Z", param, ctx)
        if instant.tzinfo is None:
            self.fail(f"{value!r} must name its zone, as in 2026-12-01T08:00:00Z", param, ctx)
        return instant


class Since(click.ParamType[datetime | timedelta]):
    """How far back: an instant, or hours or days before now."""

    name = "since"

    def convert(
        self,
        value: Any,  # noqa: ANN401 - click's
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> datetime | timedelta:
        """Read it; a span is not made an instant here, since the books say what time it is."""
        if isinstance(value, datetime | timedelta):
            return value
        span = _SPAN.fullmatch(value)
        if span is not None:
            return timedelta(**{{"h": "hours", "d": "days"}[span[2]]: int(span[1])})
        return Instant().convert(value, param, ctx)
