"""The supervisor behind `daybook up`: servers, schema, seed and processes, in order; and back, in reverse."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Final

from app.ground.errors import DaybookError
from local import postgres, valkey
from local.child import Child
from local.health import answers, workers_answer
from local.leftovers import MARK_NAME, end_leftovers, record
from local.postgres import start_postgres
from local.processes import PortTaken, Server, end, fingerprint, is_over, spawn, stop, tail
from local.procfile import read_procfile
from local.signals import Signals, Stopped
from local.state import State, is_free, write_private
from local.valkey import start_valkey

StartServer = Callable[[Path, int], Server]

CRASH_COUNT: Final = 3
HEALTHY_SECONDS: Final = 120.0
WORKERS: Final[tuple[str, ...]] = ("worker", "worker_bulk")


class StepFailed(DaybookError):
    """Migrating or seeding failed; the message ends with its log."""


class CrashedAtStart(DaybookError):
    """A process ended again and again before everything was up; the message ends with its log."""


class NeverHealthy(DaybookError):
    """Everything runs, and something does not answer."""


@dataclass(frozen=True, slots=True)
class Ready:
    """Where everything is, and the keys that open it."""

    base_url: str
    api_key: str
    operator_key: str
    simulator_url: str
    flower_url: str
    database_url: str
    redis_url: str


class Supervisor:
    """One run of everything, for one checkout."""

    def __init__(
        self, checkout: Path, environ: Mapping[str, str], *, folder: Path | None = None, say: Callable[[str], None]
    ) -> None:
        self.checkout = checkout
        self.state = State.of(checkout, folder)
        self.env = dict(environ)
        self.say = say
        self.signals = Signals()
        self.servers: list[Child] = []
        self.processes: list[Child] = []
        self.is_starting = True

    def run(self, announce: Callable[[Ready], None]) -> None:
        """Bring everything up, announce it, keep it up until a signal says stop, and take it down.

        Raises a DaybookError that says why, with everything taken down, when it does not come up.
        """
        with self.state.locked(), self.signals.heard():
            self.state.ready_file.unlink(missing_ok=True)
            for name in end_leftovers(self._records, self.state.folder):
                self.say(f"ended {name}, left behind by a run that was killed")
            try:
                announce(self._bring_up())
                while True:
                    self.signals.wait(0.5)
                    self._tend()
            except Stopped:
                self.say("stopping")
            finally:
                self._take_down()

    def _bring_up(self) -> Ready:
        for log in self.state.logs.glob("*.log"):
            log.replace(log.with_name(f"{log.name}.1"))
        self._set_environment()
        self._step("migrate")
        keys = self._seed()
        self._start_processes()
        self._wait_until_healthy()
        self.is_starting = False
        ready = Ready(
            base_url=self._url("PORT"),
            api_key=keys["api_key"],
            operator_key=keys["operator_key"],
            simulator_url=self._url("SIMULATOR_PORT"),
            flower_url=self._url("FLOWER_PORT"),
            database_url=self.env["DATABASE_URL"],
            redis_url=self.env["REDIS_URL"],
        )
        write_private(self.state.ready_file, json.dumps(asdict(ready), indent=1))
        return ready

    def _take_down(self) -> None:
        self.state.ready_file.unlink(missing_ok=True)
        # What takes work leaves before what answers about it, and the servers leave when nobody needs them.
        edges = [child for child in self.processes if child.name in {"web", "simulator"}]
        others = [child for child in reversed(self.processes) if child not in edges]
        for group in (others, [*reversed(edges)], *([server] for server in reversed(self.servers))):
            for child in group:
                child.ask_to_stop()
            for child in group:
                child.finish()
        self._records.unlink(missing_ok=True)

    @property
    def _records(self) -> Path:
        return self.state.folder / "run" / "processes.json"

    def _url(self, port: str) -> str:
        return f"http://127.0.0.1:{self.env[port]}"

    # What the processes are given.

    def _set_environment(self) -> None:
        """Complete the environment: what it names is used, what it lacks is started, made or chosen."""
        self.env[MARK_NAME] = str(self.state.folder)
        self.env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{self.env.get('PATH', os.defpath)}"
        self.env["PYTHONUNBUFFERED"] = "1"
        self.env.pop("DYNO", None)  # it would name the workers' nodes; here their pids do
        self.env["DAYBOOK_HOST"] = "127.0.0.1"
        for port, name in (("PORT", "web"), ("FLOWER_PORT", "flower"), ("SIMULATOR_PORT", "simulator")):
            self.env[port] = self.env.get(port) or str(self._free_port(name))
        if not self.env.get("DATABASE_URL"):
            self.env["DATABASE_URL"] = self._start_server("postgres", start_postgres, postgres.STOP_SIGNAL)
        if not self.env.get("REDIS_URL"):
            self.env["REDIS_URL"] = self._start_server("valkey", start_valkey, valkey.STOP_SIGNAL)
        made = {"BROKER_URL": self.env["REDIS_URL"], "DAYBOOK_PUBLIC_URL": self._url("PORT")}
        for name, value in made.items():
            self.env[name] = self.env.get(name) or value
        for name in ("DAYBOOK_KEY_RING", "DAYBOOK_HASH_RING"):
            self.env[name] = self.env.get(name) or self.state.rings()[name]

    def _free_port(self, name: str) -> int:
        port = self.state.port(name)
        if is_free(port):
            return port
        self.say(f"port {port} is taken by another program; {name} moves to another")
        return self.state.new_port(name)

    # Starting.

    def _start_server(self, name: str, start: StartServer, number: signal.Signals) -> str:
        """Start an embedded server as a child, on another port when its own is taken; return its URL."""
        folder = self.state.servers / name
        child = Child(name, partial(self._launch_server, name, start, number), folder / f"{name}.log", number)
        try:
            child.start()
        except PortTaken as error:
            self.say(f"{error}; {name} moves to another port")
            self.state.new_port(name)
            child.start()
        self.servers.append(child)
        self._record()
        return start(folder, self.state.port(name)).url

    def _launch_server(self, name: str, start: StartServer, number: signal.Signals) -> subprocess.Popen[bytes]:
        folder, port = self.state.servers / name, self.state.port(name)
        server = start(folder, port)
        if server.process is None:  # ours, but nobody's child: left by a run that could not write it down
            end(server.pid, fingerprint(server.pid) or "", number=number, grace_seconds=10)
            server = start(folder, port)
        if server.process is None:
            raise PortTaken(f"port {port} was taken while {name} started")
        return server.process

    def _step(self, *arguments: str) -> str:
        """Run one command of the command line to its end; return what it printed."""
        log = self.state.logs / f"{arguments[0]}.log"
        command = [sys.executable, "-m", "cli", *arguments]
        with tempfile.TemporaryFile() as output:
            process = spawn(command, folder=self.checkout, log=log, env=self.env, output=output.fileno())
            try:
                while not is_over(process):
                    self.signals.wait(0.5)
            finally:
                code = stop(process, number=signal.SIGTERM, grace_seconds=5)
            output.seek(0)
            printed = output.read().decode(errors="replace")
        if code != 0:
            raise StepFailed(f"`daybook {arguments[0]}` ended with {code}; {log} ends:\n{tail(log)}\n{printed[-2000:]}".rstrip())
        return printed

    def _seed(self) -> Mapping[str, str]:
        printed = self._step("seed", "--json", "--simulator-url", self._url("SIMULATOR_PORT"))
        try:
            keys = json.loads(printed.strip().rpartition("\n")[2])
            return {name: str(keys[name]) for name in ("api_key", "operator_key")}
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise StepFailed("`daybook seed --json` did not end with an object that has api_key and operator_key") from error

    def _start_processes(self) -> None:
        book = str(self.state.folder / "simulator.jsonl")
        simulator = [sys.executable, "-m", "cli", "simulator", "--port", self.env["SIMULATOR_PORT"], "--state", book]
        commands = {"simulator": simulator}
        for name, line in read_procfile(self.checkout / "Procfile").items():
            commands[name] = ["/bin/sh", "-c", line]
        for name, command in commands.items():
            log = self.state.logs / f"{name}.log"
            launch = partial(spawn, command, folder=self.checkout, env=self.env, log=log)
            self.processes.append(Child(name, launch, log))
            self.processes[-1].start()
        self._record()

    def _record(self) -> None:
        record(self._records, [*self.servers, *self.processes])

    # Staying up.

    def _tend(self) -> None:
        """Notice who died, and start again whose pause is over."""
        for child in (*self.servers, *self.processes):
            if child.note_death():
                self._mourn(child)
            if child.is_due:
                self._start_again(child)

    def _mourn(self, child: Child) -> None:
        if self.is_starting and child.death_count >= CRASH_COUNT:
            raise CrashedAtStart(
                f"{child.name} ended {child.death_count} times while starting, at last with {child.exit_code}; "
                f"{child.log} ends:\n{tail(child.log)}"
            )
        self.say(f"{child.name} ended with {child.exit_code} and is started again; see {child.log}")

    def _start_again(self, child: Child) -> None:
        try:
            child.start()
        except DaybookError as error:  # a server that will not come back yet
            child.note_failure()
            self.say(f"{child.name} did not start: {error}")
        self._record()

    def _wait_until_healthy(self) -> None:
        """Wait until everything answers; raise CrashedAtStart or NeverHealthy when it will not."""
        deadline = time.monotonic() + HEALTHY_SECONDS
        while silent := self._find_silent():
            if time.monotonic() > deadline:
                names = " and ".join(silent)
                raise NeverHealthy(f"after {HEALTHY_SECONDS:.0f} seconds {names} still did not answer; see {self.state.logs}")
            self.signals.wait(0.25)
            self._tend()

    def _find_silent(self) -> list[str]:
        """Name the processes that are down or do not answer; the dearer question is asked after the cheap ones."""
        pids = {child.name: child.process.pid for child in self.processes if child.process is not None and child.is_alive}
        down = [child.name for child in self.processes if child.name not in pids]
        if down:
            return down
        questions = (
            ("web", f"{self._url('PORT')}/health/ready", 200),
            ("flower", f"{self._url('FLOWER_PORT')}/healthcheck", 200),
            ("simulator", self._url("SIMULATOR_PORT"), None),
        )
        silent = [name for name, url, status in questions if name in pids and not answers(url, status=status)]
        workers = {name: pids[name] for name in WORKERS if name in pids}
        if not silent and not workers_answer(workers, folder=self.checkout, env=self.env):
            return list(workers)
        return silent
