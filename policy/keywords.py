"""What a person who answers a text wants of us: lenient towards those who want out, strict with those who want in.

Whole messages are matched, never parts of words: UNSTOP contains STOP, and so does "the bus stop is closed".
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from policy.words import SuppressedBy


class Word(StrEnum):
    """What a text asks for."""

    OPT_OUT = "opt_out"
    OPT_IN = "opt_in"
    HELP = "help"
    NONE = "none"


class Tier(StrEnum):
    """How sure the match is."""

    KEYWORD = "keyword"
    PHRASE = "phrase"
    TYPO = "typo"
    CONFIRM = "confirm"
    """A yes to a question of ours."""
    CARRIER = "carrier"
    """The carrier took it for one, whatever we read."""


class Scope(StrEnum):
    """How far a word reaches: what the policy lets an opt-out reach, or everything."""

    SENDER = "sender"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Match:
    """What was read out of one text; `review`: a person should read it, it may ask for more than was matched."""

    word: Word
    tier: Tier | None = None
    scope: Scope | None = None
    review: bool = False
    source: SuppressedBy = SuppressedBy.KEYWORD
    """What an opt-out is kept as: whose number is wrong never agreed to anything, and no word of theirs brings them back."""


# Phones quote what they react to, our own "Reply STOP" among it.
REACTION: Final = re.compile(
    r"\s*(Liked|Loved|Disliked|Laughed at|Emphasized|Questioned|Removed an? .{1,20} from|Reacted .{1,12} to)\s+[“\"]"
)
SIGNATURE: Final = re.compile(r"\s*(Sent from my|Envoyé de mon|Gesendet von|Enviado desde|--\s*$)", re.IGNORECASE)
APOSTROPHES: Final = re.compile("['\u2019\u2018\u02bc`\u00b4]")
NO_WORD: Final = re.compile(r"[\W_]+")
SPELLED: Final = re.compile(r"\b\w(?: \w){2,}\b")
"""Three letters or more that stand alone: S T O P."""


def plain(text: str) -> str:
    """Fold a text to lower-case words with one space between them, without accents, quoted lines and signatures."""
    joined = APOSTROPHES.sub("", text)  # before anything makes a space and an accent of one
    told = "".join(c for c in unicodedata.normalize("NFKC", joined) if unicodedata.category(c) != "Cf")
    lines = []
    for line in told.splitlines():
        if SIGNATURE.match(line):
            break
        if not line.lstrip().startswith(">"):
            lines.append(line)
    folded = " ".join(lines).replace("\u0130", "i").replace("\u0131", "i").casefold()
    # Composed again: Hangul would stay in pieces.
    bare = "".join(c for c in unicodedata.normalize("NFD", folded) if unicodedata.category(c) != "Mn")
    words = NO_WORD.sub(" ", unicodedata.normalize("NFC", bare)).strip()
    return SPELLED.sub(lambda spelled: spelled[0].replace(" ", ""), words)


def _words(*texts: str) -> frozenset[str]:
    return frozenset(map(plain, texts))


EVERYTHING: Final = _words("STOPALL", "STOP ALL")
OPT_OUT: Final = EVERYTHING | _words(
    *("STOP", "END", "CANCEL", "UNSUBSCRIBE", "QUIT", "REVOKE", "OPT OUT", "OPTOUT", "REMOVE", "TD"),
    *("ARRET", "ARRETE", "ARRETT"),
    *("ALTO", "PARAR", "BAJA", "CANCELAR", "NO MAS"),
    *("PARE", "SAIR"),
    *("STOPP", "ABMELDEN", "AVSLUTA", "AFMELDEN", "BASTA", "CANCELLA"),
    *("IPTAL", "RET", "СТОП", "수신거부", "停止", "退订", "הסר", "إلغاء", "توقف", "BERHENTI"),
)
OPT_IN: Final = _words("START", "UNSTOP")
HELP: Final = _words("HELP", "INFO", "AIDE", "AYUDA", "AJUDA")
YES: Final = _words("YES", "SI", "OUI", "JA")
FILLERS: Final = _words("please", "pls", "por favor", "svp", "now", "thanks")

PHRASES: Final = re.compile(
    r"\b("
    r"stop (?:all |the |these |those |your )*(?:texting|messaging|sending|contacting|calling|texts?|messages?|sms)"
    r"|(?:do not|dont|never) (?:ever )?(?:text|message|contact)"
    r"|remove me from|opt me out|unsubscribe me|no more (?:texts|messages|sms)|leave me alone"
    r"|revoke (?:my )?consent|no mas mensajes|ne menvoyez plus|keine sms mehr"
    r"|(?P<wrong>wrong number))\b"
)
NEGATIONS: Final = frozenset({"dont", "not", "cant", "cannot", "never", "wont", "didnt", "isnt", "wasnt"})
NEGATED_WITHIN: Final = 2

TYPOS: Final = frozenset({"stip", "stpo", "sotp", "tsop", "stoo", "sto", "sstop", "sttop", "st0p"})
# How many slips of the finger a long word may have; short ones are other words then: SHOP, STEP, POST.
SLIPS: Final = {"unsubscribe": 2, "cancel": 1, "optout": 1}
OPPOSITES: Final = ("subscribe", "resubscribe")
LONGEST_SLIP: Final = 20

# What stands before a noun, where the word after it asks for nothing: a bus stop, the end.
BEFORE_NOUNS: Final = _words(
    *("the", "a", "an", "this", "that", "bus", "train", "tram", "metro", "subway"),
    *("next", "last", "first", "final", "full", "pit", "non", "one", "dead"),
)


def match(text: str, *, awaiting_opt_in: bool = False) -> Match:
    """Say what a text asks for; `awaiting_opt_in`: we asked this person whether they want to be contacted."""
    if REACTION.match(text):
        return Match(Word.NONE)
    words = plain(text)
    if found := _keyword(words) or _confirmed(words, awaiting_opt_in=awaiting_opt_in) or _phrase(words) or _typo(words):
        return found
    return Match(Word.NONE, review=_may_ask(words.split()))


def _keyword(words: str) -> Match | None:
    if words in HELP:
        return Match(Word.HELP, Tier.KEYWORD)
    if words in OPT_IN:
        return Match(Word.OPT_IN, Tier.KEYWORD, Scope.SENDER)
    said = _split(words, OPT_OUT | HELP | OPT_IN | YES | FILLERS)
    if not said & OPT_OUT:  # beside others it beats everything
        return None
    return Match(Word.OPT_OUT, Tier.KEYWORD, Scope.ALL if said & EVERYTHING else Scope.SENDER)


def _split(words: str, known: frozenset[str]) -> frozenset[str]:
    """Take a text apart into known words of one or two parts, the longer first; nothing if anything else is in it."""
    said, left = set(), words.split()
    while left:
        size = next((n for n in (2, 1) if " ".join(left[:n]) in known and len(left) >= n), None)
        if size is None:
            return frozenset()
        said.add(" ".join(left[:size]))
        left = left[size:]
    return frozenset(said)


def _confirmed(words: str, *, awaiting_opt_in: bool) -> Match | None:
    if words not in YES:
        return None
    return Match(Word.OPT_IN, Tier.CONFIRM, Scope.SENDER) if awaiting_opt_in else Match(Word.NONE, review=True)


def _phrase(words: str) -> Match | None:
    meant = [found for found in PHRASES.finditer(words) if not _negated(words[: found.start()])]
    if not meant:
        return None
    if any(found["wrong"] for found in meant):
        return Match(Word.OPT_OUT, Tier.PHRASE, Scope.ALL, source=SuppressedBy.WRONG_NUMBER)
    return Match(Word.OPT_OUT, Tier.PHRASE, Scope.SENDER)


def _negated(before: str) -> bool:
    return not NEGATIONS.isdisjoint(before.split()[-NEGATED_WITHIN:])


def _typo(words: str) -> Match | None:
    if " " in words or len(words) > LONGEST_SLIP:
        return None
    near = any(
        _distance(words, word) <= slips and all(_distance(words, other) >= _distance(words, word) for other in OPPOSITES)
        for word, slips in SLIPS.items()
    )
    return Match(Word.OPT_OUT, Tier.TYPO, Scope.SENDER) if near or words in TYPOS else None


def _distance(one: str, other: str) -> int:
    """Count the letters that were left out, added, changed or swapped with their neighbour (Damerau and Levenshtein)."""
    before, last = list(range(len(other) + 1)), list(range(len(other) + 1))
    for i, a in enumerate(one, start=1):
        row = [i]
        for j, b in enumerate(other, start=1):
            cost = min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (a != b))
            if i > 1 and j > 1 and (a, one[i - 2]) == (other[j - 2], b):
                cost = min(cost, before[j - 2] + 1)
            row.append(cost)
        before, last = last, row
    return last[-1]


def _may_ask(words: list[str]) -> bool:
    """Say whether an opt-out word may be meant: no list has all the words by which people ask to be left alone."""
    for at in range(len(words)):
        asks = words[at] in OPT_OUT or " ".join(words[at : at + 2]) in OPT_OUT
        if asks and not _negated(" ".join(words[:at])) and words[max(0, at - 1)] not in BEFORE_NOUNS:
            return True
    return False
