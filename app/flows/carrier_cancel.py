"""Ask carriers not to deliver what was taken back after it had left: claim a page, ask with no transaction open, observe.

What a carrier answers is a report like any other. It may say `canceled` and deliver all the same, so
nobody is told that a text was recalled: the state follows what is heard, and a delivery outranks it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Final, assert_never

from app.carriers.base import Carrier, NoSuchMessage, Report, RouteSettings, Unanswered
from app.carriers.registry import open_carrier
from app.flows.keep import observe_until_kept
from app.flows.poll import SIDE_BY_SIDE
from app.ground.db import Tx, as_page, rows, transact
from app.ground.errors import DaybookError
from app.ground.ids import AttemptId
from app.ground.log import log
from app.ledger.observe import Told
from app.ledger.routes import Route, read_routes
from policy.states import AttemptState
from policy.words import Source

# Pushing the next question forward is the claim: nobody else asks meanwhile, and what a worker that dies
# here has asked is asked once more. No other lock is taken.
CLAIM = """
UPDATE carrier_cancel c SET ask_at = %(until)s
FROM (SELECT attempt_id FROM carrier_cancel WHERE ask_at <= %(now)s
      ORDER BY ask_at, attempt_id LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED) due
WHERE c.attempt_id = due.attempt_id
RETURNING c.attempt_id
"""

READ = """
SELECT c.attempt_id, c.route_id, c.ask_count, c.requested_at, a.state,
       (SELECT remote_id FROM remote_id r WHERE r.attempt_id = a.id ORDER BY part LIMIT 1) AS remote_id
FROM carrier_cancel c JOIN attempt a ON a.id = c.attempt_id
WHERE c.attempt_id = ANY(%(ids)s::uuid[]) ORDER BY c.attempt_id
"""

WRITE = """
UPDATE carrier_cancel c SET ask_at = n.ask_at, ask_count = n.ask_count, answer = n.answer, observation_id = n.observation_id,
       ended_at = CASE WHEN n.ask_at IS NULL THEN %(now)s::timestamptz END
FROM (SELECT * FROM json_to_recordset(%(new)s::json)
          AS n (attempt_id uuid, ask_at timestamptz, ask_count bigint, answer text, observation_id uuid) LIMIT %(count)s) n
WHERE c.attempt_id = n.attempt_id AND c.ended_at IS NULL
"""

CarrierOf = Callable[[RouteSettings], Carrier]

PAGE: Final = 100
CLAIMED_FOR: Final = timedelta(seconds=60)
ASKED_AT_MOST: Final = 3
ASK_AGAIN_AFTER: Final = timedelta(seconds=5)
# An answer to the send names the id; a receipt, a poll or a look-up may, later. A carrier that still holds a
# message back after this does so for reasons of its own.
ID_WITHIN: Final = timedelta(minutes=15)
OVER: Final = frozenset({AttemptState.FAILED, AttemptState.DELIVERED})


@dataclass(frozen=True, slots=True)
class _Asked:
    """One row, and what became of its question: a word, a report, and whether it is over."""

    row: Any
    answer: str
    told: Told | None = None
    is_over: bool = True
    counts: bool = True


def ask_to_cancel(*, carrier_of: CarrierOf = open_carrier) -> int:
    """Ask about a page of what is due, each at most a few times; return how many were looked at."""
    due = transact(_claim)
    if not due:
        return 0
    routes = transact(lambda tx: read_routes(tx.session, {row.route_id for row in due}))
    with ThreadPoolExecutor(SIDE_BY_SIDE, thread_name_prefix="carrier-cancel") as pool:
        asked = list(pool.map(lambda row: _ask(row, routes[row.route_id], carrier_of), due))
    observe_until_kept([a.told for a in asked if a.told is not None])
    transact(partial(_write, asked=asked))
    return len(due)


def _claim(tx: Tx) -> list[Any]:
    claimed = rows(tx.session, CLAIM, now=tx.now, until=tx.now + CLAIMED_FOR, limit=PAGE)
    return rows(tx.session, READ, ids=sorted(row.attempt_id for row in claimed)) if claimed else []


def _ask(row: Any, route: Route, carrier_of: CarrierOf) -> _Asked:  # noqa: ANN401 - a row of READ
    if row.state in OVER:
        return _Asked(row, "settled", counts=False)
    if row.remote_id is None:
        return _Asked(row, "no_remote_id", is_over=False, counts=False)
    try:
        answer = carrier_of(route.settings).cancel(row.remote_id)
    except DaybookError as error:
        log.error("carrier_cancel_fault", attempt_id=str(row.attempt_id), cause=type(error).__name__)
        answer = Unanswered(type(error).__name__)
    log.info("carrier_cancel", attempt_id=str(row.attempt_id), answer=type(answer).__name__)
    match answer:
        case Report():
            return _Asked(row, answer.state, _told(row, answer))
        case NoSuchMessage():
            return _Asked(row, "no_such_message")
        case Unanswered(why=why):
            return _Asked(row, why, is_over=row.ask_count + 1 >= ASKED_AT_MOST)
        case _:
            assert_never(answer)


def _told(row: Any, report: Report) -> Told:  # noqa: ANN401 - a row of READ
    return Told(
        AttemptId(row.attempt_id),
        report.state,
        Source.POLL,  # the carrier's word on a message that we asked it about
        error_class=report.error_class,
        error_code=report.error_code,
        reason=report.reason,
        remote_id=report.remote_id,
        part=report.part,
        source_at=report.source_at,
    )


def _write(tx: Tx, *, asked: Sequence[_Asked]) -> None:
    new = []
    for a in asked:
        too_late = a.row.remote_id is None and tx.now >= a.row.requested_at + ID_WITHIN
        count = a.row.ask_count + (1 if a.counts else 0)
        new.append(
            {
                "attempt_id": a.row.attempt_id,
                "ask_at": None if a.is_over or too_late else tx.now + ASK_AGAIN_AFTER * max(1, count),
                "ask_count": count,
                "answer": a.answer,
                "observation_id": a.told.id if a.told else None,
            }
        )
    rows(tx.session, WRITE, **as_page(new), now=tx.now)
