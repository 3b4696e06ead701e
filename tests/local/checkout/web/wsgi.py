"""A stand-in for the web edge: ready as soon as it is asked."""

from collections.abc import Callable, Iterable
from typing import Any


def app(environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
    """Answer readiness."""
    found = environ["PATH_INFO"] == "/health/ready"
    start_response("200 OK" if found else "404 Not Found", [])
    return [b"ready"]
