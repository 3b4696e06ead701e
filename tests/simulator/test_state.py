"""The book outlives the process, however it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

import httpx
import pytest

from simulator.dialect import Account
from simulator.journal import StateRefused
from simulator.server import Simulator
from tests.simulator.inbox import ACCOUNT, ANNA, Inbox, accepted, poll, posts, send, use_rule, wait_until

START = "from cli.simulator import simulator; simulator()"
ONE_RECEIPT = {"receipts": [{"status": "delivered", "after_ms": 0}]}


@contextmanager
def client_of(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url, auth=(ACCOUNT.sid, ACCOUNT.auth_token), timeout=5) as client:
        yield client


@contextmanager
def process(*options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run the command until the test ends; give the process and its address."""
    command_line = [sys.executable, "-c", START, "--port", "0", *options]
    with subprocess.Popen(command_line, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        try:
            yield running, json.loads(running.stderr.readline())["url"]
        finally:
            running.kill()


def test_a_killed_simulator_goes_on_where_it_was(tmp_path: Path) -> None:
    """What it accepted is the truth of every at-most-once test, so no kill may take it away."""
    options = ("--state", str(tmp_path / "state.jsonl"), "--retry-ms", "600000")
    with Inbox() as closed_until_later:
        port = closed_until_later.port
    with process(*options) as (running, url), client_of(url) as client:
        use_rule(client, ONE_RECEIPT)
        sid = send(client, StatusCallback=f"http://127.0.0.1:{port}/receipts#rc=5").json()["sid"]
        wait_until(lambda: len(posts(client)) == 1)
        before = accepted(client)
        os.kill(running.pid, signal.SIGKILL)
        running.wait()

    with Inbox(port) as inbox, process(*options) as (_, url), client_of(url) as client:
        [heard] = inbox.wait_for(1)

        assert (heard.form["MessageSid"], heard.status) == (sid, "delivered")
        assert accepted(client) == before
        assert poll(client, sid)["status"] == "delivered"


def test_what_was_posted_is_not_posted_again(tmp_path: Path, inbox: Inbox) -> None:
    state = tmp_path / "state.jsonl"
    with Simulator(state=state) as running, client_of(running.url) as client:
        send(client, StatusCallback=inbox.url)
        wait_until(lambda: len(posts(client)) == 2)
        before = posts(client)

    with Simulator(state=state) as again, client_of(again.url) as client:
        assert posts(client) == before
        assert client.get("/_sim/health").json()["receipts_pending"] == 0


def test_rules_and_their_counts_go_on(tmp_path: Path) -> None:
    state = tmp_path / "state.jsonl"
    rules = [{"times": 2, "then": {"status": 503}}]
    with Simulator(state=state) as running, client_of(running.url) as client:
        client.put("/_sim/rules", json={"rules": rules})
        send(client)

    with Simulator(state=state) as again, client_of(again.url) as client:
        assert [send(client).status_code for _ in range(2)] == [503, 201]
        assert client.get("/_sim/rules").json()["rules"] == rules


def test_a_reset_stays_one(tmp_path: Path) -> None:
    state = tmp_path / "state.jsonl"
    with Simulator(state=state) as running, client_of(running.url) as client:
        send(client)
        client.post("/_sim/reset")

    with Simulator(state=state) as again, client_of(again.url) as client:
        assert accepted(client) == []


def test_a_torn_last_line_is_cut_off(tmp_path: Path) -> None:
    state = tmp_path / "state.jsonl"
    with Simulator(state=state) as running, client_of(running.url) as client:
        send(client)
    with state.open("a") as file:
        file.write('{"op": "called", "at"')

    with Simulator(state=state) as again, client_of(again.url) as client:
        send(client)
    with Simulator(state=state) as third, client_of(third.url) as client:
        assert len(accepted(client)) == 2


@pytest.mark.parametrize("other", [{"seed": 2}, {"account": Account(sid="AC2")}])
def test_a_state_of_another_simulator_is_refused(tmp_path: Path, other: dict[str, object]) -> None:
    state = tmp_path / "state.jsonl"
    with Simulator(state=state, seed=1):
        pass

    with pytest.raises(StateRefused):
        Simulator(**{"state": state, "seed": 1, **other})  # type: ignore[arg-type]  # the cases differ in type


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_the_command_stops_within_a_second(stop: signal.Signals, tmp_path: Path) -> None:
    rules = tmp_path / "rules.json"
    rules.write_text('{"rules": [{"then": {"code": 21610}}]}')
    with process("--rules", str(rules)) as (running, url), client_of(url) as client:
        assert send(client).json()["code"] == 21610

        told_at = monotonic()
        running.send_signal(stop)

        assert running.wait(5) == 0
        assert monotonic() - told_at < 1


def test_its_log_names_no_number_and_no_body(tmp_path: Path) -> None:
    with process("--state", str(tmp_path / "state.jsonl")) as (running, url), client_of(url) as client:
        sent = send(client, StatusCallback="http://192.0.2.1/receipts").json()
        wait_until(lambda: len(posts(client)) == 2)
        running.terminate()
        assert running.stderr is not None
        log = running.stderr.read()

    lines = [json.loads(line) for line in log.splitlines()]
    assert [line["event"] for line in lines] == ["answer", "receipt", "receipt", "stopped"]
    assert ANNA.strip("+") not in log.replace(sent["sid"], "")
    assert "Seat 12" not in log


def test_the_command_names_a_mistake_in_its_rules(tmp_path: Path) -> None:
    rules = tmp_path / "rules.json"
    rules.write_text('{"rules": [{"then": {"status": 1}}]}')

    result = subprocess.run(
        [sys.executable, "-c", START, "--port", "0", "--rules", str(rules)], check=False, capture_output=True, text=True
    )

    assert result.returncode == 1
    assert "rules[0].then.status: a whole number from 200 to 599 is wanted" in result.stderr


def test_the_same_rules_are_not_counted_anew_at_a_restart(tmp_path: Path) -> None:
    state, rules = tmp_path / "state.jsonl", tmp_path / "rules.json"
    rules.write_text('{"rules": [{"times": 1, "then": {"status": 503}}]}')
    options = ("--state", str(state), "--rules", str(rules))
    with process(*options) as (_, url), client_of(url) as client:
        assert send(client).status_code == 503

    with process(*options) as (_, url), client_of(url) as client:
        assert send(client).status_code == 201
