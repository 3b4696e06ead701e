"""Settle open questions, one or a group: each answer is somebody's act, and what it says goes into the books as heard."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy.orm import Session

from app.desk.action import record_actions
from app.desk.pause import get_route
from app.ground.db import as_page, rows
from app.ground.errors import DaybookError
from app.ground.ids import AttemptId, new_id
from app.ledger.books import Books, lock_books
from app.ledger.close import Closing, close_intents
from app.ledger.consequences import Desk
from app.ledger.observe import Told, observe
from app.ledger.request import LOOKS_PERSONAL
from app.ledger.review import release
from policy.settle import Act, Question, WhyNot, act_of
from policy.states import AttemptState
from policy.words import ErrorClass, Reason, Settlement, Source

# Without a lock: which intent a review is of never changes.
FIND = "SELECT id, intent_id FROM review WHERE tenant_id = %(tenant)s AND id = %(id)s"

# A statement of its own after the locks, so that it sees who was first: every other writer of a review
# holds its intent's lock as well.
READ = """
SELECT id, intent_id, attempt_id, event_id, route_id, cause, settled_at, settled_as, settled_by
FROM review WHERE id = ANY(%(ids)s::uuid[]) ORDER BY id FOR UPDATE
"""

GROUP = """
SELECT id, intent_id FROM review
WHERE tenant_id = %(tenant)s AND settled_at IS NULL AND route_id IS NOT DISTINCT FROM %(route)s AND cause = %(cause)s
"""

# Before the consequences, which settle as `heard` what is still open by then.
SETTLE = """
UPDATE review r SET settled_at = %(now)s, settled_as = %(settlement)s, settled_by = %(actor)s, settled_action_id = n.action_id,
       settled_reason = %(reason)s
FROM (SELECT * FROM json_to_recordset(%(new)s::json) AS n (id uuid, action_id uuid) LIMIT %(count)s) n
WHERE r.id = n.id AND r.settled_at IS NULL
"""


class PersonalReason(DaybookError):
    """The reason holds an address, and would be kept in clear."""


class NoSuchReview(DaybookError):
    """The tenant has no review of this id."""


class AlreadySettled(DaybookError):
    """Somebody, or an outcome, was first; the words say who, and how."""


class CountChanged(DaybookError):
    """The group is not what was counted; the words say what it is now."""


class CannotSettle(DaybookError):
    """The question cannot be answered so; the words say why."""

    def __init__(self, why: WhyNot) -> None:
        super().__init__(why.words)
        self.why = why


@dataclass(frozen=True, slots=True)
class Group:
    """The open reviews of one cause on one route, as they were counted."""

    route: str | None
    """A route's name; None for attempts that had no route."""
    cause: str
    count: int


@dataclass(frozen=True, slots=True)
class Answer:
    """What a person says of open questions, and why; PersonalReason if that names an address."""

    settlement: Settlement
    reason: str
    actor: str

    def __post_init__(self) -> None:
        if LOOKS_PERSONAL.search(self.reason):
            raise PersonalReason("the reason is kept in clear: it must not hold an address")


@dataclass(frozen=True, slots=True)
class Settled:
    """How many questions were settled, and why the others of the group were not."""

    count: int
    left: Mapping[WhyNot, int]


def settle(session: Session, *, tenant_id: UUID, review_id: UUID, answer: Answer, now: datetime) -> None:
    """Settle one review; raises NoSuchReview, AlreadySettled or CannotSettle, and then nothing is changed."""
    found = rows(session, FIND, tenant=tenant_id, id=review_id)
    if not found:
        raise NoSuchReview("no such review")
    books = lock_books(session, [found[0].intent_id])
    review = rows(session, READ, ids=[review_id])[0]
    if review.settled_at is not None:
        by = f" by {review.settled_by}" if review.settled_by else ""
        raise AlreadySettled(f"settled as {review.settled_as}{by} at {review.settled_at.isoformat()}")
    act = act_of(answer.settlement, question_of(books, review), now=now)
    if isinstance(act, WhyNot):
        raise CannotSettle(act)
    _Acts(session, books, tenant_id, answer, now).do({review.id: act}, [review])


def settle_group(session: Session, *, tenant_id: UUID, group: Group, answer: Answer, now: datetime) -> Settled:
    """Settle the open reviews of a group, if they are as many as were counted; else CountChanged, and nothing is changed.

    Those that cannot be settled so stay open and are counted by why. Raises NoSuchRoute.
    """
    key = {
        "tenant": tenant_id,
        "cause": group.cause,
        "route": get_route(session, tenant_id, group.route) if group.route is not None else None,
    }
    counted = _counted(rows(session, GROUP, **key), group)
    books = lock_books(session, counted.values())
    _counted(still := rows(session, GROUP, **key), group)  # under the locks: another operator may have been first
    if {row.id for row in still} != counted.keys():
        raise CountChanged("the group is not the one that was counted: as many, but others; count it again")
    reviews = rows(session, READ, ids=sorted(counted))
    acts = {r.id: act_of(answer.settlement, question_of(books, r), now=now) for r in reviews}
    can = {i: act for i, act in acts.items() if isinstance(act, Act)}
    _Acts(session, books, tenant_id, answer, now).do(can, [r for r in reviews if r.id in can])
    return Settled(len(can), Counter(act for act in acts.values() if isinstance(act, WhyNot)))


