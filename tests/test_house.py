"""Rules of the house that no linter knows; each failure says what to do instead."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.engine import make_url

from models.all import Base
from tests.conftest import ROOT, World

LAYERS: Final = ("app", "cli", "local", "models", "policy", "simulator", "tasks", "web", "bench")
MODULES: Final = sorted(p for layer in LAYERS for p in (ROOT / layer).rglob("*.py") if "__pycache__" not in p.parts)
MIGRATIONS: Final = sorted((ROOT / "models" / "migrations" / "versions").glob("*.py"))
LONGEST_MODULE: Final = 400
LONGEST_FUNCTION: Final = 60

LONG_MODULES: Final = {
    "models/migrations/versions/0001_expand_the_books.py": "a schema is as long as it is",
}
LONG_FUNCTIONS: Final = {
    "models/migrations/versions/0001_expand_the_books.py:upgrade": "a schema is as long as it is",
    "models/migrations/versions/0001_expand_the_books.py:downgrade": "and as long to take away",
}

# `local` runs before there are settings; `up` hands its own environment on to its children, and the
# other commands complete theirs from what a running `up` wrote down. Figures start whole houses.
MAY_READ_ENVIRONMENT: Final = ("app/ground/config.py", "cli/up.py", "cli/environment.py", "local/", "bench/")
# Figures fill a ledger that they throw away with more rows than the verbs could make in the time.
MAY_WRITE_STATE: Final = ("app/ledger/state.py", "bench/")
WRITES_STATE: Final = re.compile(r"UPDATE\s+attempt\b[^;]*?\bSET\b(?P<set>.*?)(\bFROM\b|\bWHERE\b|$)", re.IGNORECASE | re.DOTALL)
SETS_STATE: Final = re.compile(r"(^|,)\s*state\s*=", re.IGNORECASE)


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def nodes_of(path: Path) -> Iterator[ast.AST]:
    yield from ast.walk(ast.parse(path.read_text(), filename=str(path)))


def texts_of(path: Path) -> Iterator[str]:
    for node in nodes_of(path):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def functions_of(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in nodes_of(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def length_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    assert function.end_lineno is not None
    return function.end_lineno - function.lineno + 1


def test_nothing_but_transact_commits() -> None:
    found = [
        name_of(path)
        for path in MODULES
        if name_of(path) != "app/ground/db.py"
        for node in nodes_of(path)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "commit"
    ]

    assert found == [], "a verb never commits: give the work to `transact` (app/ground/db.py), which runs it again when it may"


def test_only_the_ledgers_state_module_writes_an_attempts_state() -> None:
    found = [
        name_of(path)
        for path in MODULES
        if not name_of(path).startswith(MAY_WRITE_STATE)
        for statement in texts_of(path)
        if any(SETS_STATE.search(match["set"]) for match in WRITES_STATE.finditer(statement))
    ]

    assert found == [], (
        "state only climbs by begin, close and apply: call them (app/ledger/state.py) instead of updating attempt.state"
    )


def test_the_environment_is_read_in_one_place() -> None:
    found = [
        name_of(path)
        for path in MODULES
        if not name_of(path).startswith(MAY_READ_ENVIRONMENT)
        for node in nodes_of(path)
        if (isinstance(node, ast.Attribute) and node.attr in {"environ", "getenv", "environb", "putenv"})
        or (isinstance(node, ast.ImportFrom) and node.module == "os" and {a.name for a in node.names} & {"environ", "getenv"})
    ]

    assert found == [], (
        "add a field to Settings (app/ground/config.py) and ask `settings()`: the environment is read once, at start"
    )


def test_migrations_know_nothing_of_the_models() -> None:
    found = [
        name_of(path)
        for path in MIGRATIONS
        for node in nodes_of(path)
        if (isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in LAYERS)
        or (isinstance(node, ast.Import) and any(a.name.split(".")[0] in LAYERS for a in node.names))
    ]

    assert found == [], "write the names out: a migration must do tomorrow what it did today, whatever the models say by then"


def test_every_module_says_in_one_line_what_it_is() -> None:
    found = [name_of(path) for path in MODULES if not (ast.get_docstring(ast.parse(path.read_text())) or "").strip()]

    assert found == [], "begin the module with a docstring: its first line is its entry in the table of contents (`make map`)"


def test_no_module_is_longer_than_a_reader_keeps_in_mind() -> None:
    lengths = {name_of(path): len(path.read_text().splitlines()) for path in MODULES}
    found = {name: n for name, n in lengths.items() if n > LONGEST_MODULE and name not in LONG_MODULES}

    assert found == {}, f"past {LONGEST_MODULE} lines look for the second idea in it and give that a module of its own"


def test_no_function_is_longer_than_a_screen() -> None:
    found = {
        f"{name_of(path)}:{function.name}": length_of(function)
        for path in MODULES
        for function in functions_of(path)
        if length_of(function) > LONGEST_FUNCTION and f"{name_of(path)}:{function.name}" not in LONG_FUNCTIONS
    }

    assert found == {}, f"past {LONGEST_FUNCTION} lines look for the second level in it and give that a function of its own"


def test_every_exception_to_the_lengths_is_still_needed() -> None:
    modules = {name_of(path): len(path.read_text().splitlines()) for path in MODULES}
    functions = {f"{name_of(path)}:{f.name}": length_of(f) for path in MODULES for f in functions_of(path)}
    short = [name for name in LONG_MODULES if modules.get(name, 0) <= LONGEST_MODULE]
    short += [name for name in LONG_FUNCTIONS if functions.get(name, 0) <= LONGEST_FUNCTION]

    assert short == [], "it is short enough by now: take its line out of this test"


def test_nothing_is_called_a_heap_of_things() -> None:
    heaps = {"utils", "util", "common", "helpers", "helper", "services", "managers", "misc"}
    found = [name_of(path) for path in MODULES if heaps & {path.stem, *path.parts}]

    assert found == [], "a thing lives with the verb that needs it, and moves down a layer when a second one does"


# What a schema is made of, by name, so that a difference names itself.
SCHEMA: Final = {
    "columns": """
        SELECT table_name || '.' || column_name AS name,
               concat_ws(' ', udt_name, is_nullable, column_default, identity_generation, generation_expression)
        FROM information_schema.columns WHERE table_schema = 'public'""",
    "constraints": """
        SELECT conrelid::regclass || '.' || conname, pg_get_constraintdef(oid)
        FROM pg_constraint WHERE connamespace = 'public'::regnamespace""",
    "indexes": "SELECT tablename || '.' || indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'",
    "triggers": "SELECT tgrelid::regclass || '.' || tgname, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal",
    "functions": "SELECT proname, prosrc FROM pg_proc WHERE pronamespace = 'public'::regnamespace",
    "sequences": """
        SELECT sequencename, concat_ws(' ', data_type, start_value, increment_by, max_value, cycle)
        FROM pg_sequences WHERE schemaname = 'public'""",
    "first rows": "SELECT 'feed_state', concat_ws(' ', id, epoch, complete_until) FROM feed_state",
}


def schema_of(connection: Connection, part: str) -> dict[str, str]:
    found = connection.execute(text(SCHEMA[part])).all()
    return {name: re.sub(r"\s+", " ", said) for name, said in found if not name.startswith("alembic_version")}


@pytest.fixture(scope="module")
def from_models(world: World) -> Iterator[dict[str, dict[str, str]]]:
    """Build the schema from the models, in a database of its own."""
    url = make_url(str(world.engine.url.render_as_string(hide_password=False)))
    administrator = world.engine.execution_options(isolation_level="AUTOCOMMIT")
    with administrator.connect() as connection:
        connection.execute(text("CREATE DATABASE from_models"))
    engine = create_engine(url.set(database="from_models"), connect_args={"prepare_threshold": None})
    try:
        with engine.begin() as connection:
            Base.metadata.create_all(connection)
        with engine.connect() as connection:
            yield {part: schema_of(connection, part) for part in SCHEMA}
    finally:
        engine.dispose()
        with administrator.connect() as connection:
            connection.execute(text("DROP DATABASE from_models WITH (FORCE)"))


@pytest.mark.parametrize("part", SCHEMA)
def test_the_migrations_build_what_the_models_say(part: str, world: World, from_models: dict[str, dict[str, str]]) -> None:
    with world.engine.connect() as connection:
        migrated = schema_of(connection, part)

    assert migrated == from_models[part], (
        "write the migration that brings the tables to where the models are, or the other way round"
    )
    assert migrated


def test_append_only_tables_refuse_to_be_rewritten(world: World) -> None:
    """Behind the triggers' names stands what they do: also when a table is empty, and also TRUNCATE."""
    from_migrations = guards(world, "keep_rows"), guards(world, "keep_table")

    assert from_migrations[0] == from_migrations[1]
    assert set(from_migrations[0]) >= {"event", "decision", "observation", "transition", "suppression", "operator_action"}


def guards(world: World, name: str) -> Sequence[Any]:
    query = text("SELECT tgrelid::regclass::text FROM pg_trigger WHERE tgname = :name ORDER BY 1")
    with world.engine.connect() as connection:
        return list(connection.execute(query, {"name": name}).scalars())
