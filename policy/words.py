"""The words of the books: channels, categories, verdicts, reasons, error classes."""

from __future__ import annotations

from enum import StrEnum


class Channel(StrEnum):
    """A way to reach a person."""

    SMS = "sms"


class Category(StrEnum):
    """What a message is for; declared by its template, never by the caller."""

    OTP = "otp"
    TRANSACTIONAL = "transactional"
    OPERATIONAL = "operational"
    MARKETING = "marketing"


class Lane(StrEnum):
    """A priority class with its own queue and workers."""

    OTP = "otp"
    URGENT = "urgent"
    BULK = "bulk"


LANES = {
    Category.OTP: Lane.OTP,
    Category.TRANSACTIONAL: Lane.URGENT,
    Category.OPERATIONAL: Lane.BULK,
    Category.MARKETING: Lane.BULK,
}


class NumberType(StrEnum):
    """What a number's plan says it is for; the words of the number library, in lower case."""

    MOBILE = "mobile"
    FIXED_LINE_OR_MOBILE = "fixed_line_or_mobile"
    FIXED_LINE = "fixed_line"
    VOIP = "voip"
    TOLL_FREE = "toll_free"
    PREMIUM_RATE = "premium_rate"
    SHARED_COST = "shared_cost"
    PERSONAL_NUMBER = "personal_number"
    PAGER = "pager"
    UAN = "uan"
    VOICEMAIL = "voicemail"
    UNKNOWN = "unknown"


class SuppressedBy(StrEnum):
    """Where a suppression, or its lift, comes from."""

    KEYWORD = "keyword"
    CARRIER = "carrier"
    OPERATOR = "operator"
    API = "api"
    BOUNCE = "bounce"
    COMPLAINT = "complaint"
    ONE_CLICK = "one_click"
    WRONG_NUMBER = "wrong_number"
    LEGAL = "legal"


class Verdict(StrEnum):
    """What a pinned policy version said about an intent at a moment."""

    ALLOW = "allow"
    DEFER = "defer"
    SUPPRESS = "suppress"


class ErrorClass(StrEnum):
    """Why an attempt failed, in our words; each carrier's codes map onto these."""

    PERMANENT_RECIPIENT = "permanent_recipient"
    PERMANENT_CONTENT = "permanent_content"
    OPTED_OUT = "opted_out"
    TRANSIENT = "transient"
    THROTTLED = "throttled"
    AUTH_CONFIG = "auth_config"
    NOT_HANDED_OFF = "not_handed_off"
    BOUNCED_LATE = "bounced_late"
    ARTIFACT_MISMATCH = "artifact_mismatch"
    UNCLASSIFIED = "unclassified"


# The carrier did not take it, for certain: such an end frees the gate and the intent's key, and
# does not count against the maximum of attempts.
NOT_TAKEN = frozenset({ErrorClass.NOT_HANDED_OFF, ErrorClass.THROTTLED, ErrorClass.AUTH_CONFIG})


class AllowedBy(StrEnum):
    """What let an attempt follow another one; kept with it, so that a second text can be explained."""

    RETRY = "retry"
    """The one before failed for certain, and is tried again."""
    NOT_FOUND = "not_found"
    """A conclusive look-up, asked twice, did not find it, and `ambiguity.not_found` says resend."""
    WAITED = "waited"
    """Nothing at all was heard of it for as long as `ambiguity.waited` says, which then says resend."""
    PERSON = "person"
    """Somebody decided so, under their name."""


# Where a policy version says so; what a person decides stands in no version.
RULE_OF = {
    AllowedBy.RETRY: "retry",
    AllowedBy.NOT_FOUND: "ambiguity.not_found",
    AllowedBy.WAITED: "ambiguity.waited",
    AllowedBy.PERSON: "a person",
}


class Source(StrEnum):
    """Where an observation comes from."""

    ANSWER = "answer"
    RECEIPT = "receipt"
    POLL = "poll"
    LOOKUP = "lookup"
    OPERATOR = "operator"
    RECONCILE = "reconcile"


class Settlement(StrEnum):
    """How a person settles an open question."""

    DELIVERED = "delivered"
    FAILED = "failed"
    RESEND = "resend"
    """Try again, at the price of a possible second text; a parked row is let go."""
    LEAVE = "leave"
    """Leave it in doubt, for good; what is still heard counts."""


