"""What happens between acceptance, lease and prepare: what becomes of the text, and which state the evidence says has won.

What a person agreed to and asked for counts as it was at acceptance, or as it is at dispatch: that is the basis
of the text's category. Everything else, a STOP above all, counts as it is now, whatever the basis.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

import pytest
from sqlalchemy.orm import Session

from app.desk.pause import Scope, pause, resume
from app.ledger.audit import audit
from policy.categories import Basis
from tests.flows.between import JUST_AFTER, LOOKED_AGAIN, SECOND, TURN, Happening, Outcome, Place, Story, rules_of, tell
from tests.making import NOON, count_of, outbox_of, transitions_of

ACCEPTANCE, DISPATCH = Basis.ACCEPTANCE, Basis.DISPATCH
EVERY_DAY: Final = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
MORNING: Final = {"id": "morning", "windows": [{"days": EVERY_DAY, "start": "08:00", "end": "12:02"}]}
TOMORROW: Final = NOON + timedelta(hours=20)  # 08:00 in New York
SCOPE: Final = Scope(category="transactional")


def without_us(story: Story) -> dict[str, Any]:
    raw = rules_of(story.basis)
    allowed = [country for country in raw["countries"]["allowed"] if country != "US"]
    return raw | {"countries": raw["countries"] | {"allowed": allowed}}


def wanting_writing(story: Story) -> dict[str, Any]:
    return rules_of(story.basis, consent=["express_written"])


def of_the_other_basis(story: Story) -> dict[str, Any]:
    return rules_of(DISPATCH if story.basis is ACCEPTANCE else ACCEPTANCE)


def brake(story: Story) -> None:
    pause(story.session, tenant_id=story.house.tenant_id, scope=SCOPE, actor="ann", reason="too many", now=TURN)


HAPPENINGS: Final = {
    "the window ends": Happening(rules={"hours": [MORNING]}),
    "the offer expires": Happening(request={"expires_at": TURN.isoformat()}),
    "the text grows too old": Happening(rules={"max_age": "2m"}),
    "a version starts": Happening(ahead=lambda s: s.publish_next(without_us(s))),
    "a version starts that was published since": Happening(planned=lambda s: s.publish_next(without_us(s))),
    "a version starts that wants what was told since": Happening(
        ahead=lambda s: s.publish_next(wanting_writing(s)),
        planned=lambda s: s.consent("written", "grant", kind="express_written", now=NOON + SECOND),
    ),
    "the consent is withdrawn": Happening(lambda s: s.consent("withdrawn", "withdraw")),
    "it is withdrawn as a version of the other basis starts": Happening(
        lambda s: s.consent("withdrawn", "withdraw"), ahead=lambda s: s.publish_next(of_the_other_basis(s))
    ),
    "the person says no": Happening(lambda s: s.refuse("no")),
    "the person writes STOP": Happening(lambda s: s.stop("STOP")),
    "a pause begins": Happening(brake),
}


def table_row(
    happening: str,
    basis: Basis,
    ends: str,
    why: str | None = None,
    *,
    back: str,
    saw: str = "granted",
    version: str = "first",
    next_at: datetime | None = None,
    by: Basis | None = None,
) -> Any:
    """Write one row: `back` is why prepare sends it back, `saw` what of the person the decision that counts had seen.

    `by` is the basis by which that decision went, where it is not the category's from the start.
    """
    went_by = ACCEPTANCE if (by or basis) is ACCEPTANCE else None
    outcome = Outcome(ends, why, next_at, version, frozenset(saw.split()), went_by)
    return pytest.param(happening, basis, back, outcome, id=f"{happening}, by {basis}")


# What happens, the category's basis -> how it ends and why; why prepare sent it back; what the evidence says was seen.
TABLE: Final = [
    table_row("the window ends", ACCEPTANCE, "deferred", "outside_window", next_at=TOMORROW, back="outside_window"),
    table_row("the window ends", DISPATCH, "deferred", "outside_window", next_at=TOMORROW, back="outside_window"),
    table_row("the offer expires", ACCEPTANCE, "expired", "expired", back="expired"),
    table_row("the offer expires", DISPATCH, "expired", "expired", back="expired"),
    table_row("the text grows too old", ACCEPTANCE, "expired", "expired", back="expired"),
    table_row("the text grows too old", DISPATCH, "expired", "expired", back="expired"),
    # The version in force decides, by whatever the basis: it says what of the person counts, not which rules do.
    table_row("a version starts", ACCEPTANCE, "suppressed", "country_blocked", version="next", back="outside_window"),
    table_row("a version starts", DISPATCH, "suppressed", "country_blocked", version="next", back="outside_window"),
    table_row(
        "a version starts that was published since",
        ACCEPTANCE,
        "suppressed",
        "country_blocked",
        version="next",
        back="outside_window",
    ),
    table_row(
        "a version starts that was published since",
        DISPATCH,
        "suppressed",
        "country_blocked",
        version="next",
        back="outside_window",
    ),
    table_row(
        "a version starts that wants what was told since",
        ACCEPTANCE,
        "suppressed",
        "no_consent",
        version="next",
        back="outside_window",
    ),
    table_row(
        "a version starts that wants what was told since",
        DISPATCH,
        "handed_off",
        version="next",
        saw="granted written",
        back="outside_window",
    ),
    table_row("the consent is withdrawn", ACCEPTANCE, "handed_off", back="opted_out"),
    table_row("the consent is withdrawn", DISPATCH, "suppressed", "no_consent", saw="withdrawn", back="opted_out"),
    table_row(
        "it is withdrawn as a version of the other basis starts",
        ACCEPTANCE,
        "suppressed",
        "no_consent",
        version="next",
        saw="withdrawn",
        by=DISPATCH,
        back="outside_window",
    ),
    table_row(
        "it is withdrawn as a version of the other basis starts",
        DISPATCH,
        "handed_off",
        version="next",
        by=ACCEPTANCE,
        back="outside_window",
    ),
    table_row("the person says no", ACCEPTANCE, "handed_off", back="opted_out"),
    table_row("the person says no", DISPATCH, "suppressed", "not_wanted", saw="granted no", back="opted_out"),
    table_row("the person writes STOP", ACCEPTANCE, "suppressed", "opted_out", saw="granted STOP", back="opted_out"),
    table_row("the person writes STOP", DISPATCH, "suppressed", "opted_out", saw="granted STOP", back="opted_out"),
]
PLACES: Final = pytest.mark.parametrize("place", Place)


@PLACES
@pytest.mark.parametrize(("happening", "basis", "back", "outcome"), TABLE)
def test_what_happens_on_the_way_ends_as_the_basis_says_and_the_evidence_names_what_won(
    session: Session, happening: str, basis: Basis, back: str, outcome: Outcome, place: Place
) -> None:
    story = tell(session, HAPPENINGS[happening], place, basis)

    assert story.put_back == (back if place is Place.PREPARE else None)
    assert story.outcome() == outcome
    assert audit(session, since=None, full=True, now=LOOKED_AGAIN) == []


@PLACES
@pytest.mark.parametrize("basis", Basis)
def test_a_pause_that_begins_on_the_way_holds_the_text_and_decides_nothing(session: Session, basis: Basis, place: Place) -> None:
    story = tell(session, HAPPENINGS["a pause begins"], place, basis)

    row = outbox_of(session, story.standing)
    assert story.put_back == ("paused" if place is Place.PREPARE else None)
    assert transitions_of(session, story.standing) == [(None, "queued", None)]
    assert (row.lease, row.due_at) == (None, JUST_AFTER if place is Place.PREPARE else NOON)


@PLACES
@pytest.mark.parametrize(
    ("basis", "ends", "saw"),
    [(ACCEPTANCE, ("handed_off", None), {"granted"}), (DISPATCH, ("suppressed", "no_consent"), {"withdrawn"})],
)
def test_what_was_withdrawn_while_a_pause_held_the_text_counts_by_the_basis_when_it_ends(
    session: Session, basis: Basis, ends: tuple[str, str | None], saw: set[str], place: Place
) -> None:
    story = tell(session, HAPPENINGS["a pause begins"], place, basis)
    story.consent("withdrawn", "withdraw", now=LOOKED_AGAIN)

    resume(session, tenant_id=story.house.tenant_id, scope=SCOPE, actor="ann", reason="done", now=LOOKED_AGAIN + SECOND)
    story.go(now=LOOKED_AGAIN + 2 * SECOND)

    outcome = story.outcome()
    assert (outcome.state, outcome.reason, set(outcome.saw)) == (*ends, saw)


@pytest.mark.parametrize("basis", Basis)
def test_where_nothing_happens_the_text_goes_at_once_and_a_decision_that_says_the_same_is_not_kept_twice(
    session: Session, basis: Basis
) -> None:
    """That a decision went by the acceptance is something new to say of it; that nothing has changed is not."""
    story = tell(session, Happening(), Place.PREPARE, basis)

    went_by = ACCEPTANCE if basis is ACCEPTANCE else None
    assert story.put_back is None
    assert story.outcome() == Outcome("handed_off", None, None, "first", frozenset({"granted"}), went_by)
    assert count_of(session, "decision") == (2 if basis is ACCEPTANCE else 1)
