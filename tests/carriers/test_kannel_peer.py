"""Our adapter against a real Kannel (tests/peers/kannel): what reaches the SMSC, and what comes back."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from typing import Any, Final

import pytest

from app.carriers.base import Call, Refused, Report, SendResult, Submission, Submitted
from app.carriers.kannel import Kannel
from policy.segments import GSM_7_BASIC, GSM_7_EXTENSION
from policy.states import AttemptState
from policy.words import ErrorClass, Reason
from tests.carriers.wire import FAR_AWAY, kannel_route, submission

ROOT: Final = Path(__file__).parents[2]
PEER: Final = ROOT / "tests" / "peers" / "kannel" / "peer.sh"
MISSING: Final = [
    tool for tool in ("bearerbox", "smsbox", "node", "curl") if not shutil.which(tool, path=f"{os.environ['PATH']}:/usr/sbin")
]
SMPP: Final = (ROOT / ".peers" / "node_modules" / "smpp").is_dir() or shutil.which("npm")

pytestmark = [
    pytest.mark.peer,
    pytest.mark.skipif(bool(MISSING), reason=f"no {', '.join(MISSING)}: apt-get install -y kannel kannel-extras curl nodejs"),
    pytest.mark.skipif(not SMPP, reason="no npm module smpp: make peers"),
]

Receiver = tuple[str, Queue[Call], Queue[Call]]
"""Where it listens, the receipts that came, and the texts."""
PATIENCE_SECONDS: Final = 10.0  # a receipt comes within a tenth of one
PORTS: Final = 5


@dataclass(frozen=True, slots=True)
class RunningKannel:
    """A Kannel, its scripted SMSC's book, and the calls that came to our receipt URL."""

    sendsms: str
    book: Path
    receipt_url: str
    calls: Queue[Call]
    texts: Queue[Call]
    """The calls that handed a text over."""

    def carrier(self, settings: Mapping[str, str] | None = None, **credentials: str) -> Kannel:
        """Open our adapter to it."""
        route = kannel_route(
            receipt_url=self.receipt_url,
            settings={"base_url": self.sendsms, "smsc": "smpp1", "max_messages": "6", **(settings or {})},
            **credentials,
        )
        return Kannel(route)

    def submits(self, to: str) -> list[dict[str, Any]]:
        """Read what the SMSC was given for a number."""
        lines = [json.loads(line) for line in self.book.read_text(encoding="utf-8").splitlines()]
        return [line for line in lines if line.get("to") == to]


def base_port() -> int:
    """Find five free ports in a row."""
    for base in range(23_200, 24_200, PORTS):
        with ExitStack() as stack:
            try:
                for port in range(base, base + PORTS):
                    stack.enter_context(socket.create_server(("127.0.0.1", port)))
            except OSError:
                continue
            return base
    raise OSError("no five free ports in a row")


def peer(*command: str | Path, **environment: str) -> None:
    """Run peer.sh; what it starts keeps its streams open, so that they must lead nowhere."""
    null = subprocess.DEVNULL
    subprocess.run([PEER, *command], check=True, timeout=60, stdin=null, stdout=null, stderr=null, env=os.environ | environment)


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    calls: Queue[Call] = Queue()
    texts: Queue[Call] = Queue()

    class Taker(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()
            path, _, query = self.path.partition("?")
            (texts if path == "/inbound" else calls).put(Call("GET", query.encode(), dict(self.headers), b""))

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (named so by its base)
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Taker) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", calls, texts
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def kannel(tmp_path_factory: pytest.TempPathFactory, receiver: Receiver) -> Iterator[RunningKannel]:
    run, base = tmp_path_factory.mktemp("kannel"), base_port()
    url, calls, texts = receiver
    try:
        peer("start", run, str(base), INBOUND_URL=f"{url}/inbound")
        yield RunningKannel(f"http://127.0.0.1:{base + 4}/cgi-bin/sendsms", run / "sim.jsonl", f"{url}/receipts", calls, texts)
    finally:
        peer("stop", run)


def to(address: str, body: str = "A seat opened.") -> Submission:
    return replace(submission(body), attempt_key=f"att/{address} é%P", address=address)


def send(kannel: RunningKannel, message: Submission) -> SendResult:
    with closing(kannel.carrier()) as carrier:
        return carrier.send(message, deadline=FAR_AWAY)


def hear(kannel: RunningKannel, message: Submission, count: int) -> list[Report]:
    """Take the next calls, believe them, and read them; in the order of the states, for Kannel promises none."""
    with closing(kannel.carrier()) as carrier:
        calls = [kannel.calls.get(timeout=PATIENCE_SECONDS) for _ in range(count)]
        receipts = [carrier.read_receipt(call) for call in calls]
    assert all(carrier.is_authentic(call) for call in calls)
    assert {receipt.reference for receipt in receipts} == {message.attempt_key}
    assert len({receipt.dedupe_key for receipt in receipts}) == count
    reports = [report for receipt in receipts for report in receipt.reports]
    assert all(report.source_at for report in reports)
    return sorted(reports, key=lambda report: list(AttemptState).index(report.state))


def test_a_delivered_text_is_submitted_then_delivered(kannel: RunningKannel) -> None:
    message = to("+447700900100")

    result = send(kannel, message)

    taken, delivered = hear(kannel, message, 2)
    assert result == Submitted()
    assert (taken.state, delivered.state) == (AttemptState.SUBMITTED, AttemptState.DELIVERED)
    assert taken.remote_id == delivered.remote_id == kannel.submits("447700900100")[-1]["submit"]
    assert kannel.submits("447700900100")[-1]["validity"]


