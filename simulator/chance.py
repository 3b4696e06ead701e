"""What looks like chance, and is the same for the same seed."""

from __future__ import annotations

from hashlib import blake2b


def draw(seed: int, *about: object) -> float:
    """Draw a number in [0, 1) for a seed and what it is about, whatever was drawn before."""
    return int.from_bytes(_digest(seed, about, size=8)) / 2**64


def hex_digits(seed: int, *about: object) -> str:
    """Draw 32 hexadecimal digits."""
    return _digest(seed, about, size=16).hex()


def _digest(seed: int, about: tuple[object, ...], *, size: int) -> bytes:
    return blake2b(repr((seed, about)).encode(), digest_size=size).digest()
