"""Brakes: which waiting rows a pause holds, said once for whoever claims them and whoever counts them."""

from __future__ import annotations

from typing import Final

from app.ledger.spend import ELSEWHERE

# A pause `p` and a row `o` of the outbox. What a pause does not name it holds all of.
HOLDS: Final = f"""
p.tenant_id = o.tenant_id AND coalesce(p.route_id, o.route_id) = o.route_id AND coalesce(p.lane, o.lane) = o.lane
AND (p.category IS NULL OR p.category = (SELECT i.category FROM intent i WHERE i.id = o.intent_id))
AND (p.country IS NULL OR p.country = (SELECT coalesce(c.country, '{ELSEWHERE}') FROM intent i, contact c
                                       WHERE i.id = o.intent_id AND c.id = i.contact_id))
"""  # noqa: S608 - put together from the constant above
