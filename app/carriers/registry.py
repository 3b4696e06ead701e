"""Which carriers there are, and the open one of each route."""

from __future__ import annotations

import os
from typing import Final

from app.carriers.base import Carrier, RouteSettings
from app.carriers.http import HttpCarrier, RouteMisconfigured
from app.carriers.kannel import Kannel
from app.carriers.null import Null
from app.carriers.twilio import Twilio
from app.ground.ids import RouteId

OVER_HTTP: Final[dict[str, type[HttpCarrier]]] = {"twilio": Twilio, "kannel": Kannel}
CARRIERS: Final[dict[str, type[HttpCarrier | Null]]] = {**OVER_HTTP, "null": Null}

# A route never changes, so what was opened for it stays right. By process: a forked child must not
# talk through its parent's sockets, and closing them there would end them for the parent as well.
_open: dict[tuple[int, RouteId], Carrier] = {}


def open_carrier(route: RouteSettings) -> Carrier:
    """Get the carrier of a route, opened once per process; safe from any thread."""
    key = (os.getpid(), route.id)
    if carrier := _open.get(key):
        return carrier
    if not (adapter := CARRIERS.get(route.carrier)):
        raise RouteMisconfigured(f"no carrier is called {route.carrier}")
    return _open.setdefault(key, adapter(route))
