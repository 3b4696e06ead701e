"""The state of the books for Prometheus: gauges by small partial indexes, counters and histograms from the tally."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from app.ground.db import Rows, Tx, run_together, transact
from app.ledger.tally import BUCKETS
from policy.words import Lane

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

# The outbox is small: a row leaves it at handoff.
OUTBOX = """
SELECT lane, coalesce(reason, 'none') AS reason, leased_until > %(now)s AS leased, count(*) AS count,
       extract(epoch FROM %(now)s - min(due_at) FILTER (WHERE claimable_at <= %(now)s))::float8 AS oldest
FROM outbox GROUP BY 1, 2, 3
"""

# Overdue entries of the index of next checks only.
PREPARED_LATE = "SELECT count(*) AS count FROM attempt WHERE state = 'prepared' AND next_check_at <= %(now)s"

# In doubt and still asked about; what reached its horizon is closed, or an open review.
UNKNOWN = """
SELECT r.name AS label, count(*) AS count
FROM attempt a JOIN route r ON r.id = a.route_id
WHERE a.state = 'unknown' AND a.next_check_at IS NOT NULL GROUP BY r.name
"""

RECEIPTS = "SELECT status AS label, count(*) AS count FROM receipt WHERE status IN ('waiting', 'unmatched') GROUP BY status"
REFUSED = "SELECT count(*) AS count FROM refused_receipt"
REVIEWS = """
SELECT cause AS label, count(*) AS count, extract(epoch FROM %(now)s - min(opened_at))::float8 AS oldest
FROM review WHERE settled_at IS NULL GROUP BY cause
"""

# The lowest pending id stands for the oldest: both are made together, and one look-up is enough.
FEED_LAG = """
SELECT extract(epoch FROM %(now)s - t.at)::float8 AS seconds FROM transition t
WHERE t.id = (SELECT transition_id FROM feed_pending ORDER BY transition_id LIMIT 1)
"""
BEAT = "SELECT extract(epoch FROM %(now)s - at)::float8 AS seconds FROM heartbeat WHERE name = 'beat'"
INLET = "SELECT count(*) AS count FROM inlet WHERE status = 'waiting'"
TALLY = "SELECT name, label, value FROM tally"

COUNTERS: Final = (
    ("accepted", "category", "Intents that acceptance opened."),
    ("attempts", "category", "Attempts made, retries included."),
    ("handoffs", "category", "Attempts that left our control."),
    ("transitions", "state", "Changes of a public state."),
)
HISTOGRAMS: Final = (
    ("handoff_after", "acceptance_to_handoff", "Seconds from acceptance to a handoff."),
    ("terminal_after", "handoff_to_terminal", "Seconds from a handoff to delivered or failed."),
)


@dataclass(frozen=True, slots=True)
class _Read:
    """What one transaction read, one list of rows per statement."""

    outbox: Rows
    prepared_late: Rows
    unknown: Rows
    receipts: Rows
    refused: Rows
    reviews: Rows
    feed_lag: Rows
    beat: Rows
    inlet: Rows
    tally: Rows


STATEMENTS: Final = (OUTBOX, PREPARED_LATE, UNKNOWN, RECEIPTS, REFUSED, REVIEWS, FEED_LAG, BEAT, INLET, TALLY)


def render_metrics() -> bytes:
    """Read the books in one transaction and write them in Prometheus's text format."""
    registry = CollectorRegistry()
    registry.register(_Books(transact(_read)))
    return generate_latest(registry)


def _read(tx: Tx) -> _Read:
    return _Read(*run_together(tx.session, [(statement, {"now": tx.now}) for statement in STATEMENTS]))


