"""What makes a town do each piece of its work: events of every kind, and how each must end, whatever dies meanwhile."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import count
from typing import Any, Final

import httpx
import psycopg
import yaml
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from app.desk.configure import NewRoute, NewTemplate, add_route, add_tenant, publish_template, store_policy
from app.desk.pause import Scope, pause
from app.ground.config import database_url
from simulator import DEVELOPMENT_ACCOUNT_SID, DEVELOPMENT_AUTH_TOKEN
from simulator.chance import hex_digits
from simulator.dialect import sign
from tests.awaiting import eventually
from tests.crash.town import SAMPLE, Town, keep_alive, request

SEED: Final = 7
"""The simulator's: with it the id of a number's first text is known before it is sent."""

# A database that refuses: no request of an application and no carrier's word reaches these by itself.
REFUSALS: Final = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF TG_TABLE_NAME = 'observation' THEN
        IF NOT EXISTS (SELECT FROM event e WHERE e.id = NEW.event_id AND e.subject LIKE 'deaf-%') THEN RETURN NEW; END IF;
    END IF;
    RAISE EXCEPTION 'refused by the test' USING ERRCODE = 'check_violation';
END $$;
CREATE TRIGGER refuse BEFORE INSERT ON event FOR EACH ROW WHEN (NEW.subject LIKE 'unkeepable-%') EXECUTE FUNCTION refuse();
CREATE TRIGGER refuse BEFORE INSERT ON observation FOR EACH ROW WHEN (NEW.source = 'receipt') EXECUTE FUNCTION refuse();
"""


WAITS: Final = {"not_found": "review", "horizon": "review", "waited": {"after": "3s", "then": "resend"}}


@dataclass(frozen=True, slots=True)
class Fate:
    """How an event must end, and how often its number may have been written to."""

    number: str
    outcomes: frozenset[str] = frozenset({"delivered"})
    text_counts: frozenset[int] = frozenset({1})


Events = dict[str, Fate]
"""By event id."""

# Nobody ever hears of it: a question to a person, whether it left or not.
ASKED: Final = (frozenset({"review"}), frozenset({0, 1}))
# It arrived; whether the question that was opened about it still stands depends on who died.
ARRIVED: Final = (frozenset({"delivered", "review"}), frozenset({1}))


