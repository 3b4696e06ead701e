"""Clear what nobody answered: deadlines, horizons, waiting receipts, expired intents."""

from __future__ import annotations

from app.flows.floors import raise_sweep_floors
from app.flows.reconcile.deadlines import put_in_doubt
from app.flows.reconcile.expiry import expire_due
from app.flows.reconcile.horizons import reach_horizons
from app.flows.reconcile.inbound import act_on_waiting
from app.flows.reconcile.receipts import observe_waiting
from app.flows.reconcile.unheard import answer_silence
from tasks.celery import celery


@celery.task(name="reconcile")  # type: ignore[untyped-decorator]  # celery is untyped
def reconcile(**_: object) -> None:
    """Ask each sweep for a page."""
    put_in_doubt()
    act_on_waiting()
    observe_waiting()
    answer_silence()
    reach_horizons()
    expire_due()
    raise_sweep_floors()