def _counted(found: Sequence[Any], group: Group) -> dict[UUID, UUID]:
    if len(found) != group.count:
        raise CountChanged(f"{len(found)} are open in this group now, not {group.count}")
    return {row.id: row.intent_id for row in found}


def question_of(books: Books, review: Any) -> Question:  # noqa: ANN401 - a row of READ
    """Read from locked books what the answer to a review depends on."""
    attempt, intent = books.attempts[review.attempt_id], books.intents[review.intent_id]
    row = books.outbox.get(review.attempt_id)
    return Question(
        cause=review.cause,
        state=AttemptState(attempt.state),
        is_parked=row is not None and row.due_at is None,
        is_last=books.attempts_of(intent.id)[-1].id == attempt.id,
        is_asked=attempt.next_check_at is not None,
        is_open=intent.closed_at is None,
        is_closing=intent.close_requested_at is not None,
        expires_at=intent.expires_at,
    )


@dataclass(slots=True)
class _Acts:
    """What settling does: written down first, then done, act by act."""

    session: Session
    books: Books
    tenant_id: UUID
    answer: Answer
    now: datetime

    def do(self, acts: Mapping[UUID, Act], reviews: Sequence[Any]) -> None:
        """Settle locked reviews, each by its act."""
        of = {act: [r for r in reviews if acts[r.id] is act] for act in Act}
        told = {r.id: self._told(r) for r in of[Act.REPORT]}
        actions = self._write_down(reviews, told)
        if of[Act.GIVE_UP]:
            closings = [_giving_up(r.intent_id, actions[r.id]) for r in of[Act.GIVE_UP]]
            close_intents(self.session, self.books, closings, now=self.now)
        if of[Act.RELEASE]:
            release(self.session, self.books, {r.attempt_id: actions[r.id] for r in of[Act.RELEASE]}, now=self.now)
        if told:  # reads the books anew, so what was given up above is seen
            observe(self.session, list(told.values()), now=self.now)
        if of[Act.RETRY] or of[Act.CLOSE]:
            desk = Desk(self.session, self.books, {}, self.now)
            desk.resend({r.attempt_id: actions[r.id] for r in of[Act.RETRY]})
            desk.endings |= {r.intent_id: _doubt(r.cause) for r in of[Act.CLOSE]}
            desk.write()

    def _told(self, review: Any) -> Told:  # noqa: ANN401 - a row of READ
        failed = self.answer.settlement is Settlement.FAILED
        return Told(
            AttemptId(review.attempt_id),
            AttemptState.FAILED if failed else AttemptState.DELIVERED,
            Source.OPERATOR,
            error_class=ErrorClass.UNCLASSIFIED if failed else None,
            reason=Reason.SETTLED if failed else None,
        )

    def _action(self, review: Any, told: Told | None) -> dict[str, Any]:  # noqa: ANN401 - a row of READ
        subject = {
            "review_id": str(review.id),
            "event_id": str(review.event_id),
            "intent_id": str(review.intent_id),
            "attempt_id": str(review.attempt_id),
            "cause": review.cause,
            "as": self.answer.settlement.value,
            "observation_id": str(told.id) if told else None,
        }
        return {
            "id": new_id(),
            "tenant_id": self.tenant_id,
            "actor": self.answer.actor,
            "verb": "settle",
            "subject": subject,
            "reason": self.answer.reason,
            "at": self.now,
        }

    def _write_down(self, reviews: Sequence[Any], told: Mapping[UUID, Told]) -> dict[UUID, UUID]:
        """Keep one operator action per review, naming the observation that it brings; mark the reviews settled."""
        new = [self._action(r, told.get(r.id)) for r in reviews]
        ids = record_actions(self.session, new)
        actions = {r.id: action_id for r, action_id in zip(reviews, ids, strict=True)}
        rows(
            self.session,
            SETTLE,
            **as_page([{"id": i, "action_id": action_id} for i, action_id in actions.items()]),
            settlement=self.answer.settlement,
            actor=self.answer.actor,
            reason=self.answer.reason,
            now=self.now,
        )
        return actions


def _giving_up(intent_id: UUID, action_id: UUID) -> Closing:
    return Closing(intent_id, AttemptState.CANCELLED, Reason.CANCELLED, Source.OPERATOR, action_id)


def _doubt(cause: str) -> str:
    """Give the reason that an intent left in doubt closes with: its question, where that is one of the catalogue."""
    return Reason(cause) if cause in {*Reason} else Reason.HORIZON