class _Books(Collector):
    """What was read, as families of metrics."""

    def __init__(self, read: _Read) -> None:
        self.read = read

    def collect(self) -> Iterator[Metric]:
        """Give every family, also those that have nothing to count: an absent metric alarms nobody."""
        yield from self._outbox()
        read = self.read
        receipts = {row.label: row.count for row in read.receipts}
        yield _gauge("prepared_past_deadline", "Prepared attempts past their deadline.", read.prepared_late[0].count)
        yield _labelled("unknown", "Attempts in doubt that are still asked about.", "route", read.unknown)
        yield _gauge("receipts_unmatched", "Receipts that match no attempt.", receipts.get("unmatched", 0))
        yield _gauge("receipts_waiting", "Receipts kept and not yet observed.", receipts.get("waiting", 0))
        yield _gauge("receipts_refused", "Receipt calls kept that did not verify.", read.refused[0].count)
        yield _labelled("reviews_open", "Open questions to a person.", "cause", read.reviews)
        oldest = GaugeMetricFamily("daybook_reviews_oldest_seconds", "How long the oldest question is open.", labels=["cause"])
        for row in sorted(read.reviews, key=_label):
            oldest.add_metric([row.label], max(0.0, row.oldest))
        yield oldest
        yield _gauge(
            "feed_lag_seconds", "Age of the oldest transition without a place in the feed.", _seconds(read.feed_lag, 0.0)
        )
        yield _gauge(
            "beat_age_seconds", "Since a periodic task ran last; +Inf when none ever did.", _seconds(read.beat, math.inf)
        )
        yield _gauge("inlet_waiting", "Inlet rows that nobody took yet.", read.inlet[0].count)
        yield from self._counters()
        yield from self._histograms()

    def _outbox(self) -> Iterator[Metric]:
        oldest = GaugeMetricFamily("daybook_outbox_oldest_due_seconds", "How long the oldest due row waits.", labels=["lane"])
        leased = GaugeMetricFamily("daybook_outbox_leased", "Rows under a running lease.", labels=["lane"])
        waiting = GaugeMetricFamily("daybook_outbox_rows", "Rows not under a lease, by why they wait.", labels=["lane", "reason"])
        for lane in Lane:
            ours = [row for row in self.read.outbox if row.lane == lane]
            oldest.add_metric([lane], max(0.0, *(row.oldest or 0.0 for row in ours), 0.0))
            leased.add_metric([lane], sum(row.count for row in ours if row.leased))
            free: dict[str, int] = {"none": 0}
            for row in ours:
                if not row.leased:
                    free[row.reason] = free.get(row.reason, 0) + row.count
            for reason, count in sorted(free.items()):
                waiting.add_metric([lane, reason], count)
        return iter((oldest, waiting, leased))

    def _counters(self) -> Iterator[Metric]:
        for name, label, words in COUNTERS:
            family = CounterMetricFamily(f"daybook_{name}", words, labels=[label])
            for row in sorted(self._tally(name), key=_label):
                family.add_metric([row.label], row.value)
            yield family

    def _histograms(self) -> Iterator[Metric]:
        for name, public, words in HISTOGRAMS:
            family = HistogramMetricFamily(f"daybook_{public}_seconds", words, labels=["category"])
            counts = {row.label: row.value for row in self._tally(f"{name}_bucket")}
            for row in sorted(self._tally(f"{name}_sum"), key=_label):
                # The tally keeps no buckets that are empty.
                buckets = [(_bound(bound), counts.get(f"{row.label}/{bound}", 0.0)) for bound in (*BUCKETS, math.inf)]
                family.add_metric([row.label], buckets, row.value)
            yield family

    def _tally(self, name: str) -> Sequence[Any]:
        return [row for row in self.read.tally if row.name == name]


def _gauge(name: str, words: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"daybook_{name}", words, value=value)


def _labelled(name: str, words: str, label: str, found: Iterable[Any]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"daybook_{name}", words, labels=[label])
    for row in sorted(found, key=_label):
        family.add_metric([row.label], row.count)
    return family


def _label(row: Any) -> str:  # noqa: ANN401 - a row with a label
    return str(row.label)


def _seconds(found: Sequence[Any], otherwise: float) -> float:
    return max(0.0, found[0].seconds) if found else otherwise


def _bound(seconds: float) -> str:
    return "+Inf" if math.isinf(seconds) else str(seconds)
