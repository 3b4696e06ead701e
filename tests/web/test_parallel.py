"""Many at once, over real HTTP: one key is one event."""

from __future__ import annotations

from collections import Counter
from typing import Any

import httpx
from flask import Flask

from tests.making import ask, together
from tests.web.calling import Api, books_of, served

CALLERS = 200


def test_two_hundred_posts_of_one_key_make_one_event(web_app: Flask, api: Api) -> None:
    with served(web_app) as url:

        def post() -> tuple[int, dict[str, Any]]:
            headers = {"Authorization": f"Bearer {api.key}", "Idempotency-Key": "k-1"}
            answer = httpx.post(f"{url}/v1/events", json=ask(), headers=headers, timeout=60, trust_env=False)
            return answer.status_code, answer.json()

        answers = together(*[post] * CALLERS)

    assert Counter(status for status, _ in answers) == {202: 1, 200: CALLERS - 1}
    assert {body.pop("duplicate") for status, body in answers if status == 200} == {True}
    assert [body.pop("duplicate") for status, body in answers if status == 202] == [False]
    assert all(body == answers[0][1] for _, body in answers)
    written = books_of(api.engine)
    assert [written[table] for table in ("event", "intent", "attempt", "outbox", "person_key", "contact")] == [1] * 6
