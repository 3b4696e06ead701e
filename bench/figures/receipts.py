"""Receipts: signed callbacks over HTTP until they are settled, beside pgbench doing the same inserts and updates."""

from __future__ import annotations

from typing import Final

from app.people.vault import open_vault_key
from bench import pgbench, traffic
from bench.cpu import Spending
from bench.figure import Figure, Sitting, interleaved, weighed
from bench.house import House
from bench.replay import delivered, kept, load_handed, transaction
from bench.town import Town, accept_all, hand_off_all, receipt

CONNECTIONS: Final = 16
WAITING: Final = """
SELECT a.attempt_key, r.remote_id, c.sealed_address, k.id, k.wrapped_key
FROM attempt a JOIN remote_id r ON r.attempt_id = a.id JOIN intent i ON i.id = a.intent_id
JOIN contact c ON c.id = i.contact_id JOIN person_key k ON k.id = c.person_key_id
WHERE a.state = 'submitted' ORDER BY a.id
"""
SETTLED: Final = (
    "SELECT count(*) FROM receipt r JOIN attempt a ON a.id = r.attempt_id WHERE r.status = 'observed' AND a.state = 'delivered'"
)


def receipts(sitting: Sitting, count: int) -> list[Figure]:
    """Call with the delivery of every attempt, over 16 connections; each is settled when it is answered."""
    house, per_client = sitting.house, max(1, count // CONNECTIONS)
    total = per_client * CONNECTIONS
    numbering = [f"\\set n :client_id * {per_client} + :i + 1", "\\set i :i + 1"]
    script = "\n".join([*numbering, transaction(kept(sitting.tape, ":n")), transaction(delivered(sitting.tape, ":n"))])

    our_cpu, their_cpu = Spending(house), Spending(house)

    def ours() -> float:
        house.wipe(scratch=False)
        requests = _callbacks(house, sitting.signing, total)
        with our_cpu.of(total):
            seconds = traffic.post(house.base_url, requests, connections=CONNECTIONS).only(200).seconds
        settled = house.count(SETTLED)
        if settled != total:
            raise traffic.BadAnswer(f"{total} receipts were answered, {settled} are settled")
        return total / seconds

    def theirs() -> float:
        house.wipe(scratch=True)
        load_handed(house, sitting.tape, total)
        with their_cpu.of(total):
            return pgbench.rate(house, script, clients=CONNECTIONS, transactions=per_client, variables={"i": 0})

    with house.running("web"):
        house.wipe(scratch=False)
        traffic.post(house.base_url, _callbacks(house, sitting.signing, min(total, 64)), connections=CONNECTIONS)
        our_rates, their_rates = interleaved(sitting.runs, ours, theirs)
    sizes = {"receipts": total, "connections": CONNECTIONS, "runs": sitting.runs}
    notes = weighed(house, ours=total, theirs=total)
    against = "pgbench, the same inserts and updates, two transactions each"
    return [
        Figure(
            "receipts",
            "signed callbacks over HTTP, settled",
            against,
            0.25,
            None,
            sizes,
            our_rates,
            their_rates,
            notes,
            our_cpu.medians(),
            their_cpu.medians(),
        )
    ]


def _callbacks(house: House, town: Town, count: int) -> list[bytes]:
    """Hand off so many events in this process, and write the callback of each."""
    accept_all(town, count)
    hand_off_all()
    return callbacks(house, town)


def callbacks(house: House, town: Town) -> list[bytes]:
    """Write the callback of everything that was handed off."""
    with house.connect() as connection:
        found = connection.execute(WAITING).fetchall()
        connection.execute("VACUUM ANALYZE")
        connection.execute("CHECKPOINT")
    calls = [
        receipt(town, key, remote_id, str(open_vault_key(key_id, wrapped).open(sealed)))
        for key, remote_id, sealed, key_id, wrapped in found
    ]
    return [traffic.request("POST", f"{town.receipt_path}?{c.query.decode()}", c.body, c.headers) for c in calls]