OUTCOMES: Final = {
    "01": (AttemptState.FAILED, ErrorClass.PERMANENT_RECIPIENT, "UNDELIV/001", None),
    "02": (AttemptState.FAILED, ErrorClass.TRANSIENT, "EXPIRED/000", None),
    "03": (AttemptState.FAILED, ErrorClass.UNCLASSIFIED, "REJECTD/008", None),
    "11": (AttemptState.UNKNOWN, None, "UNKNOWN/000", Reason.CARRIER_UNSURE),
    "13": (AttemptState.FAILED, ErrorClass.UNCLASSIFIED, "DELETED/000", None),
    "15": (AttemptState.SUBMITTED, None, None, None),
    "18": (AttemptState.UNKNOWN, None, "WHATEVR/000", Reason.UNKNOWN_WORD),
    "19": (AttemptState.FAILED, ErrorClass.TRANSIENT, "UNDELIV/027", None),
    "20": (AttemptState.FAILED, ErrorClass.TRANSIENT, "EXPIRED/000", None),
}


@pytest.mark.parametrize("ending", OUTCOMES)
def test_an_outcome_is_read_from_the_smscs_own_word(kannel: RunningKannel, ending: str) -> None:
    message = to(f"+4477009001{ending}")

    send(kannel, message)

    taken, outcome = hear(kannel, message, 2)
    assert taken.state is AttemptState.SUBMITTED
    assert (outcome.state, outcome.error_class, outcome.error_code, outcome.reason) == OUTCOMES[ending]


REFUSALS: Final = {
    "08": (ErrorClass.PERMANENT_RECIPIENT, "0x0000000b"),
    "23": (ErrorClass.UNCLASSIFIED, "0x00000045"),
    "24": (ErrorClass.AUTH_CONFIG, "0x0000000a"),
}


@pytest.mark.parametrize("ending", REFUSALS)
def test_a_number_that_the_smsc_refuses_has_failed(kannel: RunningKannel, ending: str) -> None:
    message = to(f"+4477009001{ending}")

    result = send(kannel, message)

    (refused,) = hear(kannel, message, 1)
    assert result == Submitted()  # Kannel has it; its SMSC says no a moment later
    assert refused.state is AttemptState.FAILED
    assert (refused.error_class, refused.error_code, refused.remote_id) == (*REFUSALS[ending], None)


TEXTS: Final = {
    "words with an accent": ("é, € and @", 0),
    "the whole GSM alphabet, letters first": ("A" + "".join(sorted(GSM_7_BASIC)), 0),
    "what takes an escape": ("".join(sorted(GSM_7_EXTENSION - {"\f"})), 0),
    "white space around": (" two\r\nlines \n", 0),
    "Cyrillic and an emoji": ("Привет 😀", 8),
    "one sign outside GSM": ("a\u00b2", 8),
    "Japanese": ("席が空きました", 8),
    "two parts": ("x" * 152 + "€" + "y" * 151, 0),
    "three parts, for an escape is not split": ("x" * 152 + "€" + "y" * 153, 0),
    "three parts of UCS-2": ("席" * 150, 8),
}


@pytest.mark.parametrize("case", TEXTS)
def test_a_text_reaches_the_smsc_as_it_was_written(kannel: RunningKannel, case: str) -> None:
    body, coding = TEXTS[case]
    message = to("+447700900100", body)
    before = len(kannel.submits("447700900100"))

    result = send(kannel, message)

    hear(kannel, message, 2)
    submits = kannel.submits("447700900100")[before:]
    assert result == Submitted()
    assert {submit["data_coding"] for submit in submits} == {coding}
    assert "".join(submit["text"] for submit in submits) == body


def test_a_route_to_no_smsc_is_refused_and_reported(kannel: RunningKannel) -> None:
    message = to("+447700900100")

    with closing(kannel.carrier({"smsc": "nowhere"})) as carrier:
        result = carrier.send(message, deadline=FAR_AWAY)

    assert result == Refused(ErrorClass.AUTH_CONFIG, "Not routable. Do not try again.")
    (refused,) = hear(kannel, message, 1)
    assert (refused.state, refused.error_class, refused.error_code) == (AttemptState.FAILED, ErrorClass.AUTH_CONFIG, "no SMSC")


def test_a_wrong_password_is_our_configuration(kannel: RunningKannel) -> None:
    with closing(kannel.carrier(password="guess")) as carrier:
        result = carrier.send(to("+447700900100"), deadline=FAR_AWAY)

    assert result == Refused(ErrorClass.AUTH_CONFIG, "Authorization failed for sendsms")


def test_what_is_no_number_is_refused(kannel: RunningKannel) -> None:
    result = send(kannel, to("nobody"))

    denied = "Number(s) has/have been denied by white- and/or black-lists."
    assert result == Refused(ErrorClass.PERMANENT_RECIPIENT, denied)


@pytest.mark.parametrize("text", ["STOP", "Is it at 6?\nÀ bientôt, 50 €", "СТОП, больше не надо"])
def test_a_text_comes_as_it_was_written(kannel: RunningKannel, text: str) -> None:
    """In the alphabet of GSM, with two lines, and in one that takes UCS-2."""
    with closing(kannel.carrier(receipt_token="t")) as carrier:
        assert carrier.send(to("+447700900130", text), deadline=FAR_AWAY) == Submitted()
        call = kannel.texts.get(timeout=PATIENCE_SECONDS)
        read = carrier.read_inbound(call)
        assert carrier.is_authentic(call)

    assert (read.text, read.address.strip(" +")) == (text, "447700900130")
