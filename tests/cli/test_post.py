"""`daybook post`: what goes over the wire, and what is told of the answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cli.main import main
from local.state import free_port


@dataclass
class Api:
    """An API that answers as it is told, and remembers what it was asked."""

    status: int = 202
    answer: dict[str, Any] = field(default_factory=lambda: {"event_id": "01a22d43-4f5a-7524-903b-964bebd2ce44", "accepted": True})
    asked: list[tuple[str, dict[str, str], dict[str, Any]]] = field(default_factory=list)
    url: str = ""


@pytest.fixture
def api() -> Iterator[Api]:
    """Give an API on a port of its own."""
    api = Api()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            api.asked.append((self.path, dict(self.headers), json.loads(body)))
            answer = json.dumps(api.answer).encode()
            self.send_response(api.status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it
            del format, args

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        api.url = f"http://127.0.0.1:{server.server_address[1]}"
        yield api
        server.shutdown()
        thread.join()


def post(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["post", *arguments])


def test_an_event_is_posted_and_its_trace_is_hinted_at(api: Api) -> None:
    told = post("--url", api.url, "--key", "dbk_x", "--subject", "c-1", "--data", "class=Yoga=Hot", "--idempotency-key", "k-1")

    path, headers, event = api.asked[0]
    assert told.exit_code == 0
    assert path == "/v1/events"
    assert (headers["Authorization"], headers["Idempotency-Key"]) == ("Bearer dbk_x", "k-1")
    assert (event["subject"], event["data"], event["recipient"]["sms"]) == ("c-1", {"class": "Yoga=Hot"}, "+12015550123")
    assert f"daybook trace {api.answer['event_id']}" in told.output


def test_the_running_daybook_is_found(api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ready.json").write_text(json.dumps({"base_url": api.url, "api_key": "dbk_seeded"}))
    monkeypatch.setenv("DAYBOOK_STATE", str(tmp_path))

    assert post().exit_code == 0
    assert api.asked[0][1]["Authorization"] == "Bearer dbk_seeded"


def test_a_refusal_is_printed_and_is_no_success(api: Api) -> None:
    api.status, api.answer = 422, {"code": "invalid_number"}

    told = post("--url", api.url, "--key", "dbk_x", "--sms", "12")

    assert told.exit_code == 1
    assert json.loads(told.output) == api.answer


def test_nobody_to_post_to_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAYBOOK_STATE", str(tmp_path))

    nowhere, silent = post(), post("--url", f"http://127.0.0.1:{free_port()}", "--key", "x")

    assert (nowhere.exit_code, silent.exit_code) == (2, 2)
    assert "run `daybook up`" in nowhere.output
    assert "does not answer" in silent.output


def test_data_that_names_nothing_is_a_mistake(api: Api) -> None:
    told = post("--url", api.url, "--key", "x", "--data", "Spin")

    assert told.exit_code == 2
    assert api.asked == []
