"""The confirmation of an opt-out: one, at once, by a decision of its own that is exempt from that one suppression."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import count
from typing import Any, Final

import pytest
from sqlalchemy.orm import Session

from app.carriers.base import Call
from app.carriers.registry import open_carrier
from app.desk.configure import NewTemplate, publish_template
from app.ground.db import rows
from app.ledger.audit import audit
from app.ledger.doctor import examine
from app.ledger.inbound import act_on, keep_inbound
from app.ledger.routes import read_routes
from app.people.contacts import address_hash
from app.people.suppress import suppress
from policy.document import parse
from policy.replay import facts_of, replay
from policy.words import Category, Lane
from tests.making import (
    ANNA,
    BEN,
    NOON,
    House,
    Standing,
    claim,
    clock,
    make_house,
    make_prepared,
    make_queued,
    prepare_all,
    sample,
    slots_of,
)
from tests.web.writing import CONFIRMATION, OURS, text_form

MINUTE: Final = timedelta(minutes=1)
EVERY_DAY: Final = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
MORNING: Final = {"id": "morning", "windows": [{"days": EVERY_DAY, "start": "08:00", "end": "09:00"}]}
SIDS: Final = count(1)


def make_ours(session: Session, *, settings: Any = OURS, template: NewTemplate | None = CONFIRMATION, **rules: Any) -> House:
    house = make_house(session, settings=settings, policy=sample(**rules))
    if template is not None:
        publish_template(session, tenant_id=house.tenant_id, template=template, now=NOON)
    return house


def write(
    session: Session, house: House, body: str, *, now: datetime = NOON + MINUTE, meanwhile: str | None = None
) -> str | None:
    """Let Anna write something; say what became of the confirmation. `meanwhile` is run when it is kept."""
    (route,) = read_routes(session, [house.route_id]).values()
    fields = text_form(body, sid=f"SM{next(SIDS)}")
    query = "&".join(f"{name}={value.replace('+', '%2B')}" for name, value in fields.items())
    call = Call("GET", query.encode(), {}, b"")
    kept = keep_inbound(session, route, call, open_carrier(route.settings).read_inbound(call), now=now)
    if meanwhile is not None:
        rows(session, meanwhile, id=kept.id)
    acted = act_on(session, kept.id, route=route, now=now)
    assert acted is not None
    return acted.confirmation


def replies(session: Session) -> list[Any]:
    query = """SELECT e.*, i.id AS intent_id, i.state, i.reason, a.id AS attempt_id
               FROM event e JOIN intent i ON i.event_id = e.id JOIN attempt a ON a.intent_id = i.id
               WHERE e.source = 'inbound' ORDER BY e.id"""
    return rows(session, query)


def decision_on(session: Session, reply: Any) -> Any:
    return rows(session, "SELECT * FROM decision WHERE intent_id = %(id)s ORDER BY id DESC LIMIT 1", id=reply.intent_id)[0]


def rule_of(decision: Any, name: str) -> list[Any]:
    return [rule for rule in decision.evidence["rules"] if rule == name or (isinstance(rule, dict) and rule["rule"] == name)]


def suppress_anna(session: Session, house: House, source: str) -> None:
    digest = address_hash("sms", ANNA).digest
    suppress(session, tenant_id=house.tenant_id, channel="sms", address_hash=digest, source=source, cause_id=None, now=NOON)


def send(session: Session, house: House, reply: Any, *, now: datetime) -> list[str]:
    """Take a reply as far as prepared; give the bodies that may go to the carrier."""
    pages = [page for page in claim(session, house, lane=Lane.URGENT, now=now) if reply.attempt_id in page.attempt_ids]
    standings = [Standing(house, reply.id, reply.intent_id, reply.attempt_id, page.lease) for page in pages]
    return [h.submission.body for standing in standings for h in prepare_all(session, standing, now=now).handoffs]


def test_it_is_an_event_with_a_decision_that_says_what_it_is_exempt_from(session: Session) -> None:
    house = make_ours(session)
    make_queued(session, house)

    confirmation = write(session, house, "STOP")

    (reply,) = replies(session)
    decision = decision_on(session, reply)
    kept = rows(session, "SELECT s.id, n.id AS inbound_id FROM suppression s JOIN inbound n ON n.id = s.cause_id")[0]
    assert confirmation == "accepted"
    assert (reply.template_name, reply.recipient_ref, reply.subject) == ("opt-out-confirmation", "m-1", str(kept.inbound_id))
    assert reply.expires_at - reply.accepted_at == 5 * MINUTE
    assert decision.verdict == "allow"
    assert facts_of(decision.evidence).confirms == str(kept.id)
    assert rule_of(decision, "suppression") == [{"rule": "suppression", "saw": {"exempt": [str(kept.id)]}}]
    assert rows(session, "SELECT lane FROM outbox WHERE intent_id = %(id)s", id=reply.intent_id)[0].lane == "urgent"


def test_its_decision_is_replayed_and_the_books_are_clean(session: Session) -> None:
    house = make_ours(session)
    make_prepared(session, house)
    write(session, house, "STOP")
    (reply,) = replies(session)

    sent = send(session, house, reply, now=NOON + 2 * MINUTE)

    decision = decision_on(session, reply)
    document = parse(rows(session, "SELECT document FROM policy_version")[0].document)
    again = replay(document, decision.evidence, now=decision.decided_at)
    assert sent == ["You are unsubscribed."]
    assert (again.verdict, again.reason) == (decision.verdict, decision.reason)
    assert audit(session, since=None, full=True, now=NOON + 3 * MINUTE) == []


def test_neither_the_hours_nor_a_cooldown_nor_a_cap_hold_it_and_it_takes_nobody_s_slot(session: Session) -> None:
    cap = {"limit": 1, "window": "24h", "per": "person"}
    house = make_ours(session, hours=[MORNING], caps=[cap], cooldown="1h")
    earlier = NOON - timedelta(hours=3, minutes=30)  # 08:30 in New York
    before = make_prepared(session, house, now=earlier)
    write(session, house, "STOP", now=earlier + MINUTE)
    held = slots_of(session, before)
    write(session, house, "START", now=NOON)
    write(session, house, "STOP", now=NOON + MINUTE)

    *_, reply = replies(session)

    assert decision_on(session, reply).verdict == "allow"
    assert send(session, house, reply, now=NOON + 2 * MINUTE) == ["You are unsubscribed."]
    assert slots_of(session, before) == held
    assert audit(session, since=None, full=True, now=NOON + 3 * MINUTE) == []


def test_no_mark_that_the_person_was_just_contacted_is_asked_for_it(session: Session) -> None:
    """Redis would say no for half a minute, in the name of a cooldown that does not hold a reply."""
    house = make_ours(session, cooldown="1h")
    waiting = make_queued(session, house, sms=BEN, ref="m-2")
    make_prepared(session, house)
    write(session, house, "STOP")
    (reply,) = replies(session)

    asks = {i: ask.holder for page in claim(session, house, now=NOON + 2 * MINUTE) for i, ask in page.terms.asks.items()}

    assert set(asks) == {waiting.attempt_id, reply.attempt_id}
    assert asks[waiting.attempt_id]
    assert not asks[reply.attempt_id]


def test_what_else_stands_against_the_person_holds_it(session: Session) -> None:
    house = make_ours(session)
    make_queued(session, house)
    suppress_anna(session, house, "legal")

    write(session, house, "STOP")

    (reply,) = replies(session)
    assert (reply.state, reply.reason) == ("suppressed", "opted_out")


@pytest.mark.parametrize(
    ("countries", "state"),
    [({"allowed": ["GB"]}, ("suppressed", "country_blocked")), ({"allowed": ["US"]}, ("queued", None))],
)
def test_the_country_counts_as_for_every_text(session: Session, countries: dict[str, Any], state: tuple[str, str | None]) -> None:
    house = make_house(session, settings=OURS, policy=sample() | {"countries": countries})
    publish_template(session, tenant_id=house.tenant_id, template=CONFIRMATION, now=NOON)
    make_queued(session, house)

    write(session, house, "STOP")

    (reply,) = replies(session)
    assert (reply.state, reply.reason) == state


def test_a_repeated_stop_is_not_confirmed_again_and_one_after_a_start_is(session: Session) -> None:
    house = make_ours(session)
    make_queued(session, house)

    texts = enumerate(["STOP", "stop", "START", "STOP"], start=1)
    said = [write(session, house, text, now=NOON + n * MINUTE) for n, text in texts]

    assert said == ["accepted", "repeated", None, "accepted"]
    assert len(replies(session)) == 2


def test_a_stop_that_is_repeated_before_it_left_does_not_hold_it(session: Session) -> None:
    """The mark on the gate sends it back to be decided again; it is still exempt from the suppression that it confirms."""
    house = make_ours(session)
    make_queued(session, house)
    write(session, house, "STOP")
    (reply,) = replies(session)
    (page,) = [p for p in claim(session, house, now=NOON + 2 * MINUTE) if reply.attempt_id in p.attempt_ids]
    leased = Standing(house, reply.id, reply.intent_id, reply.attempt_id, page.lease)

    write(session, house, "STOP", now=NOON + 2 * MINUTE)

    assert prepare_all(session, leased, now=NOON + 2 * MINUTE).put_back == {reply.attempt_id: "opted_out"}
    assert send(session, house, reply, now=NOON + 3 * MINUTE) == ["You are unsubscribed."]


def test_it_does_not_go_after_five_minutes(session: Session) -> None:
    house = make_ours(session)
    make_queued(session, house)
    write(session, house, "STOP", now=NOON)

    (reply,) = replies(session)

    assert send(session, house, reply, now=NOON + 5 * MINUTE) == []
    assert [(r.state, r.reason) for r in replies(session)] == [("expired", "expired")]


@pytest.mark.parametrize(
    ("settings", "text", "confirmation"),
    [
        ({}, "STOP", "carrier"),
        ({}, "please stop texting me", "accepted"),  # Twilio takes whole words alone, and answers nothing else
        ({"opt_out_confirmation": "carrier"}, "Stopall", "carrier"),
        (OURS, "STOP", "accepted"),
    ],
)
def test_where_the_carrier_answers_we_do_not(session: Session, settings: Any, text: str, confirmation: str) -> None:
    house = make_ours(session, settings=settings)
    make_queued(session, house)

    assert write(session, house, text) == confirmation


def test_who_was_never_texted_gets_no_text(session: Session) -> None:
    assert write(session, make_ours(session), "STOP") == "nobody"


def test_a_tenant_without_a_text_for_it_is_named_once(session: Session) -> None:
    house = make_ours(session, template=None)
    make_queued(session, house)

    said = [write(session, house, text, now=NOON + MINUTE) for text in ("STOP", "START", "STOP")]

    named = [s.count for s in examine(session, now=clock(session)) if s.code == "confirmation_missing"]
    assert said == ["no_template", None, "no_template"]
    assert named == [2]


def test_a_text_that_cannot_be_rendered_is_refused_and_the_stop_stands(session: Session) -> None:
    wanting = NewTemplate("opt-out-confirmation", Category.TRANSACTIONAL, ["name"], {"en": "Bye {{ name }}"}, "en")
    house = make_ours(session, template=wanting)
    make_queued(session, house)

    assert write(session, house, "STOP") == "refused"
    assert rows(session, "SELECT source FROM suppression")[0].source == "keyword"


def test_a_text_that_cannot_be_read_any_more_is_heeded_all_the_same(session: Session) -> None:
    """Who is not to be contacted is known by the hash; whom to tell of it is in the vault."""
    house = make_ours(session)
    make_queued(session, house)

    said = write(session, house, "STOP", meanwhile="UPDATE inbound SET sealed_text = 'damaged' WHERE id = %(id)s")

    assert said == "refused"
    assert rows(session, "SELECT source FROM suppression")[0].source == "keyword"


def test_a_decision_that_is_exempt_without_cause_is_named(session: Session) -> None:
    house = make_ours(session)
    make_prepared(session, house)
    write(session, house, "STOP")
    stopped = rows(session, "SELECT id FROM suppression")[0].id
    rows(session, "SELECT set_config('daybook.retention', 'on', true)")
    rows(
        session,
        """UPDATE decision SET evidence = jsonb_set(evidence, '{facts,confirms}', to_jsonb(%(id)s::text))
           WHERE event_id IN (SELECT id FROM event WHERE source = 'api')""",
        id=stopped,
    )

    breaches = audit(session, since=None, full=True, now=NOON + 3 * MINUTE)

    assert "exempt_without_cause" in [breach.code for breach in breaches]


def test_a_carrier_s_block_that_a_start_lifts_here_is_named(session: Session) -> None:
    """Our list and the carrier's are two: it may go on refusing, and only it can end that."""
    house = make_ours(session)
    make_queued(session, house)
    suppress_anna(session, house, "carrier")

    before = [s.code for s in examine(session, now=clock(session))]
    write(session, house, "START")

    named = [s.count for s in examine(session, now=clock(session)) if s.code == "carrier_may_block"]
    assert "carrier_may_block" not in before
    assert named == [1]
