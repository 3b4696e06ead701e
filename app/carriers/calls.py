"""Receipt calls: what every adapter needs to build their URL and to take one apart."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TypeVar
from urllib.parse import parse_qsl, unquote_to_bytes

from app.carriers.base import Call

Text = TypeVar("Text", str, bytes)


def with_query(url: str, query: str) -> str:
    """Append our query to a route's public URL."""
    return f"{url}{'&' if '?' in url else '?'}{query}"


def header(call: Call, name: str) -> str | None:
    """Find a header, whatever case the server in front of us gave it."""
    wanted = name.lower()
    return next((value for key, value in call.headers.items() if key.lower() == wanted), None)


def query_values(call: Call) -> dict[str, str]:
    """Read the query; of a repeated name the first, which is ours."""
    return first_values(pairs(call.query))


def pairs(encoded: bytes) -> list[tuple[str, str]]:
    """Take a query or form apart, blank values kept; ValueError when it is not text."""
    return parse_qsl(encoded.decode(), keep_blank_values=True)


def first_bytes(call: Call) -> dict[bytes, bytes]:
    """Read the query without decoding it: a carrier may hand a text over in the charset that it came in."""
    fields = (field.partition(b"=") for field in reversed(call.query.replace(b"+", b" ").split(b"&")))
    return {unquote_to_bytes(name): unquote_to_bytes(value) for name, _, value in fields}


def first_values(fields: list[tuple[str, str]]) -> dict[str, str]:
    """Keep the first value of each name."""
    return dict(reversed(fields))


def same_call(*parts: str | None) -> str:
    """Make the key that repetitions of a call share: fixed in length, and nothing personal to read in it."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def need(fields: Mapping[Text, Text], *names: Text) -> Text:
    """Get the first of these fields that says something; KeyError when none does."""
    for name in names:
        if fields.get(name):
            return fields[name]
    raise KeyError(names[0])
