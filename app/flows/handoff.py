"""Take leased attempts to their carriers, each at most once, and keep what the carriers answer."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from datetime import datetime, timedelta
from functools import cache
from operator import attrgetter
from typing import Final, assert_never
from uuid import UUID

from app.carriers.base import Carrier, NotHandedOff, Refused, RouteSettings, SendResult, Submitted, Throttled, Unknown
from app.carriers.registry import open_carrier
from app.flows.keep import keep_trying, observe_until_kept
from app.flows.routes import find_route
from app.flows.tokens import Tokens
from app.ground.config import settings
from app.ground.db import CommitUnknown, as_page, rows, transact
from app.ground.errors import DaybookError
from app.ground.ids import AttemptId, Lease
from app.ground.log import log
from app.ledger.observe import Told
from app.ledger.prepare import Handoff, Prepared, prepare
from app.ledger.routes import Route
from app.limits import Terms
from policy.states import AttemptState
from policy.words import ErrorClass, Reason, Source

CarrierOf = Callable[[RouteSettings], Carrier]

# No token, no Redis to ask for one, or a person who was just contacted: due again a little later, under
# no lease. Nothing public changes; the row says why it waits.
PUT_OFF = """
UPDATE outbox o SET lease = NULL, leased_until = NULL, lost_lease_count = 0, reason = n.reason,
       due_at = %(now)s + n.wait_ms * interval '1 millisecond'
