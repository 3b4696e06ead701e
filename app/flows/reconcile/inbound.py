"""Texts that are kept but not acted on: left behind by a process or a database that went away."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from psycopg import Error as PsycopgError
from sqlalchemy.exc import DBAPIError

from app.flows.inbound import act
from app.flows.routes import find_route
from app.ground.db import CommitUnknown, DatabaseAway, rows, transact
from app.ground.errors import DaybookError
from app.ground.log import log
from app.ledger.inbound import WAITING

# The handler acts at once; what is older was left behind.
LEFT_BEHIND_AFTER: Final = timedelta(seconds=5)
PAGE: Final = 200


def act_on_waiting() -> int:
    """Act on a page of texts that nobody has acted on; return how many."""
    waiting = transact(lambda tx: rows(tx.session, WAITING, before=tx.now - LEFT_BEHIND_AFTER, limit=PAGE))
    for told in waiting:
        route = find_route(told.route_id)
        try:
            if route is not None:
                act(told.id, route)
        except (DatabaseAway, CommitUnknown):
            raise  # of no text's making: the next sweep goes on
        except (DaybookError, DBAPIError, PsycopgError) as error:
            # One that the books refuse must not stop the others; doctor names what goes on waiting.
            log.error("inbound_poison", inbound_id=str(told.id), cause=type(error).__name__)
    return len(waiting)
