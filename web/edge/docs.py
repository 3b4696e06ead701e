"""Docs: the OpenAPI document as a page to read, made here; nothing is loaded from elsewhere."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any, Final

from apispec import APISpec
from flask import Blueprint, Response, render_template

from policy.words import CATALOGUE
from web.problems import PROBLEMS

STYLE: Final = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
code, pre { font: 14px/1.4 ui-monospace, monospace; background: #f4f4f2; } pre { padding: .8rem; overflow: auto; }
section { border-top: 1px solid #ccc; margin-top: 2rem; } .method { font-weight: bold; text-transform: uppercase; }
table { border-collapse: collapse; } td, th { text-align: left; padding: .2rem .8rem .2rem 0; vertical-align: top; }
"""
STYLE_HASH: Final = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
POLICY: Final = f"default-src 'none'; style-src 'sha256-{STYLE_HASH}'; frame-ancestors 'none'"


def make_docs(spec: APISpec) -> Blueprint:
    """Make the blueprint that shows a document."""
    blueprint = Blueprint("docs", __name__)

    @blueprint.get("/docs")
    def get_docs() -> Response:
        document: dict[str, Any] = spec.to_dict()
        page = render_template(
            "docs.html",
            style=STYLE,
            info=document["info"],
            operations=_operations(document),
            schemas={name: json.dumps(s, indent=2) for name, s in document["components"]["schemas"].items()},
            problems=PROBLEMS,
            reasons=CATALOGUE,
        )
        return Response(page, mimetype="text/html", headers={"Content-Security-Policy": POLICY})

    return blueprint


def _operations(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"method": method, "path": path, **described}
        for path, methods in document["paths"].items()
        for method, described in methods.items()
        if method in {"get", "post", "put"}
    ]
