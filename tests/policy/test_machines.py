"""A decision does not depend on the machine: neither on its time zone nor on the zone files that it has."""

from __future__ import annotations

import os
import subprocess
import sys
import zoneinfo
from pathlib import Path

import pytest

import policy.zones
from policy.zones import canonical, find_zone, tzdata_version, zones_of

ROOT = Path(__file__).parents[2]
# What the decisions of every fixture are, one after another, hashed: the same bytes everywhere.
PROGRAM = """
import hashlib, json, sys
from datetime import datetime, timedelta, timezone
from tests.policy.test_hours import FIXTURES, make_hours, decide_for
from tests.policy.test_sample import FIXTURES as RULES, SAMPLE
from tests.policy.making import make_consent, make_facts
from policy.decide import decide
from policy.words import Category
told = []
for line in FIXTURES:
    category = Category(line["category"])
    at = datetime.fromisoformat(line["now"])
    told.append(decide_for(make_hours(line["rules"], category), line["zones"], at, category=category, country=line["country"]))
for rule in RULES:
    for hour in range(0, 24 * 14, 5):
        at = datetime(2027, 3, 8, tzinfo=timezone.utc) + timedelta(hours=hour)
        consents = tuple(make_consent(kind) for kind in rule["consent_kinds"])
        facts = make_facts(
            accepted_at=at,
            expires_at=at + timedelta(days=5),
            country=rule["country"],
            subdivisions=(rule["subdivision"] or "NY",),
            zones=("Europe/Paris", "Asia/Tokyo"),
            consents=consents,
            sender_type=rule["sender"][0],
        )
        told.append(decide(SAMPLE, facts, now=at))
print(len(told), hashlib.sha256(repr(told).encode()).hexdigest())
"""


def start(tz: str) -> subprocess.Popen[str]:
    environment = os.environ | {"TZ": tz, "PYTHONHASHSEED": "0", "PYTHONTZPATH": "/usr/share/zoneinfo"}
    return subprocess.Popen([sys.executable, "-c", PROGRAM], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)


def test_a_machine_in_tokyo_decides_as_one_in_new_york_and_one_at_sea() -> None:
    runs = [start("Asia/Tokyo"), start("America/New_York"), start("UTC")]

    told = [run.communicate(timeout=60)[0] for run in runs]

    assert {run.returncode for run in runs} == {0}
    assert len(set(told)) == 1
    assert int(told[0].split()[0]) > 2_000


def test_the_machines_own_zone_files_are_turned_off() -> None:
    assert zoneinfo.TZPATH == ()
    assert policy.zones.find_zone("America/New_York") is zoneinfo.ZoneInfo("America/New_York")
    assert tzdata_version()


@pytest.mark.parametrize("name", ["Etc/Unknown", "America", "../UTC", "", "america/new_york "])
def test_what_is_no_zone_is_not_found(name: str) -> None:
    assert find_zone(name) is None


def test_a_country_has_the_zones_that_iana_lists_for_it() -> None:
    assert zones_of("MA") == {"Africa/Casablanca"}
    assert zones_of("XK") == {"Europe/Belgrade"}
    assert zones_of("ZZ") == frozenset()


@pytest.mark.parametrize(
    ("old", "listed"),
    [
        ("Asia/Calcutta", "Asia/Kolkata"),
        ("America/Buenos_Aires", "America/Argentina/Buenos_Aires"),
        ("Europe/Guernsey", "Europe/Guernsey"),
        ("Asia/Tokyo", "Asia/Tokyo"),
    ],
)
def test_an_older_name_is_known_by_the_one_that_iana_lists(old: str, listed: str) -> None:
    assert canonical(old) == listed
