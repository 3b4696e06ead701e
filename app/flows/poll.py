"""Ask carriers what became of attempts in doubt: claim a page, ask with no transaction open, observe all."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, assert_never
from uuid import UUID

from sqlalchemy.orm import Session

from app.carriers.base import Candidate, Carrier, NoSuchMessage, Report, RouteSettings, Unanswered
from app.carriers.registry import open_carrier
from app.flows.keep import observe_until_kept
from app.ground.config import settings
from app.ground.db import Tx, rows, transact
from app.ground.errors import DaybookError
from app.ground.ids import AttemptId
from app.ground.keys import keyed_hash, same_bytes
from app.ground.log import log
from app.ledger.notfound import count_not_found
from app.ledger.observe import Told
from app.ledger.routes import Route, read_routes
from app.people.vault import open_vault_key
from policy.checks import next_check
from policy.states import AttemptState, Judgement, judge
from policy.words import Source

# Pushing the next check forward is the claim: nobody else asks meanwhile, and a worker that dies
# here loses only one turn. Attempts alone are locked, so the order of locks is kept.
CLAIM = """
UPDATE attempt a SET next_check_at = least(%(until)s, a.horizon_at), check_count = a.check_count + 1
FROM (SELECT id FROM attempt
      WHERE next_check_at <= %(now)s
        AND next_check_at >= (SELECT coalesce(max(floor_at), '-infinity') FROM sweep_floor WHERE name = 'checks')
        AND state IN ('submitted', 'unknown') AND horizon_at > %(now)s
      ORDER BY next_check_at, id LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED) due
WHERE a.id = due.id
RETURNING a.id
"""

READ = """
SELECT a.id, a.next_check_at AS claimed_until, a.intent_id,
       a.route_id, a.state, a.check_count, a.horizon_at, a.body_hash, a.hash_key_id, a.taken,
       coalesce(a.prepared_at, a.created_at) AS sent_from, coalesce(a.prepared_at, a.answered_at) AS sent_until,
       a.not_found_count, c.sealed_address, k.id AS key_id, k.wrapped_key, i.gate_hash, i.tenant_id,
       (SELECT remote_id FROM remote_id r WHERE r.attempt_id = a.id ORDER BY part LIMIT 1) AS remote_id
FROM attempt a JOIN intent i ON i.id = a.intent_id JOIN contact c ON c.id = i.contact_id
JOIN person_key k ON k.id = c.person_key_id
WHERE a.id = ANY(%(ids)s::uuid[])
"""

# Whoever else could be the message that the carrier has: same route, same address, same text, no
# remote id of its own, prepared at about the same time (in a restored ledger: at an unknown one).
RIVALS = """
SELECT a.id FROM attempt a JOIN intent i ON i.id = a.intent_id
WHERE a.route_id = %(route)s AND i.tenant_id = %(tenant)s AND i.gate_hash = %(gate)s AND a.body_hash = %(body)s
  AND a.id <> %(id)s AND a.state IN ('prepared', 'submitted', 'unknown', 'failed', 'delivered')
  AND coalesce(a.prepared_at, a.answered_at) >= %(since)s AND coalesce(a.prepared_at, a.created_at) <= %(until)s
  AND NOT EXISTS (SELECT FROM remote_id r WHERE r.attempt_id = a.id)
  -- What the carrier, asked twice, did not have is not what it lists now.
  AND (a.taken OR a.not_found_count < 2)
  -- Nor is what it refused in its own answer, or never got.
  AND (a.taken OR a.state <> 'failed'
       OR NOT EXISTS (SELECT FROM observation o WHERE o.attempt_id = a.id AND o.source = 'answer' AND o.state = 'failed'))
