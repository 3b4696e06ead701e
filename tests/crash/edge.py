"""One process that is the edge alone: it takes calls and receipts, sweeps nothing. Run as `python -m tests.crash.edge PORT`."""

from __future__ import annotations

import sys

from werkzeug.serving import make_server

from app.ground.log import set_up
from web import create_app

if __name__ == "__main__":
    set_up()
    make_server("127.0.0.1", int(sys.argv[1]), create_app(), threaded=True).serve_forever()