@dataclass
class Trouble:
    """A town with everything in it that an ordinary day lacks."""

    town: Town
    early: Mapping[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """Numbers whose receipt came before their event, by what they are for."""
    _silent: Iterator[str] = field(default_factory=lambda: (f"+14165550{n}" for n in range(100, 200)))
    _subjects: Iterator[int] = field(default_factory=lambda: count(1))

    def begin(self, *, early_count: int) -> None:
        """Furnish what the troubles need; the receipts that must be some seconds old come now."""
        with psycopg.connect(self.town.database) as connection:
            connection.execute(REFUSALS)
        furnish_odd(self.town)
        self.town.live()
        for kind in (late, deaf):
            for _ in range(early_count):
                self.early[kind.__name__].append(self._told_early())

    def number(self) -> str:
        """Give a number of the route that sees far."""
        return next(self.town.numbers)

    def silent_number(self) -> str:
        """Give a number of the route whose horizon is a second away."""
        return next(self._silent)

    def subject(self, kind: str) -> str:
        """Name an occasion by what is wrong with it."""
        return f"{kind}-{next(self._subjects)}"

    def insert(self, *bodies: Mapping[str, Any], tenant: str = "crash") -> None:
        """Put events into the inlet together, so that one page takes them all."""
        with psycopg.connect(self.town.database) as booking:
            for body in bodies:
                booking.execute("INSERT INTO inlet (tenant, request) VALUES (%s, %s)", [tenant, json.dumps(body)])

    def accepted(self, body: Mapping[str, Any]) -> str:
        """Wait until the inlet gave an event, and name it."""

        def find() -> list[tuple[Any, ...]]:
            keep_alive(self.town)
            return self.town.sql("SELECT id FROM event WHERE subject = %s", body["subject"])

        return str(eventually(find, seconds=30)[0][0])

    def age(self, statement: str, event_id: str) -> None:
        """Let time pass for an event, as soon as it is so far that the statement finds it."""

        def aged() -> list[tuple[Any, ...]]:
            keep_alive(self.town)
            return self.town.sql(statement, event_id)

        eventually(aged, seconds=30)

    def write(self, number: str, text: str, *, signature: str | None, status: int) -> None:
        """Hand over what somebody writes, as a carrier that repeats itself until it is answered so."""
        url = self.town.sql("SELECT receipt_url FROM route WHERE name = 'far'")[0][0].replace("/v1/receipts/", "/v1/inbound/")
        form = {"MessageSid": f"SM{next(self._subjects)}", "From": number, "To": "+15005550006", "Body": text}
        headers = {"X-Twilio-Signature": signature or sign(DEVELOPMENT_AUTH_TOKEN, url, form)}
        eventually(partial(self._calls, status, url, form, headers), seconds=30)

    def _told_early(self) -> str:
        """Call with the receipt of a text that nobody has sent yet, as a carrier that keeps our reference to itself."""
        number = self.number()
        sid = "SM" + hex_digits(SEED, "sid", number, 1)
        eventually(partial(self.call, sid, number), seconds=30)
        return number

    def call(self, sid: str, number: str) -> bool:
        """Call as the carrier whose text arrived; False where nobody answered."""
        form = {"MessageSid": sid, "MessageStatus": "delivered", "To": number}
        url = self.town.sql("SELECT receipt_url FROM route WHERE name = 'far'")[0][0]
        headers = {"X-Twilio-Signature": sign(DEVELOPMENT_AUTH_TOKEN, url, form)}
        return self._calls(200, url, form, headers)

    def _calls(self, status: int, url: str, form: Mapping[str, str], headers: Mapping[str, str]) -> bool:
        keep_alive(self.town)
        try:
            return self.town.client.post(url, data=form, headers=headers).status_code == status
        except httpx.TransportError:
            return False


def furnish_odd(town: Town) -> None:
    """Add a tenant whose route never has two tokens at once, who waits for news, and whose offers an operator holds back."""
    raw = yaml.safe_load(SAMPLE.read_text())
    raw["categories"]["transactional"]["cooldown"] = "0s"
    for category in ("operational", "marketing"):
        del raw["categories"][category]["hours"]
    raw["categories"]["operational"] |= {"cooldown": "0s", "ambiguity": WAITS}
    now = datetime(2026, 11, 15, tzinfo=UTC)
    engine = create_engine(database_url(town.database))
    with Session(engine) as session:
        tenant_id = add_tenant(session, name="odd", now=now)
        store_policy(session, tenant_id=tenant_id, raw=raw, now=now)
        for name, category in (("class-opening", "transactional"), ("news", "operational"), ("offer", "marketing")):
            template = NewTemplate(name, category, ["class"], {"en": "A seat opened in {{ class }}."}, "en")
            publish_template(session, tenant_id=tenant_id, template=template, now=now)
        route = NewRoute(
            "narrow",
            "twilio",
            "+15005550006",
            {"base_url": town.carrier.url, "account_sid": DEVELOPMENT_ACCOUNT_SID, "first_check_seconds": "0.3"},
            {"auth_token": DEVELOPMENT_AUTH_TOKEN},
            # Room for two on a page, and a token for one.
            rate_per_second=4,
            burst_count=1,
        )
        add_route(session, tenant_id=tenant_id, route=route, public_url=town.environment["DAYBOOK_PUBLIC_URL"], now=now)
        pause(session, tenant_id=tenant_id, scope=Scope(category="marketing"), actor="test", reason="held back", now=now)
        session.commit()
    engine.dispose()


# Each lets a few events begin, and says how they must end.


def ordinary(trouble: Trouble) -> Events:
    """Begin a plain one, one of the inlet, one whose answer is lost, one that nobody ever hears of."""
    town = trouble.town
    plain, let_in, doubtful, silent = *(trouble.number() for _ in range(3)), trouble.silent_number()
    town.script(
        {"match": {"to": doubtful}, "then": {"accept": True, "respond": "drop", "receipts": "lost"}},
        {"match": {"to": silent}, "then": {"receipts": "lost", "path": [{"status": "sent", "after_ms": 10}]}},
    )
    events = {town.post(request(number)): Fate(number) for number in (plain, doubtful)}
    events[town.post(request(silent))] = Fate(silent, *ASKED)
    return events | {town.insert(request(let_in)): Fate(let_in)}


def vanished(trouble: Trouble) -> Events:
    """Begin one that the carrier takes, and never mentions again until its horizon."""
    number = trouble.silent_number()
    then = {"respond": "drop", "receipts": "lost", "listed": False, "polled": False}
    trouble.town.script({"match": {"to": number}, "then": then})
    return {trouble.town.post(request(number)): Fate(number, *ASKED)}


def untaken(trouble: Trouble) -> Events:
    """Begin one that the carrier breaks off and does not have: asked twice, it goes again."""
    number = trouble.number()
    trouble.town.script({"match": {"to": number, "nth": 1}, "then": {"accept": False, "respond": "drop"}})
    return {trouble.town.post(request(number)): Fate(number)}


def unheard(trouble: Trouble) -> Events:
    """Begin one that the carrier breaks off and does not have, of a kind that silence lets go again."""
    body = request(trouble.number(), template="news")
    trouble.town.script({"match": {"to": body["recipient"]["sms"], "nth": 1}, "then": {"accept": False, "respond": "drop"}})
    trouble.insert(body, tenant="odd")
    return {trouble.accepted(body): Fate(body["recipient"]["sms"])}


def forged(trouble: Trouble) -> Events:
    """Begin one whose receipts are not signed as they should be: polls tell."""
    number = trouble.number()
    trouble.town.script({"match": {"to": number}, "then": {"receipts": "wrong_signature"}})
    return {trouble.town.post(request(number)): Fate(number)}


def unspeakable(trouble: Trouble) -> Events:
    """Begin one whose answer the database cannot keep: no text of Postgres's holds a NUL."""
    number = trouble.number()
    body = '{"sid": "SM\\u0000", "status": "queued"}'
    trouble.town.script({"match": {"to": number}, "then": {"body": body, "receipts": "lost"}})
    return {trouble.town.post(request(number)): Fate(number, *ARRIVED)}


def overdue(trouble: Trouble) -> Events:
    """Begin one whose answer cannot be kept, and let its deadline be over."""
    events = unspeakable(trouble)
    (event_id,) = events
    trouble.age(
        """UPDATE attempt SET next_check_at = clock_timestamp() WHERE event_id = %s AND state = 'prepared'
           AND EXISTS (SELECT FROM review r WHERE r.attempt_id = attempt.id) RETURNING 1""",
        event_id,
    )
    return events


def crowded(trouble: Trouble) -> Events:
    """Begin two at once, on a route that has one token."""
    bodies = [request(trouble.number()) for _ in range(2)]
    trouble.insert(*bodies, tenant="odd")
    return {trouble.accepted(body): Fate(body["recipient"]["sms"]) for body in bodies}


def held_back(trouble: Trouble) -> Events:
    """Begin one whose time is over while an operator holds it."""
    body = request(trouble.number(), template="offer")
    trouble.insert(body, tenant="odd")
    event_id = trouble.accepted(body)
    trouble.age(
        "UPDATE intent SET expires_at = clock_timestamp() WHERE event_id = %s AND closed_at IS NULL RETURNING 1", event_id
    )
    return {event_id: Fate(body["recipient"]["sms"], frozenset({"expired"}), frozenset({0}))}


def unkeepable(trouble: Trouble) -> Events:
    """Put one that the database refuses into the inlet, before and behind good ones."""
    first, last = (request(trouble.number()) for _ in range(2))
    trouble.insert(first, request(trouble.number(), subject=trouble.subject("unkeepable")), last)
    return {trouble.accepted(body): Fate(body["recipient"]["sms"]) for body in (first, last)}


def late(trouble: Trouble) -> Events:
    """Begin one whose receipt came long before its answer."""
    number = trouble.early["late"].pop()
    trouble.town.script({"match": {"to": number}, "then": {"receipts": "lost"}})
    return {trouble.town.post(request(number)): Fate(number)}


def deaf(trouble: Trouble) -> Events:
    """Begin one whose receipt, come long before, the database refuses to have observed."""
    number = trouble.early["deaf"].pop()
    trouble.town.script({"match": {"to": number}, "then": {"receipts": "lost"}})
    return {trouble.town.post(request(number, subject=trouble.subject("deaf"))): Fate(number, *ARRIVED)}


def answered(trouble: Trouble) -> Events:
    """Begin one, and let the person write to us before it goes."""
    number = trouble.number()
    trouble.write(number, "See you there", signature=None, status=200)
    return {trouble.town.post(request(number)): Fate(number)}


def mimicked(trouble: Trouble) -> Events:
    """Let somebody hand over a text in a carrier's name; nothing follows."""
    trouble.write(trouble.number(), "STOP", signature="Zm9yZ2Vk", status=403)
    return {}


def locked(trouble: Trouble) -> Events:
    """Begin one whose receipt comes while somebody else holds its books."""
    number = trouble.number()
    trouble.town.script({"match": {"to": number}, "then": {"receipts": "lost"}})
    event_id = trouble.town.post(request(number))
    submitted = partial(trouble.town.sql, "SELECT remote_id FROM remote_id WHERE event_id = %s", event_id)
    sid = eventually(submitted, seconds=30)[0][0]
    waits = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    with psycopg.connect(trouble.town.database) as holder, ThreadPoolExecutor(1) as pool:
        holder.execute("SELECT FROM intent WHERE event_id = %s FOR UPDATE", [event_id])
        calling = pool.submit(trouble.call, sid, number)
        eventually(lambda: calling.done() or trouble.town.sql(waits), seconds=30)
        holder.commit()
    return {event_id: Fate(number)}


def called_off(trouble: Trouble) -> Events:
    """Begin one that waits and one that the carrier has in its queue, and call off what both are about."""
    town, subject, waits, left = trouble.town, trouble.subject("called-off"), trouble.number(), trouble.number()
    town.script({"match": {"to": left}, "then": {"receipts": "lost", "path": [{"status": "queued", "after_ms": 0}]}})
    not_before = town.sql("SELECT clock_timestamp() + interval '1 hour'")[0][0].isoformat()
    waiting = town.post(request(waits, subject=subject, not_before=not_before))
    handed_off = town.post(request(left, subject=subject))
    trouble.age("SELECT 1 FROM remote_id WHERE event_id = %s", handed_off)
    cancellation = {"type": "class.opening", "subject": subject, "reason": "seat filled"}
    headers = {"Authorization": f"Bearer {town.api_key}", "Idempotency-Key": subject}

    def cancelled() -> bool:
        try:
            url = f"http://127.0.0.1:{town.port}/v1/cancellations"
            return town.client.post(url, json=cancellation, headers=headers).is_success
        except httpx.TransportError:
            keep_alive(town)
            return False

    eventually(cancelled, seconds=30)
    return {
        waiting: Fate(waits, frozenset({"cancelled"}), frozenset({0})),
        handed_off: Fate(left, frozenset({"failed"})),
    }


Provoke = Callable[[Trouble], Events]

# What an ordinary day does not pass: for each writing call of the label's function, in their order,
# who provokes it, and at which passing it is certainly that call's turn.
PROVOKED: Final[Mapping[str, Sequence[tuple[Provoke, int]]]] = {
    "desk.cancellation._close_page": [(called_off, 1)],
    "desk.cancellation._cut": [(called_off, 1)],
    "flows.carrier_cancel._claim": [(called_off, 1)],
    "flows.carrier_cancel._write": [(called_off, 1)],
    "flows.handoff._with_tokens": [(crowded, 1)],
    "flows.inbound.act": [(answered, 1)],
    "flows.inbound.take_inbound": [(mimicked, 1), (answered, 1)],
    "flows.inlet._one_by_one": [(unkeepable, 1)],
    "flows.inlet._refuse_poison": [(unkeepable, 1)],
    "flows.inlet._take": [(ordinary, 1), (unkeepable, 1)],
    "flows.keep._review": [(unspeakable, 1)],
    "flows.poll.poll_page": [(ordinary, 1), (ordinary, 2), (untaken, 3)],
    "flows.receipts.observe_alone": [(locked, 1)],
    "flows.receipts.take_receipt": [(forged, 1)],
    "flows.reconcile.deadlines._doubt": [(overdue, 1)],
    "flows.reconcile.expiry._expire": [(held_back, 1)],
    "flows.reconcile.horizons.reach_horizons": [(vanished, 1)],
    "flows.reconcile.receipts._alone": [(deaf, 1)],
    "flows.reconcile.unheard._answer": [(unheard, 1)],
    "flows.reconcile.receipts.observe_waiting": [(late, 1)],
}
EVERYDAY: Final[Sequence[tuple[Provoke, int]]] = [(ordinary, 1)]


def all_of_them() -> list[Provoke]:
    """Give every provocation once."""
    return list(dict.fromkeys(provoke for calls in (EVERYDAY, *PROVOKED.values()) for provoke, _ in calls))


def outcomes_of(trouble: Trouble, events: Events) -> dict[str, str | None]:
    """Wait until every event has ended, and say how."""
    return {event_id: eventually(partial(trouble.town.outcome, event_id), seconds=90) for event_id in events}
