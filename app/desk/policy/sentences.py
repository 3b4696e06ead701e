"""The words in which a member of staff tells a customer why they were, or were not, contacted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from app.people.provenance import Act
from policy.words import AllowedBy, ErrorClass, Reason, SuppressedBy

# Read aloud, to the person: what it means for them, without blame and without a word of ours.
REASONS: Final[Mapping[str, str]] = {
    Reason.NOT_BEFORE: "It was asked for at a later time, and we waited for that.",
    Reason.OUTSIDE_WINDOW: "Where you may be it was outside the hours at which we may contact you, so we waited.",
    Reason.BANNED_WEEKDAY: "We do not give out this kind of message on that day of the week, so we waited for the next good day.",
    Reason.BANNED_DATE: "We do not give out this kind of message on that date, so we waited for the next good day.",
    Reason.COOLDOWN: "You had a message of this kind a short while before, so we left you alone for a time.",
    Reason.FREQUENCY_CAP: "You had as many messages as our rules allow in that time, so we left you alone for a while.",
    Reason.RETRY: "A first try did not reach you, as far as we can know, and our rules allow another.",
    Reason.PAUSED: "One of our operators had stopped messages of this kind for a while.",
    Reason.ROUTE_STOPPED: "Our connection to the carrier was stopped, so we waited for it.",
    Reason.RATE_LIMITED: "Many messages were due at once, and yours waited for its turn.",
    Reason.SPEND_CAP: "We had spent as much on that day as we allow ourselves, so yours waited for the next one.",
    Reason.SPEND_BREAKER: "Unusually much was going out in your country, so we stopped to have somebody look at it.",
    Reason.NO_POLICY: "We had no rules in force that allow this kind of message, and without such rules we contact nobody.",
    Reason.LIMITS_UNREACHABLE: "A part of our system that keeps messages from going out too fast was away, so we waited for it.",
    Reason.EARLIER_ATTEMPT: "The carrier told us that it has an earlier message for you after all, so we did not try again.",
    Reason.COUNTRY_BLOCKED: "Our rules do not let us contact numbers of your country.",
    Reason.NUMBER_TYPE_BLOCKED: "Your number is of a kind, such as a land line, that our rules do not let us contact so.",
    Reason.OPTED_OUT: "You asked us not to contact you, or your carrier told us so, and we did not.",
    Reason.NOT_WANTED: "You chose not to get this kind of message, and we did not contact you.",
    Reason.NO_CONSENT: "For this kind of message we need your consent and had none that is good, so we did not contact you.",
    Reason.SENDER_NOT_ALLOWED: "In your country our rules ask for another sender than we have, so we did not contact you.",
    Reason.TOO_MANY_SEGMENTS: "The text was longer than our rules allow, so we did not contact you.",
    Reason.TOO_EXPENSIVE: "The message would have cost more than our rules allow, so we did not contact you.",
    Reason.NO_COMMON_WINDOW: "We do not know which time zone you are in, and no hour was a good one in all that are possible.",
    Reason.NO_ROUTE: "We have no carrier that serves your country.",
    Reason.EXPIRED: "By the time at which we could have contacted you the message no longer mattered, so we did not.",
    Reason.WOULD_EXPIRE: "The next time at which we may contact you was too late for this message, so we did not.",
    Reason.CANCELLED: "It was cancelled before it went out.",
    Reason.DELIVERED: "The carrier says that it reached your phone.",
    Reason.TIMED_OUT: "The carrier did not answer us in time, so we cannot tell whether it took the message.",
    Reason.UNREADABLE_ANSWER: "We could not read the carrier's answer, so we cannot tell whether it took the message.",
    Reason.CARRIER_FAULT: "The carrier had a fault, so we cannot tell whether it took the message.",
    Reason.CARRIER_UNSURE: "The carrier itself does not know whether it reached you.",
    Reason.UNKNOWN_WORD: "The carrier gave a status that we do not know.",
    Reason.NO_ANSWER: "Our side was interrupted at that moment, so we cannot tell whether the carrier took the message.",
    Reason.NO_RECEIPT: "The carrier does not tell us reliably whether messages arrive, and told us nothing about this one.",
    Reason.HORIZON: "We asked the carrier for as long as it can be asked, and heard nothing.",
    Reason.NOT_FOUND: "We asked the carrier twice, and it does not know this message.",
    Reason.NOT_HEARD: "We heard nothing more of this message for as long as our rules wait for a word.",
    Reason.SETTLED: "Nobody told us how it ended, and one of our people noted that it did not reach you.",
    Reason.LOST_LEASES: "Our side failed several times with this message, and a person is looking at it.",
    Reason.ARTIFACT_MISMATCH: "The text was no longer the one that was agreed, so we held it for a person to look at.",
    ErrorClass.PERMANENT_RECIPIENT: "The carrier says that your number cannot be reached.",
    ErrorClass.PERMANENT_CONTENT: "The carrier refused the text of the message.",
    ErrorClass.TRANSIENT: "The carrier could not take the message at that moment.",
    ErrorClass.THROTTLED: "The carrier asked us to slow down, and did not take the message then.",
    ErrorClass.AUTH_CONFIG: "The carrier refused our account, and did not take the message.",
    ErrorClass.NOT_HANDED_OFF: "The message did not leave our side that time.",
    ErrorClass.BOUNCED_LATE: "The carrier took the message, and could not bring it to you.",
    ErrorClass.UNCLASSIFIED: "The carrier could not bring it to you, and gave a code that we do not know.",
}

# How it came about that somebody is not to be contacted.
SOURCES: Final[Mapping[str, str]] = {
    SuppressedBy.KEYWORD: "You wrote to us that you do not want our messages.",
    SuppressedBy.CARRIER: "Your carrier told us that you do not want our messages.",
    SuppressedBy.OPERATOR: "One of our people noted that you do not want our messages.",
    SuppressedBy.API: "The service that you use told us that you do not want our messages.",
    SuppressedBy.BOUNCE: "Your address could not be reached, for good.",
    SuppressedBy.COMPLAINT: "You complained about a message of ours.",
    SuppressedBy.ONE_CLICK: "You followed the link that stops our messages.",
    SuppressedBy.WRONG_NUMBER: "We were told that this is not the number of the person whom we meant.",
    SuppressedBy.LEGAL: "For a legal reason we do not contact you.",
}

# What is written down later than this was told to us, not heard by us.
AT_ONCE: Final = timedelta(minutes=1)

# Why there was another try: what is told of the attempt that followed one before it.
FOLLOWED: Final[Mapping[str, str]] = {
    AllowedBy.RETRY: "The one before failed for certain, and was tried again.",
    AllowedBy.NOT_FOUND: "The carrier, asked twice, did not know the one before, and our rules allow another then.",
    AllowedBy.WAITED: "Nothing was heard of the one before for as long as our rules wait, and they allow another then.",
    AllowedBy.PERSON: "One of our operators decided to try again.",
}

# What each rule asks, so that "no objection" and "not yet" answer it.
RULES: Final[Mapping[str, str]] = {
    "in_force": "Are there rules in force that speak of this kind of message?",
    "country": "May numbers of your country be contacted?",
    "number": "May numbers of this kind be contacted?",
    "suppression": "Did you leave it open to us to contact you?",
    "preference": "Do you want this kind of message?",
    "consent": "Have you agreed to this kind of message, where that is needed?",
    "route": "Is there a carrier that serves you?",
    "sender": "Do we have the kind of sender that your country asks for?",
    "price": "Is the text short and cheap enough?",
    "expiry": "Does the message still matter?",
    "cooldown": "Have you been left alone for long enough?",
    "caps": "Have you had fewer messages than are allowed in a time?",
    "spend": "Was there something left of what may be spent in a day?",
    "not_before": "Has the time come for which it was asked?",
    "window": "Is it a good hour wherever you may be?",
    "all": "Is there a moment that suits all of these rules?",
}

# Which facts each rule looks at: evidence keeps every fact once, and with a rule only what is not among them.
LOOKS_AT: Final[Mapping[str, tuple[str, ...]]] = {
    "in_force": ("channel", "category"),
    "country": ("country",),
    "number": ("number_type",),
    "suppression": ("suppressions",),
    "preference": ("preferences",),
    "consent": ("consents", "basis"),
    "route": ("route_available",),
    "sender": ("sender_type",),
    "price": ("segment_count",),
    "expiry": ("accepted_at", "expires_at"),
    "cooldown": ("cooldown_until", "cooldown_holder"),
    "caps": ("contacted",),
    "spend": ("spent",),
    "not_before": ("not_before",),
    "window": ("zones", "zone_source", "recipient_version", "subdivisions"),
    "all": (),
}


def source_of_zone(facts: Mapping[str, Any]) -> str:
    """Say where the evidence has the person's time zone from."""
    source: str = facts.get("zone_source", "none")
    version = facts.get("recipient_version")
    return source if version is None else f"{source} by the stored recipient, version {version}"


