"""The HTTP edge: translate a request, call one verb, answer."""

from __future__ import annotations

from typing import Any, Final

import orjson
from flask import Flask
from flask.json.provider import JSONProvider
from flask_smorest import Api

from web import auth, envelope, problems
from web.api import cancellations, events, history, inbound, pauses, reasons, recipients, reconciliation, reviews, suppressions
from web.edge import health, metrics, receipts
from web.edge import inbound as inbound_calls
from web.edge.docs import make_docs
from web.reading import BATCH_BYTES
from web.schemas.fields import published
from web.schemas.problems import ProblemSchema

DESCRIPTION: Final = (
    "A notification backend that keeps books. Times are RFC 3339 with a zone; errors are RFC 9457 problems "
    "with a code; nothing is ever called sent: accepted, handed off and delivered are three things."
)


class _Orjson(JSONProvider):
    """The one JSON of the edge: strict in, compact out."""

    def dumps(self, obj: Any, **kwargs: Any) -> str:  # noqa: ANN401 - Flask's interface
        del kwargs  # indentation and sorting
        return orjson.dumps(obj).decode()

    def loads(self, s: str | bytes, **kwargs: Any) -> Any:  # noqa: ANN401 - Flask's interface
        del kwargs
        return orjson.loads(s)


def create_app() -> Flask:
    """Make the WSGI application."""
    app = Flask(__name__, static_folder=None)
    app.json = _Orjson(app)
    app.url_map.merge_slashes = False
    app.config.update(
        API_TITLE="Daybook",
        API_VERSION="1",
        OPENAPI_VERSION="3.1.0",
        OPENAPI_URL_PREFIX="/",
        OPENAPI_JSON_PATH="openapi.json",
        API_SPEC_OPTIONS={"info": {"description": DESCRIPTION}},
        # The largest body that anything here takes; handlers narrow it.
        MAX_CONTENT_LENGTH=BATCH_BYTES,
    )
    api = Api()
    api.ERROR_SCHEMA = ProblemSchema
    api.DEFAULT_ERROR_RESPONSE_NAME = None  # every operation names its problems itself
    api.init_app(app)
    api.ma_plugin.converter.add_attribute_function(published)
    del api.spec.components.schemas["PaginationMetadata"]  # of smorest's own pages, which are not ours
    api.spec.components.security_scheme("key", {"type": "http", "scheme": "bearer"})
    for blueprint in (
        events.blueprint,
        cancellations.blueprint,
        recipients.blueprint,
        suppressions.blueprint,
        history.blueprint,
        inbound.blueprint,
        reasons.blueprint,
        pauses.blueprint,
        reviews.blueprint,
        reconciliation.blueprint,
        receipts.blueprint,
        inbound_calls.blueprint,
        health.blueprint,
        metrics.blueprint,
    ):
        api.register_blueprint(blueprint)
    app.register_blueprint(make_docs(api.spec))
    # The envelope first, so that also a refused request has an id; errors last, over those of smorest.
    envelope.register(app)
    auth.register(app)
    problems.register(app)
    return app
