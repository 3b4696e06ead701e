"""A stand-in for the command line: it migrates nothing, seeds fixed keys, and simulates a carrier that says ok."""

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

import psycopg


class Ok(BaseHTTPRequestHandler):
    """Answer everything with 404, which is an answer."""


def main() -> None:
    """Do the step that the first argument names."""
    step = sys.argv[1]
    if os.environ.get("FAIL_AT") == step:
        sys.exit(f"{step} cannot go on")
    if step == "migrate":
        with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS kept (run int)")
            connection.execute("INSERT INTO kept SELECT count(*) FROM kept")
    elif step == "seed":
        sys.stdout.write("a line before the object\n")
        sys.stdout.write(json.dumps({"api_key": "key-of-the-api", "operator_key": "key-of-the-operator"}) + "\n")
    else:
        HTTPServer(("127.0.0.1", int(sys.argv[3])), Ok).serve_forever()


main()
