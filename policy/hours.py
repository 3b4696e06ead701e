"""Quiet hours: local wall time in every zone a person may be in, exact over clock changes.

An instant is open under some hours in a zone when, on the local wall clock, neither its date nor its
weekday is banned and some window holds its time. It is open when that is so under all hours in all
zones. Everything else here only finds the instants where this can change, and asks again at each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from typing import Final
from zoneinfo import ZoneInfo

from policy.reading import Node
from policy.words import Reason


class Day(StrEnum):
    """A weekday as documents write it."""

    MON = "mon"
    TUE = "tue"
    WED = "wed"
    THU = "thu"
    FRI = "fri"
    SAT = "sat"
    SUN = "sun"


DAYS: Final = tuple(Day)  # in the order of `date.weekday()`
MINUTES_PER_DAY: Final = 24 * 60


@dataclass(frozen=True, slots=True)
class Window:
    """Local hours, start inclusive and end exclusive; one that ends at or before its start runs past midnight."""

    days: frozenset[Day]
    start_minute: int
    end_minute: int  # up to MINUTES_PER_DAY, which is 24:00

    def holds(self, local: datetime) -> bool:
        """Say whether a local wall time lies inside; after midnight it belongs to the day it began on."""
        minute = local.hour * 60 + local.minute
        today, yesterday = DAYS[local.weekday()], DAYS[local.weekday() - 1]
        if self.start_minute < self.end_minute:
            return today in self.days and self.start_minute <= minute < self.end_minute
        return (today in self.days and minute >= self.start_minute) or (yesterday in self.days and minute < self.end_minute)


@dataclass(frozen=True, slots=True)
class Hours:
    """One named rule about local time: when contact is allowed at all, and days on which it never is.

    Outside its own dates, which are local as all else here, it closes nothing.
    """

    id: str
    windows: tuple[Window, ...]
    banned_weekdays: frozenset[Day] = frozenset()
    banned_dates: frozenset[date] = frozenset()
    effective_from: date | None = None
    effective_until: date | None = None

    def objection(self, local: datetime) -> Reason | None:
        """Say why a local wall time is closed, or None; bans count for the calendar date of the instant itself."""
        day = local.date()
        if (self.effective_from and day < self.effective_from) or (self.effective_until and day >= self.effective_until):
            return None
        if day in self.banned_dates:
            return Reason.BANNED_DATE
        if DAYS[local.weekday()] in self.banned_weekdays:
            return Reason.BANNED_WEEKDAY
        return None if any(window.holds(local) for window in self.windows) else Reason.OUTSIDE_WINDOW


@dataclass(frozen=True, slots=True)
class Block:
    """One rule that closes an instant in one zone."""

    hours: str
    zone: str
    reason: Reason


# How far ahead an opening is looked for (policy.md, section 3.2): longer than any run of holidays,
# and short enough that a set of zones without a common hour is told so at once.
HORIZON: Final = timedelta(days=14)

_DAY: Final = timedelta(days=1)


def blocks(hours: Sequence[Hours], zones: Sequence[ZoneInfo], at: datetime) -> list[Block]:
    """Name every rule and zone that close an instant; none when it is open."""
    walls = [(zone.key, at.astimezone(zone)) for zone in zones]
    asked = ((rule.id, key, rule.objection(wall)) for rule in hours for key, wall in walls)
    return [Block(rule, key, reason) for rule, key, reason in asked if reason is not None]


@dataclass(frozen=True, slots=True)
class Stretch:
    """A span of instants in which nothing turns: from the one that was looked at, until the next turn of any kind."""

    looked_at: datetime
    ends_at: datetime
    blocks: tuple[Block, ...]
    """What keeps it closed; nothing where it is open."""
    turns_at: datetime | None
    """When it opens, or closes; None when it does neither before the horizon."""


class Almanac:
    """Some hours in some zones, and the stretches looked at last, since most people share their zones.

    What it answers follows from hours, zones and instant alone: a stretch is used again only for
    instants inside it, and not where the horizon, which moves with the instant, cut it short.
    """

    __slots__ = ("_closed", "_hours", "_open", "_zones")

    def __init__(self, hours: Sequence[Hours], zones: Sequence[ZoneInfo]) -> None:
        self._hours = tuple(hours)
        self._zones = tuple(zones)
        # One of each: what is closed is asked about again at the instant at which it opens.
        self._open: Stretch | None = None
        self._closed: Stretch | None = None

    def look(self, at: datetime) -> Stretch:
        """Find the stretch that an instant lies in."""
        for last in (self._open, self._closed):
            if last is not None and last.looked_at <= at < last.ends_at:
                return last
        stretch = self._find(at)
        if stretch.turns_at is None:
            return stretch
        if stretch.blocks:
            self._closed = stretch
        else:
            self._open = stretch
        return stretch

    def _find(self, at: datetime) -> Stretch:
        closed = tuple(blocks(self._hours, self._zones, at))
        ends_at = None
        for turn in _turns(self._hours, self._zones, at):
            ends_at = ends_at or turn
            if bool(closed) is not bool(blocks(self._hours, self._zones, turn)):
                return Stretch(at, ends_at, closed, turn)
        return Stretch(at, ends_at or at, closed, None)


def _turns(hours: Sequence[Hours], zones: Sequence[ZoneInfo], after: datetime) -> Iterator[datetime]:
    """Yield in order, up to the horizon, every instant after `after` at which something may open or close."""
    times = _wall_times(hours)
    start = after.astimezone(UTC)  # local arithmetic would skip or repeat an hour at a clock change
    end = start + HORIZON
    while start < end:
        stop = min(start + _DAY, end)
        yield from sorted({turn for zone in zones for turn in _turns_in(zone, times, start, stop)})
        start = stop


def _wall_times(hours: Sequence[Hours]) -> frozenset[int]:
    """Collect the minutes of a day at which something may change; bans begin and end at midnight."""
    edges = {edge for rule in hours for window in rule.windows for edge in (window.start_minute, window.end_minute)}
    return frozenset({0} | {edge % MINUTES_PER_DAY for edge in edges})


def _turns_in(zone: ZoneInfo, times: frozenset[int], start: datetime, stop: datetime) -> Iterator[datetime]:
    """Yield, unordered, a zone's turns in (start, stop], a span of at most a day."""
    # A day more on either side: a clock set back over midnight returns to a date that had ended.
    first = start.astimezone(zone).date() - _DAY
    last = stop.astimezone(zone).date() + _DAY
    for offset in range((last - first).days + 1):
        day = first + offset * _DAY
        for minute in times:
            wall = datetime.combine(day, time(minute // 60, minute % 60), tzinfo=zone)
            # A wall time inside a gap gives instants that nothing turns at; whoever asks looks again anyway.
            yield from (turn for fold in (0, 1) if start < (turn := wall.replace(fold=fold).astimezone(UTC)) <= stop)
    if start.astimezone(zone).utcoffset() != stop.astimezone(zone).utcoffset():
        yield _clock_change(zone, start, stop)


def _clock_change(zone: ZoneInfo, start: datetime, stop: datetime) -> datetime:
    """Find the first second of the offset that holds at `stop`, by halving."""
    before = start.astimezone(zone).utcoffset()
    low, high = int(start.timestamp()), int(stop.timestamp())
    while high - low > 1:
        middle = (low + high) // 2
        if datetime.fromtimestamp(middle, zone).utcoffset() == before:
            low = middle
        else:
            high = middle
    return datetime.fromtimestamp(high, UTC)


def read_hours(node: Node) -> Hours:
    """Read named hours out of a document."""
    fields = node.fields(required=("id", "windows"), optional=("banned_weekdays", "banned_dates"))
    dates = fields["banned_dates"]
    return Hours(
        id=fields["id"].text(),
        windows=read_windows(fields["windows"]),
        banned_weekdays=read_days(fields["banned_weekdays"]),
        banned_dates=frozenset() if dates.is_absent() else frozenset(item.calendar_date() for item in dates.items()),
    )


def read_windows(node: Node) -> tuple[Window, ...]:
    """Read at least one window."""
    return tuple(map(_window, node.items(some=True)))


def read_days(node: Node) -> frozenset[Day]:
    """Read weekdays; none where they were left out."""
    return frozenset() if node.is_absent() else frozenset(map(_day, node.items()))


def _window(node: Node) -> Window:
    fields = node.fields(required=("days", "start", "end"))
    start, end = fields["start"].minute_of_day(), fields["end"].minute_of_day(end=True)
    if start == end and fields["start"].value == fields["end"].value:
        fields["end"].wrong('must differ from start; a whole day is "00:00" to "24:00"')
    return Window(days=frozenset(map(_day, fields["days"].items(some=True))), start_minute=start, end_minute=end)


def _day(node: Node) -> Day:
    return node.word(Day)
