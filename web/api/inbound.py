"""Inbound: what people wrote, by a cursor that skips nothing."""

from __future__ import annotations

from typing import Final

from flask_smorest import Blueprint

from app.ground.db import Tx, transact
from app.ledger.inbox import place, read_inbox
from web.auth import Caller, as_caller
from web.describe import Operation, operation
from web.reading import later, read_query
from web.schemas.inbound import InboundQuerySchema, InboxSchema

blueprint = Blueprint("inbound", __name__, description="What people wrote.")

GET: Final = Operation(
    answers={200: InboxSchema},
    scope="history:read",
    codes=("unknown_cursor", "invalid_field", "unknown_field", "invalid_request"),
    query=InboundQuerySchema,
)


@operation(blueprint, "/v1/inbound", GET)
def get_inbound() -> object:
    """Read what people wrote to the tenant's numbers after a cursor, of one recipient if named."""
    asked = later(lambda: read_query(InboundQuerySchema()))
    caller, query = as_caller(GET.scope, lambda tx, caller: (_put_in_order(tx, caller), asked()))
    return transact(lambda tx: read_inbox(tx.session, tenant_id=caller.tenant_id, **query))


def _put_in_order(tx: Tx, caller: Caller) -> Caller:
    # Another reader at it is no error: what it puts in order, the next page shows.
    place(tx.session)
    return caller