def sentence_of(reason: str | None) -> str | None:
    """Give the sentence of a reason; one that has none is told by its code."""
    return None if reason is None else REASONS.get(reason, f"The reason has the code {reason}.")


def question_of(rule: str) -> str:
    """Give the question that a rule asks; one that has none is told by its name."""
    return RULES.get(rule, f"What does the rule {rule} say?")


def provenance_of(act: Act, *, clock: Callable[[datetime], str]) -> str:
    """Say when, how and by which message or act somebody came not to be contacted, how far that reaches, and what lifted it."""
    parts = [SOURCES.get(act.source, f"The source has the code {act.source}."), f"That was {clock(act.at)}{_told(act, clock)}."]
    parts += [told] if (told := _cause(act)) else []
    if act.reason:
        parts.append(f"The reason: {act.reason.rstrip('.')}.")
    parts.append(f"It is about {_reach(act)}.")
    if act.lifted_at is not None:
        parts.append(f"It was lifted {clock(act.lifted_at)}, by {act.lifted_by}.")
    return " ".join(parts)


def _told(act: Act, clock: Callable[[datetime], str]) -> str:
    return f", and we were told so {clock(act.recorded_at)}" if act.recorded_at - act.at > AT_ONCE else ""


def _cause(act: Act) -> str | None:
    if act.cause is None:
        return None
    match act.cause.kind:
        case "report":
            code = f", with the code {act.cause.error_code}" if act.cause.error_code else ""
            return f"It is what the carrier said of attempt {act.cause.attempt_id}{code}."
        case "inbound":
            return f"It is the text {act.cause.id}."
    return f"It was put down by {act.recorded_by}, in the action {act.cause.id}."


def _reach(act: Act) -> str:
    if act.category is not None:
        return f"messages of the category {act.category}"
    return "everything, whatever the rules say" if act.everything else "messages of every category"