"""

HELD = "SELECT remote_id FROM remote_id WHERE route_id = %(route)s AND remote_id = ANY(%(remote_ids)s::text[])"

# Only rows that still carry our claim: a report or a close that came meanwhile has set the next check
# itself. Not `=`, which the planner could follow into the index of what is due instead of the key.
RESCHEDULE = """
UPDATE attempt a SET next_check_at = n.next_at
FROM unnest(%(ids)s::uuid[], %(nexts)s::timestamptz[], %(claims)s::timestamptz[]) AS n (id, next_at, claimed_until)
WHERE a.id = n.id AND a.next_check_at IS NOT DISTINCT FROM n.claimed_until AND a.state IN ('submitted', 'unknown')
"""

CLAIMED_FOR: Final = timedelta(seconds=60)
# Carriers' clocks and ours differ by seconds, their queues by a minute or two.
CLOCK_SLACK: Final = timedelta(minutes=5)
# No carrier lists fewer than this on one page: a shorter list is all there is.
LISTED_WHOLE: Final = 50
SIDE_BY_SIDE: Final = 8

CarrierOf = Callable[[RouteSettings], Carrier]


@dataclass(frozen=True, slots=True)
class Answer:
    """What one question brought."""

    attempt: Any
    report: Report | None = None
    source: Source = Source.POLL
    not_found: bool = False
    """A look-up that could count did not find it."""


def poll_page(*, carrier_of: CarrierOf = open_carrier) -> int:
    """Ask about one page of due attempts; return how many were asked about."""
    limit = settings().poll_page_count
    due = transact(lambda tx: _claim(tx, limit))
    if not due:
        return 0
    routes = transact(lambda tx: read_routes(tx.session, {a.route_id for a in due}))
    with ThreadPoolExecutor(SIDE_BY_SIDE, thread_name_prefix="poll") as pool:
        answers = list(pool.map(lambda a: _ask(a, routes[a.route_id], carrier_of), due))
    observe_until_kept([_told(a) for a in answers if _is_news(a)])
    transact(lambda tx: _reschedule(tx, answers, routes))
    missing = [a.attempt.id for a in answers if a.not_found]
    if missing:
        transact(lambda tx: count_not_found(tx.session, missing, now=tx.now))
    return len(due)


def _claim(tx: Tx, limit: int) -> list[Any]:
    claimed = rows(tx.session, CLAIM, now=tx.now, until=tx.now + CLAIMED_FOR, limit=limit)
    return rows(tx.session, READ, ids=sorted(row.id for row in claimed)) if claimed else []


def _ask(attempt: Any, route: Route, carrier_of: CarrierOf) -> Answer:  # noqa: ANN401 - a row of READ
    try:
        carrier = carrier_of(route.settings)
        if attempt.remote_id is not None and route.capabilities.polls:
            return _poll(attempt, carrier)
        if attempt.remote_id is None and route.capabilities.looks_up:
            return _look_up(attempt, route, carrier)
    except DaybookError as error:
        log.error("poll_fault", attempt_id=str(attempt.id), cause=type(error).__name__)
    return Answer(attempt)


def _poll(attempt: Any, carrier: Carrier) -> Answer:  # noqa: ANN401 - a row of READ
    result = carrier.poll(attempt.remote_id)
    match result:
        case Report():
            return Answer(attempt, result)
        case NoSuchMessage() | Unanswered():
            log.info("poll_unanswered", attempt_id=str(attempt.id), answer=type(result).__name__)
            return Answer(attempt)
        case _:
            assert_never(result)


def _look_up(attempt: Any, route: Route, carrier: Carrier) -> Answer:  # noqa: ANN401 - a row of READ
    """Find the message by its content: it settles only on exactly one match that no other attempt could claim."""
    address = open_vault_key(attempt.key_id, attempt.wrapped_key).open(attempt.sealed_address)
    listed = carrier.look_up(address)
    if isinstance(listed, Unanswered):
        log.info("look_up_unanswered", attempt_id=str(attempt.id), why=listed.why)
        return Answer(attempt)
    since, until = attempt.sent_from - CLOCK_SLACK, attempt.sent_until + CLOCK_SLACK
    alike = [c for c in listed if _is_alike(c, attempt, route, since, until)]
    free, rivals = transact(lambda tx: _claims(tx.session, attempt, alike, since, until))
    log.info("look_up", attempt_id=str(attempt.id), alike=len(alike), free=len(free), rivals=rivals)
    if len(free) == 1 and not rivals:
        return Answer(attempt, free[0].report, Source.LOOKUP)
    # A full page may hide an older message behind newer ones.
    whole = len(listed) < LISTED_WHOLE or min(c.created_at for c in listed) < since
    return Answer(attempt, not_found=whole and not free and not rivals)


def _is_alike(found: Candidate, attempt: Any, route: Route, since: datetime, until: datetime) -> bool:  # noqa: ANN401
    theirs = keyed_hash("body", found.body.encode(), key_id=attempt.hash_key_id)
    same_text = same_bytes(theirs.digest, bytes(attempt.body_hash))
    senders = {route.settings.sender, route.settings.settings.get("messaging_service_sid")}
    return same_text and found.sender in senders and since <= found.created_at <= until


def _claims(
    session: Session,
    attempt: Any,  # noqa: ANN401 - a row of READ
    alike: Sequence[Candidate],
    since: datetime,
    until: datetime,
) -> tuple[list[Candidate], int]:
    """Leave out what other attempts hold by id; count the attempts in doubt that could claim the rest."""
    held = rows(session, HELD, route=attempt.route_id, remote_ids=[c.remote_id for c in alike]) if alike else []
    taken = {row.remote_id for row in held}
    rivals = rows(
        session,
        RIVALS,
        route=attempt.route_id,
        tenant=attempt.tenant_id,
        gate=bytes(attempt.gate_hash),
        body=bytes(attempt.body_hash),
        id=attempt.id,
        since=since,
        until=until,
    )
    return [c for c in alike if c.remote_id not in taken], len(rivals)


def _is_news(answer: Answer) -> bool:
    """Say whether an answer tells something; that the carrier has it, told below a higher state, is news once."""
    if answer.report is None:
        return False
    judgement = judge(AttemptState(answer.attempt.state), answer.report.state)
    return judgement is Judgement.APPLIED or (judgement is Judgement.STALE and not answer.attempt.taken)


def _told(answer: Answer) -> Told:
    report, attempt = answer.report, answer.attempt
    assert report is not None  # noqa: S101 - the caller passes answers with a report only
    return Told(
        AttemptId(attempt.id),
        report.state,
        answer.source,
        error_class=report.error_class,
        error_code=report.error_code,
        reason=report.reason,
        remote_id=report.remote_id,
        part=report.part,
        source_at=report.source_at,
    )


def _reschedule(tx: Tx, answers: Sequence[Answer], routes: Any) -> None:  # noqa: ANN401 - routes by id
    """Set the next question of those that are still in doubt; unchanged answers are counted, not appended."""
    nexts: dict[UUID, tuple[datetime, datetime]] = {}
    for a in answers:
        route = routes[a.attempt.route_id]
        at = next_check(
            a.attempt.check_count,
            first_after=route.first_check_after,
            horizon_at=a.attempt.horizon_at,
            jitter=random.random(),  # noqa: S311 - spreads polls, guards nothing
            now=tx.now,
        )
        nexts[a.attempt.id] = (at, a.attempt.claimed_until)
    ids = sorted(nexts)
    rows(tx.session, RESCHEDULE, ids=ids, nexts=[nexts[i][0] for i in ids], claims=[nexts[i][1] for i in ids])
