"""Which failpoints the code has: two for each piece of work that can write, and those of the carriers' network.

Read from the source, so that a new transaction is known the day it is written. Whether a piece of work
can write is a fact, too: some statement within its reach does. Names are followed over functions,
classes, constants and imports; a callback that only the caller knows is taken for a writer.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Final

from tests.e2e.house import ROOT

FOLDERS: Final = ("app", "web", "tasks")
PLACES: Final = ("before_commit", "committed")
# FOR UPDATE as well: locking a row takes a transaction id, and with it the transaction has something to commit.
WRITING: Final = re.compile(r"\b(INSERT INTO|UPDATE|DELETE FROM|TRUNCATE|FOR SHARE)\b")


def labels_of_transact() -> Counter[str]:
    """Count the writing calls of `transact` by the label that their commits pass."""
    return Counter(label for module in modules().values() for label in module.labels())


def labels_of_carriers() -> set[str]:
    """Name what the carriers' network passes: the labels that the code reaches by name."""
    return {
        call.args[0].value
        for module in modules().values()
        for call in calls(module.tree, "reach")
        if call.args and isinstance(call.args[0], ast.Constant) and isinstance(call.args[0].value, str)
    }


def calls(tree: ast.AST, name: str) -> Iterator[ast.Call]:
    """Give the calls of a function by its bare name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name:
            yield node


@cache
def modules() -> dict[str, Module]:
    """Read every module, by its dotted name."""
    paths = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
    return {module.name: module for module in map(Module.read, paths)}


@dataclass(frozen=True, slots=True)
class Thing:
    """A function, class or constant of a module."""

    module: str
    name: str


@dataclass(frozen=True)
class Module:
    """One module's names."""

    name: str
    tree: ast.Module

    @classmethod
    def read(cls, path: Path) -> Module:
        """Read a file."""
        dotted = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        return cls(dotted.removesuffix(".__init__"), ast.parse(path.read_text()))

    @cached_property
    def own(self) -> dict[str, ast.stmt]:
        """Give what this module defines at its top level, by name."""
        found: dict[str, ast.stmt] = {}
        for node in self.tree.body:
            match node:
                case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                    found[name] = node
                case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                    found[name] = node
                case _:
                    pass
        return found

    @cached_property
    def imported(self) -> dict[str, Thing]:
        """Give what this module imports by name, also inside of its functions."""
        return {
            alias.asname or alias.name: Thing(node.module, alias.name)
            for node in ast.walk(self.tree)
            if isinstance(node, ast.ImportFrom) and node.module
            for alias in node.names
        }

    def find(self, name: str) -> Thing | None:
        """Find what a name stands for, where it is ours."""
        return Thing(self.name, name) if name in self.own else self.imported.get(name)

    def labels(self) -> Iterator[str]:
        """Give the label of every call of `transact` here whose work can write."""
        for owner, function in self._functions():
            callbacks = {argument.arg for argument in function.args.args + function.args.kwonlyargs}
            for call in calls(function, "transact"):
                work = call.args[0]
                if self._can_write(work, callbacks):
                    yield f"{self._label_of(work, owner)}"

    def _functions(self) -> Iterator[tuple[str, ast.FunctionDef]]:
        for node in self.own.values():
            if isinstance(node, ast.FunctionDef):
                yield node.name, node
            elif isinstance(node, ast.ClassDef):
                yield from ((f"{node.name}.{m.name}", m) for m in node.body if isinstance(m, ast.FunctionDef))

    def _label_of(self, work: ast.expr, owner: str) -> str:
        """Name a piece of work as failpoints do: the function passed, or the one that a lambda stands in."""
        inner = work.args[0] if isinstance(work, ast.Call) else work
        there = self.find(inner.id) if isinstance(inner, ast.Name) else None
        there = there or Thing(self.name, owner)
        return f"{there.module.removeprefix('app.')}.{there.name}"

    def _can_write(self, work: ast.expr, callbacks: set[str]) -> bool:
        called = (call.func for call in ast.walk(work) if isinstance(call, ast.Call))
        if any(isinstance(func, ast.Name) and func.id in callbacks for func in called):
            return True
        return any(writes(statement) for statement in reach(self, work))


def reach(module: Module, work: ast.AST) -> Iterator[ast.AST]:
    """Give a piece of code, and all of ours that it names, and all that this names."""
    waiting: list[tuple[Module, ast.AST]] = [(module, work)]
    seen: set[Thing] = set()
    while waiting:
        at, code = waiting.pop()
        yield code
        for thing in named(at, code):
            there = modules().get(thing.module)
            if thing not in seen and there is not None and thing.name in there.own:
                seen.add(thing)
                waiting.append((there, there.own[thing.name]))


def named(module: Module, code: ast.AST) -> Iterator[Thing]:
    """Give what a piece of code names: `name`, or `module.name`."""
    for node in ast.walk(code):
        if isinstance(node, ast.Name) and (thing := module.find(node.id)):
            yield thing
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and (thing := module.find(node.value.id)):
            yield Thing(f"{thing.module}.{thing.name}", node.attr)


def writes(code: ast.AST) -> bool:
    """Say whether a piece of code holds a statement that writes; what a docstring says is no statement."""
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(code)
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and isinstance(node.body[0], ast.Expr)
    }
    return any(
        isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and id(node) not in docstrings
        and WRITING.search(node.value)
        for node in ast.walk(code)
    )
