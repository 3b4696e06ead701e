"""The script of faults as JSON: read strictly, whole or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from simulator.reading import Fields, RulesRefused, any_text, flag, items, number, text, whole, word
from simulator.rules import (
    ANSWER_AFTER_MS,
    HANG_FOR_MS,
    NORMAL,
    NORMAL_PATH,
    PRESETS,
    TRUE_TO_PRESET,
    Cancels,
    Match,
    Occasion,
    ReceiptLine,
    Respond,
    Rule,
    Signature,
    StepLine,
    Then,
    path_of,
)

DAY_MS = 86_400_000
BETWEEN_STEPS_MS = 50.0
FIRST_ERROR = 400

# The HTTP status that goes with a code; every other code is a 400.
STATUS_OF_CODE = {20003: 401, 20404: 404, 20429: 429, 20500: 500, 20503: 503}

Milliseconds = partial(number, 0, DAY_MS)
code = whole(10_000, 99_999)


def parse_rules(value: object) -> tuple[Rule, ...]:
    """Read a list of rules; RulesRefused names the first mistake, and nothing of the list is used."""
    return items(_rule)(value, "rules")


def _rule(value: object, at: str) -> Rule:
    fields = Fields(value, at)
    match = fields.take("match", _match, Match())
    rule = Rule(match, fields.find("times", whole(1, 10**9)), fields.get("then", partial(_then, on=match.on)))
    fields.end()
    return rule


def _match(value: object, at: str) -> Match:
    fields = Fields(value, at)
    match = Match(
        on=fields.take("on", word(Occasion), Occasion.SEND),
        to=fields.find("to", _number_or_prefix),
        body_contains=fields.find("body_contains", text),
        nth=fields.find("nth", whole(1, 10**9)),
        every=fields.find("every", whole(1, 10**9)),
        probability=fields.find("probability", number(0, 1)),
    )
    fields.end()
    if match.nth is not None and match.on is not Occasion.SEND:
        raise RulesRefused(f"{at}.nth: counts what is sent to a number, so it goes with sends only")
    return match


def _number_or_prefix(value: object, at: str) -> str:
    pattern = text(value, at)
    digits = pattern.removesuffix("*").removeprefix("+")
    if not pattern.startswith("+") or not (digits.isdecimal() or pattern == "+*"):
        raise RulesRefused(f"{at}: a number like +12015550123 or a prefix like +1201* is wanted")
    return pattern


def _then(value: object, at: str, *, on: Occasion) -> Then:
    fields = Fields(value, at)
    status, refusal = fields.find("status", whole(200, 599)), fields.find("code", code)
    if status is None and refusal is not None:
        status = STATUS_OF_CODE.get(refusal, FIRST_ERROR)
    refuses = status is not None and status >= FIRST_ERROR
    accept = fields.take("accept", flag, default=not refuses)
    receipts, path = _outcome(fields, at)
    then = Then(
        accept=accept,
        respond=fields.take("respond", word(Respond), Respond.ANSWER),
        status=status,
        code=refusal,
        message=fields.find("message", text),
        body=fields.find("body", any_text),
        retry_after=fields.find("retry_after", whole(0, 86_400)),
        latency_ms=fields.take("latency_ms", _range, (ANSWER_AFTER_MS, ANSWER_AFTER_MS)),
        hang_ms=fields.take("hang_ms", Milliseconds(), HANG_FOR_MS),
        receipts=receipts,
        path=path,
        listed=fields.take("listed", flag, default=True),
        listed_after_ms=fields.take("listed_after_ms", Milliseconds(), 0.0),
        polled=fields.take("polled", flag, default=True),
        cancels=fields.take("cancels", word(Cancels), Cancels.OBEYED),
    )
    fields.end()
    _refuse_contradictions(value, then, at, on=on)
    return then


# What a message does after it was taken, which a rule about anything else cannot change.
AFTERWARDS = ("receipts", "path", "late_ms", "listed", "listed_after_ms", "polled", "cancels")


def _refuse_contradictions(value: object, then: Then, at: str, *, on: Occasion) -> None:
    given = value if isinstance(value, Mapping) else {}
    for name in AFTERWARDS:
        if name in given and not then.accept:
            raise RulesRefused(f"{at}.{name}: goes with a message that is accepted")
        if name in given and on is not Occasion.SEND:
            raise RulesRefused(f"{at}.{name}: goes with sends only")
    if "accept" in given and on is not Occasion.SEND:
        raise RulesRefused(f"{at}.accept: goes with sends only")
    if then.code is not None and then.status is not None and then.status < FIRST_ERROR:
        raise RulesRefused(f"{at}.code: goes with a status from {FIRST_ERROR} on")
    if then.respond in (Respond.DROP, Respond.CLOSE, Respond.HANG) and {"status", "code", "body"} & given.keys():
        raise RulesRefused(f"{at}.respond: {then.respond} gives no answer, so no status, code or body goes with it")
    if then.respond in (Respond.GARBAGE, Respond.EMPTY) and then.status is not None and then.status >= FIRST_ERROR:
        raise RulesRefused(f"{at}.respond: {then.respond} goes with a 2xx; give status and body instead")
    if then.respond is Respond.ANSWER and not then.accept and then.status is None and on is Occasion.SEND:
        raise RulesRefused(f"{at}.accept: an answer to a message that is not accepted needs a status or a code")


def _outcome(fields: Fields, at: str) -> tuple[tuple[ReceiptLine, ...], tuple[StepLine, ...]]:
    name, lines = fields.take("receipts", _receipts, _Named("normal", NORMAL))
    late_ms = fields.take("late_ms", Milliseconds(), 0.0)
    path = fields.find("path", items(_step))
    if path is None:
        lies = name is not None and name not in TRUE_TO_PRESET
        path = NORMAL_PATH if lies else path_of(lines) or NORMAL_PATH
    if late_ms and any(line.before_answer for line in lines):
        raise RulesRefused(f"{at}.late_ms: a receipt before the answer cannot be late")
    return tuple(replace(line, after_ms=line.after_ms + late_ms) for line in lines), path


class _Named(NamedTuple):
    name: str | None
    lines: tuple[ReceiptLine, ...]


def _receipts(value: object, at: str) -> _Named:
    if isinstance(value, list):
        return _Named(None, tuple(_receipt(item, f"{at}[{index}]", index=index) for index, item in enumerate(value)))
    if not isinstance(value, str) or value not in PRESETS:
        raise RulesRefused(f"{at}: a list, or one of {', '.join(PRESETS)} is wanted")
    return _Named(value, PRESETS[value])


def _receipt(value: object, at: str, *, index: int) -> ReceiptLine:
    fields = Fields(value, at)
    line = ReceiptLine(
        status=fields.get("status", text),
        after_ms=fields.take("after_ms", Milliseconds(), BETWEEN_STEPS_MS * (index + 1)),
        error_code=fields.find("error_code", code),
        copies=fields.take("copies", whole(1, 100), 1),
        apart_ms=fields.take("apart_ms", Milliseconds(), 10.0),
        lost=fields.take("lost", flag, default=False),
        before_answer=fields.take("before_answer", flag, default=False),
        signature=fields.take("signature", word(Signature), Signature.RIGHT),
        without=fields.take("without", items(text), ()),
        token=fields.take("token", flag, default=True),
    )
    fields.end()
    return line


def _step(value: object, at: str) -> StepLine:
    fields = Fields(value, at)
    step = StepLine(
        status=fields.get("status", text),
        after_ms=fields.get("after_ms", Milliseconds()),
        error_code=fields.find("error_code", code),
    )
    fields.end()
    return step


def _range(value: object, at: str) -> tuple[float, float]:
    if not isinstance(value, list):
        exact = number(0, DAY_MS)(value, at)
        return exact, exact
    bounds = items(number(0, DAY_MS))(value, at)
    if len(bounds) != 2 or bounds[0] > bounds[1]:  # noqa: PLR2004  a range has two ends
        raise RulesRefused(f"{at}: a number, or two in ascending order, is wanted")
    return bounds[0], bounds[1]