class Found(StrEnum):
    """What a cancellation found of an event on one channel; each is exactly one."""

    CANCELLED = "cancelled"
    HANDED_OFF = "handed_off"
    JOINED = "joined"
    CLOSED = "closed"
    EXCEPTED = "excepted"


class Reason(StrEnum):
    """The published catalogue: every public state's reason is one of these or an error class."""

    # waiting
    NOT_BEFORE = "not_before"
    OUTSIDE_WINDOW = "outside_window"
    BANNED_WEEKDAY = "banned_weekday"
    BANNED_DATE = "banned_date"
    COOLDOWN = "cooldown"
    FREQUENCY_CAP = "frequency_cap"
    RETRY = "retry"
    PAUSED = "paused"
    ROUTE_STOPPED = "route_stopped"
    RATE_LIMITED = "rate_limited"
    SPEND_CAP = "spend_cap"
    SPEND_BREAKER = "spend_breaker"
    NO_POLICY = "no_policy"
    LIMITS_UNREACHABLE = "limits_unreachable"
    EARLIER_ATTEMPT = "earlier_attempt"
    # not contacted
    COUNTRY_BLOCKED = "country_blocked"
    NUMBER_TYPE_BLOCKED = "number_type_blocked"
    OPTED_OUT = "opted_out"
    NOT_WANTED = "not_wanted"
    NO_CONSENT = "no_consent"
    SENDER_NOT_ALLOWED = "sender_not_allowed"
    TOO_MANY_SEGMENTS = "too_many_segments"
    TOO_EXPENSIVE = "too_expensive"
    NO_COMMON_WINDOW = "no_common_window"
    NO_ROUTE = "no_route"
    EXPIRED = "expired"
    WOULD_EXPIRE = "would_expire"
    CANCELLED = "cancelled"
    # in doubt, or settled
    DELIVERED = "delivered"
    TIMED_OUT = "timed_out"
    UNREADABLE_ANSWER = "unreadable_answer"
    CARRIER_FAULT = "carrier_fault"
    CARRIER_UNSURE = "carrier_unsure"
    UNKNOWN_WORD = "unknown_word"
    NO_ANSWER = "no_answer"
    NO_RECEIPT = "no_receipt"
    HORIZON = "horizon"
    NOT_FOUND = "not_found"
    SETTLED = "settled"
    NOT_HEARD = "not_heard"
    LOST_LEASES = "lost_leases"
    ARTIFACT_MISMATCH = "artifact_mismatch"