FROM (SELECT * FROM json_to_recordset(%(new)s::json) AS n (attempt_id uuid, wait_ms float8, reason text) LIMIT %(count)s) n
WHERE o.attempt_id = n.attempt_id AND o.lease = %(lease)s
"""

# After a commit whose answer was lost: what this transaction prepared was never written to anyone,
# since the carrier is called only after the commit is known. The lease alone does not say whose it is:
# a message that was delivered twice gives it to two workers, and the other may be sending right now.
PREPARED_BY_US = """
SELECT id FROM attempt
WHERE id = ANY(%(ids)s::uuid[]) AND state = 'prepared' AND lease = %(lease)s AND prepared_at = %(began_at)s
"""

# Answers that come this close together are observed in one transaction.
GROUP_SECONDS: Final = 0.01
NO_TERMS: Final = Terms()


def hand_off(
    attempt_ids: Sequence[AttemptId],
    *,
    route_id: UUID,
    lease: Lease,
    terms: Terms = NO_TERMS,
    carrier_of: CarrierOf = open_carrier,
) -> None:
    """Take attempts leased on one route to its carrier; what may not go is put back with its reason."""
    window = settings().window_count
    for start in range(0, len(attempt_ids), window):
        tokens = _with_tokens(attempt_ids[start : start + window], Tokens(_route(route_id), lease, terms))
        handoffs = _prepare(tokens.taken, lease=lease)
        tokens.settle(handoffs)
        for answered in send_side_by_side(handoffs, carrier_of, valid_until=tokens.valid_until):
            observe_until_kept(answered)  # an answer is a fact: offered again until the ledger has it
            tokens.unmark(answered)


def _with_tokens(attempt_ids: Sequence[AttemptId], tokens: Tokens) -> Tokens:
    """Take tokens immediately before prepare; put the attempts without one off, one behind the other."""
    tokens.take(attempt_ids)
    if tokens.refused:
        late = [
            {"attempt_id": i, "wait_ms": said.wait / timedelta(milliseconds=1), "reason": said.reason}
            for i, said in sorted(tokens.refused.items())
        ]
        transact(lambda tx: rows(tx.session, PUT_OFF, **as_page(late), lease=tokens.lease, now=tx.now))
    return tokens


def _prepare(attempt_ids: Sequence[AttemptId], *, lease: Lease) -> Sequence[Handoff]:
    if not attempt_ids:
        return []
    handoff_for = timedelta(seconds=settings().handoff_seconds)
    began: list[datetime] = []  # by every run; the last is the one whose commit may be in question
    try:
        prepared = transact(
            lambda tx: prepare(
                tx.session, attempt_ids, lease=lease, handoff_for=handoff_for, boottime=tx.boottime, now=_noted(tx.now, began)
            )
        )
    except CommitUnknown:
        _report_not_handed_off(attempt_ids, lease=lease, began_at=began[-1])
        return []
    _say(prepared, lease=lease)
    return prepared.handoffs


def _noted(now: datetime, began: list[datetime]) -> datetime:
    began.append(now)
    return now


def _say(prepared: Prepared, *, lease: Lease) -> None:
    for attempt_id, reason in prepared.put_back.items():
        log.info("put_back", attempt_id=str(attempt_id), reason=reason, lease=lease)
    for tripped_id, country in prepared.tripped:
        log.error("breaker_tripped", route_id=str(tripped_id), country=country, lease=lease)
    for attempt_id in prepared.parked:
        log.error("parked", attempt_id=str(attempt_id), lease=lease)


def _route(route_id: UUID) -> Route:
    route = find_route(route_id)
    assert route is not None  # noqa: S101 - its outbox rows name it, and routes are never deleted
    return route


def _report_not_handed_off(attempt_ids: Sequence[AttemptId], *, lease: Lease, began_at: datetime) -> None:
    log.warning("commit_unknown", lease=lease, attempts=len(attempt_ids))
    ours = keep_trying(
        lambda: transact(lambda tx: rows(tx.session, PREPARED_BY_US, ids=sorted(attempt_ids), lease=lease, began_at=began_at))
    )
    told = [
        Told(
            AttemptId(row.id),
            AttemptState.FAILED,
            Source.ANSWER,
            error_class=ErrorClass.NOT_HANDED_OFF,
            error_code="commit_unknown",
        )
        for row in ours
    ]
    observe_until_kept(told)


@cache
def _pool_of(pid: int) -> ThreadPoolExecutor:
    del pid  # threads do not cross a fork
    return ThreadPoolExecutor(max_workers=settings().window_count, thread_name_prefix="handoff")


def send_side_by_side(
    handoffs: Sequence[Handoff],
    carrier_of: CarrierOf = open_carrier,
    *,
    valid_until: Callable[[Handoff], float] = attrgetter("deadline"),
) -> Iterator[list[Told]]:
    """Send prepared attempts at once, and give their answers in groups as they come; no transaction is open.

    `valid_until` says until when (CLOCK_BOOTTIME) each may be written; it is asked immediately before, and may wait.
    """
    pool = _pool_of(os.getpid())
    running: set[Future[Told]] = {pool.submit(_send, handoff, carrier_of, valid_until) for handoff in handoffs}
    while running:
        wait(running, return_when=FIRST_COMPLETED)
        done, running = wait(running, timeout=GROUP_SECONDS)
        yield [future.result() for future in done]


def _send(handoff: Handoff, carrier_of: CarrierOf, valid_until: Callable[[Handoff], float]) -> Told:
    result = _result(handoff, carrier_of, valid_until)
    told = told_of(handoff.attempt_id, result)
    log.info("answered", attempt_id=str(handoff.attempt_id), state=told.state, error_class=told.error_class, code=told.error_code)
    return told


def _result(handoff: Handoff, carrier_of: CarrierOf, valid_until: Callable[[Handoff], float]) -> SendResult:
    try:
        carrier = carrier_of(handoff.route.settings)
    except DaybookError as error:
        log.error("route_unusable", route_id=str(handoff.route.id), cause=type(error).__name__)
        return Refused(ErrorClass.AUTH_CONFIG, "route_unusable")
    try:
        return carrier.send(handoff.submission, deadline=valid_until(handoff))
    except Exception as error:  # noqa: BLE001 - this thread's outermost shell
        # A fault of ours somewhere between the first byte and the answer: it may have been taken,
        # and the answers of the others in this window must not be lost with it.
        log.exception("send_fault", attempt_id=str(handoff.attempt_id))
        return Unknown(Reason.UNREADABLE_ANSWER, type(error).__name__)


def told_of(attempt_id: AttemptId, result: SendResult) -> Told:
    """Say what a send's result means for its attempt."""
    match result:
        case Submitted(remote_ids=remote_ids):
            return Told(attempt_id, AttemptState.SUBMITTED, Source.ANSWER, remote_id=remote_ids[0] if remote_ids else None)
        case Refused(error_class=error_class, code=code):
            return Told(attempt_id, AttemptState.FAILED, Source.ANSWER, error_class=error_class, error_code=code)
        case Throttled(retry_after=retry_after, code=code):
            return Told(
                attempt_id,
                AttemptState.FAILED,
                Source.ANSWER,
                error_class=ErrorClass.THROTTLED,
                error_code=code,
                retry_after_seconds=retry_after.total_seconds() if retry_after is not None else None,
            )
        case NotHandedOff(why=why):
            return Told(attempt_id, AttemptState.FAILED, Source.ANSWER, error_class=ErrorClass.NOT_HANDED_OFF, error_code=why)
        case Unknown(reason=reason, code=code):
            return Told(attempt_id, AttemptState.UNKNOWN, Source.ANSWER, reason=reason, error_code=code)
        case _:
            assert_never(result)
