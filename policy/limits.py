"""How often and how dear: caps on messages in a rolling window, prices per segment, and a cap on one message."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Final

from policy.reading import Node
from policy.words import Channel

_AMOUNT: Final = re.compile(r"[0-9]{1,6}(\.[0-9]{1,6})?")
_COUNTRY: Final = re.compile(r"[A-Z]{2}")  # also XK, which phone numbers know and ISO 3166-1 does not
_CURRENCY: Final = re.compile(r"[A-Z]{3}")


class Per(StrEnum):
    """What a cap counts together, always of one person."""

    SUBJECT = "subject"
    CATEGORY = "category"
    PERSON = "person"


@dataclass(frozen=True, slots=True)
class Cap:
    """At most `limit` handoffs within any span of `window`."""

    limit: int
    window: timedelta
    per: Per


@dataclass(frozen=True, slots=True)
class Price:
    """What one segment, or one message, costs; never a float."""

    amount: Decimal
    currency: str

    def __str__(self) -> str:
        return f"{self.amount} {self.currency}"


@dataclass(frozen=True, slots=True)
class MessageCap:
    """The most that one message may take: segments, price, or either."""

    max_segments: int | None
    max_price: Decimal | None
    """In the one currency that the document speaks of."""


def read_caps(node: Node) -> tuple[Cap, ...]:
    """Read a list of caps; none where it was left out."""
    return () if node.is_absent() else tuple(map(_cap, node.items()))


def _cap(node: Node) -> Cap:
    fields = node.fields(required=("limit", "window", "per"))
    return Cap(fields["limit"].whole(at_least=1), fields["window"].duration(), fields["per"].word(Per))


def read_price(node: Node) -> Price | None:
    """Read the price of a segment."""
    if node.is_absent():
        return None
    fields = node.fields(required=("amount", "currency"))
    return Price(read_amount(fields["amount"]), _currency(fields["currency"]))


def _currency(node: Node) -> str:
    currency = node.text()
    if currency and not _CURRENCY.fullmatch(currency):
        node.wrong("must be a currency's three capital letters (ISO 4217)")
    return currency


def read_country(node: Node) -> str:
    """Read a country's letters."""
    country = node.text()
    if country and not _COUNTRY.fullmatch(country):
        node.wrong("must be a country's two capital letters (ISO 3166-1 alpha-2)")
    return country


def read_prices(node: Node) -> dict[tuple[Channel, str], Price]:
    """Read what a segment costs by channel and country, all in one currency."""
    if node.is_absent():
        return {}
    fields = node.fields(required=("currency",), optional=tuple(Channel))
    currency = _currency(fields["currency"])
    given = {channel: fields[channel] for channel in Channel if not fields[channel].is_absent()}
    return {
        (channel, read_country(country)): Price(read_amount(amount), currency)
        for channel, prices in given.items()
        for country, amount in prices.entries()
    }


def read_message_cap(node: Node) -> MessageCap | None:
    """Read a cap per message."""
    if node.is_absent():
        return None
    fields = node.fields(required=(), optional=("max_segments", "max_price"))
    segments, most = fields["max_segments"], fields["max_price"]
    if segments.is_absent() and most.is_absent():
        node.wrong("must name max_segments, max_price or both")
    return MessageCap(
        max_segments=None if segments.is_absent() else segments.whole(at_least=1),
        max_price=None if most.is_absent() else read_amount(most),
    )


def read_amount(node: Node) -> Decimal:
    """Read an amount of money, which is written as a decimal in quotes."""
    if not isinstance(node.value, str) or not _AMOUNT.fullmatch(node.value):
        node.wrong('must be a decimal in quotes such as "0.0079"')
        return Decimal()
    return Decimal(node.value)