# code -> (meaning, what to do). Served at /v1/reasons and printed by `daybook trace`.
CATALOGUE: dict[str, tuple[str, str]] = {
    Reason.NOT_BEFORE: ("the event asked not to be sent before a time", "wait"),
    Reason.OUTSIDE_WINDOW: ("the policy allows this category only at certain local hours", "wait"),
    Reason.BANNED_WEEKDAY: ("the policy allows this category on certain local weekdays only", "wait"),
    Reason.BANNED_DATE: ("the policy does not allow this category on this local date", "wait"),
    Reason.COOLDOWN: ("this person was contacted in this category a short while ago", "wait"),
    Reason.FREQUENCY_CAP: ("this person was contacted as often as the policy allows for now", "wait"),
    Reason.RETRY: ("an earlier attempt came to nothing, as far as can be known, and the policy allows another", "wait"),
    Reason.PAUSED: ("an operator paused this tenant, lane or category", "resume when it is safe"),
    Reason.ROUTE_STOPPED: (
        "the route is stopped, by an operator or after a refused login",
        "set it right at the carrier or make a new route, then resume",
    ),
    Reason.RATE_LIMITED: ("the rate of the route, or of the tenant, is used up for the moment", "wait, or raise the rate"),
    Reason.SPEND_CAP: ("the tenant has spent what its policy allows for a day (UTC)", "wait, or publish a higher cap"),
    Reason.SPEND_BREAKER: (
        "the route has spent what the policy allows for an hour in this country, and is paused there",
        "see what is being sent, then resume",
    ),
    Reason.NO_POLICY: ("no policy version is in force", "publish one"),
    Reason.LIMITS_UNREACHABLE: ("the limits could not be read", "see that Redis answers"),
    Reason.EARLIER_ATTEMPT: ("the carrier says that it has an earlier attempt after all", "wait for its outcome"),
    Reason.COUNTRY_BLOCKED: ("the policy does not allow this country", "ask the policy's owner"),
    Reason.NUMBER_TYPE_BLOCKED: ("the policy does not allow numbers of this kind", "ask for a mobile number"),
    Reason.OPTED_OUT: ("the person asked not to be contacted, or the carrier says so", "do not contact"),
    Reason.NOT_WANTED: ("the person chose not to get this category", "do not contact, unless they choose again"),
    Reason.NO_CONSENT: ("the policy needs a consent that is not there, or has run out", "ask for consent by another way"),
    Reason.SENDER_NOT_ALLOWED: (
        "the policy does not allow the route's kind of sender here",
        "configure a route with another sender",
    ),
    Reason.TOO_MANY_SEGMENTS: ("the text takes more segments than the policy allows", "shorten the text"),
    Reason.TOO_EXPENSIVE: ("the text costs more than the policy allows for one message", "shorten the text"),
    Reason.NO_COMMON_WINDOW: ("no hour suits all of the person's possible time zones", "store the person's zone"),
    Reason.NO_ROUTE: ("no route serves this channel and country", "configure a route"),
    Reason.EXPIRED: ("the event's time ran out before a handoff", "post a new event if it still matters"),
    Reason.WOULD_EXPIRE: ("the next allowed moment lies after the event's end", "post it earlier, or let it live longer"),
    Reason.CANCELLED: ("the application or an operator cancelled it", "nothing"),
    Reason.DELIVERED: ("the carrier says that it reached the handset", "nothing"),
    Reason.TIMED_OUT: ("the carrier did not answer in time; it may have taken it", "wait for receipt, poll or look-up"),
    Reason.UNREADABLE_ANSWER: ("the carrier answered something we cannot read", "wait for receipt, poll or look-up"),
    Reason.CARRIER_FAULT: ("the carrier answered with a fault; it may have taken it", "wait for receipt, poll or look-up"),
    Reason.CARRIER_UNSURE: ("the carrier itself does not know the outcome", "wait, or settle it by hand"),
    Reason.UNKNOWN_WORD: ("the carrier used a status word we do not know", "tell the maintainers of the adapter"),
    Reason.NO_ANSWER: ("the worker went away between writing and reading", "wait for receipt, poll or look-up"),
    Reason.NO_RECEIPT: ("no outcome was heard before the horizon, on a route that gives none reliably", "nothing"),
    Reason.HORIZON: ("no outcome was heard before the horizon", "settle the review"),
    Reason.NOT_FOUND: ("the carrier, asked twice, does not know the message", "settle the review, or nothing if it is closed"),
    Reason.SETTLED: ("nobody heard how it ended, and a person settled it as failed", "nothing"),
    Reason.NOT_HEARD: (
        "nothing was heard of it for as long as the policy waits",
        "settle the review, or nothing if it is closed",
    ),
    Reason.LOST_LEASES: ("five workers in a row lost this row", "look at the workers' log, then settle the review"),
    Reason.ARTIFACT_MISMATCH: ("the text rendered at handoff is not the one that was accepted", "settle the review"),
    ErrorClass.PERMANENT_RECIPIENT: ("the carrier says that this number cannot be reached", "correct the number"),
    ErrorClass.PERMANENT_CONTENT: ("the carrier refuses this text", "change the template"),
    ErrorClass.TRANSIENT: ("refused for now; a new attempt may work", "nothing, the policy decides"),
    ErrorClass.THROTTLED: ("the carrier asked us to slow down and took nothing", "nothing, it goes again"),
    ErrorClass.AUTH_CONFIG: (
        "the carrier refuses our credentials or configuration",
        "set it right at the carrier, or make a new route",
    ),
    ErrorClass.NOT_HANDED_OFF: ("nothing left this machine", "nothing, it goes again"),
    ErrorClass.BOUNCED_LATE: ("refused after it had been taken", "correct the address"),
    ErrorClass.UNCLASSIFIED: ("failed with a code we do not know", "tell the maintainers of the adapter"),
}
