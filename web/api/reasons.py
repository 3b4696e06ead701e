"""Reasons: the published catalogue of why a channel stands where it stands."""

from __future__ import annotations

from typing import Final

from flask_smorest import Blueprint

from policy.words import CATALOGUE
from web.auth import as_caller
from web.describe import Operation, operation
from web.schemas.history import ReasonsSchema

blueprint = Blueprint("reasons", __name__, description="What a reason means, and what to do.")

GET: Final = Operation(answers={200: ReasonsSchema})


@operation(blueprint, "/v1/reasons", GET)
def get_reasons() -> object:
    """List every reason with its meaning and what to do."""
    as_caller(GET.scope, lambda _tx, caller: caller)
    return {
        "items": [
            {"code": str(code), "meaning": meaning, "what_to_do": what_to_do} for code, (meaning, what_to_do) in CATALOGUE.items()
        ]
    }
