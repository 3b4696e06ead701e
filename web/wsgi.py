"""What the server loads."""

from __future__ import annotations

from app.ground.heap import settle_heap
from app.ground.log import set_up
from web import create_app

set_up()
app = create_app()
settle_heap()
