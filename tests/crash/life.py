"""One process that is all of Daybook: the edge, and every sweep in turn. Run as `python -m tests.crash.life PORT`.

What a test kills here is everything at once, at a place it chose: harsher than losing one worker of
several, and quick enough to do at every place.
"""

from __future__ import annotations

import sys
import threading
import time

from werkzeug.serving import make_server

from app.flows.carrier_cancel import ask_to_cancel
from app.flows.dispatch import dispatch
from app.flows.feed import sequence_feed
from app.flows.floors import lower_floors, raise_sweep_floors
from app.flows.handoff import hand_off
from app.flows.heartbeat import beat
from app.flows.inlet import take_inlet
from app.flows.poll import poll_page
from app.flows.reconcile.deadlines import put_in_doubt
from app.flows.reconcile.expiry import expire_page
from app.flows.reconcile.horizons import reach_horizons
from app.flows.reconcile.receipts import observe_waiting
from app.flows.reconcile.unheard import answer_silence
from app.ground.db import DatabaseAway
from app.ground.log import log, set_up
from policy.words import Lane
from web import create_app

PAUSE_SECONDS = 0.02


def live(port: int) -> None:
    """Serve and sweep until killed."""
    set_up()
    server = make_server("127.0.0.1", port, create_app(), threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    while True:
        try:
            turn()
        except DatabaseAway as error:
            log.warning("turn_failed", cause=type(error).__name__)
        time.sleep(PAUSE_SECONDS)


def turn() -> None:
    """Do once what beat and the workers do all the time."""
    take_inlet()
    for lane in Lane:
        for page in dispatch(lane):
            hand_off(page.attempt_ids, route_id=page.route_id, lease=page.lease)
    poll_page()
    ask_to_cancel()
    put_in_doubt()
    observe_waiting()
    answer_silence()
    reach_horizons()
    expire_page()
    sequence_feed()
    beat()
    raise_sweep_floors()
    lower_floors()


if __name__ == "__main__":
    live(int(sys.argv[1]))
