"""`daybook policy diff`: stored evidence under two versions, and exactly those for whom something changes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from app.desk.policy import compare as comparing
from app.ground.db import rows, transact
from policy.words import Lane
from tests.cli.conftest import Run
from tests.making import House, claim, committing, make_event, make_house, make_template, sample

SINCE: Final = ("--since", "2020-01-01T00:00:00Z")
LONDON: Final = "+447400123456"  # of the range for fiction, 07700 900xxx, the number plan knows nothing
# In New York, on a Tuesday.
AT_NOON: Final = datetime(2026, 12, 1, 17, 0, tzinfo=UTC)
AT_HALF_PAST_EIGHT_PM: Final = datetime(2026, 12, 2, 1, 30, tzinfo=UTC)
AT_ELEVEN_PM: Final = datetime(2026, 12, 2, 4, 0, tzinfo=UTC)
AT_EIGHT_AM: Final = datetime(2026, 12, 2, 13, 0, tzinfo=UTC)


@pytest.fixture
def house(fresh_database: Engine) -> House:
    """Give a tenant whose people were told at noon, in the evening and at night."""
    with committing(fresh_database) as session:
        house = make_house(session)
        make_template(session, house.tenant_id, name="news", category="operational")
        tell(session, house, "noon", AT_NOON)
        tell(session, house, "evening", AT_HALF_PAST_EIGHT_PM)
        tell(session, house, "night", AT_ELEVEN_PM)
        tell(session, house, "urgent", AT_ELEVEN_PM, template="class-opening")
        tell(session, house, "london", AT_NOON, sms=LONDON)
        return house


def tell(session: Session, house: House, ref: str, at: datetime, *, template: str = "news", sms: str | None = None) -> None:
    number = sms or f"+1201555{100 + sum(map(ord, ref)) % 100:04}"
    make_event(session, house, now=at, ref=ref, sms=number, subject=ref, template=template)


def narrowed(**window: str) -> dict[str, Any]:
    raw = sample() | {"version": "narrowed"}
    raw["categories"]["operational"]["hours"][0]["windows"][0] |= window
    return raw


def write(folder: Path, raw: dict[str, Any]) -> Path:
    file = folder / f"{raw['version']}.yaml"
    file.write_text(yaml.safe_dump(raw))
    return file


def refs(changes: Sequence[dict[str, Any]]) -> list[str]:
    return sorted(change["recipient_ref"] for change in changes)


def test_a_narrowed_window_lists_exactly_those_it_would_have_deferred(daybook: Run, tmp_path: Path, house: House) -> None:
    other = write(tmp_path, narrowed(end="20:00"))

    told = daybook("policy", "diff", "sample@2026-11-01", other, "--tenant", house.tenant, *SINCE, "--json")

    said = json.loads(told.output)
    assert (said["decisions"], said["intents"], said["complete"], said["unreadable"]) == (5, 5, True, 0)
    (change,) = said["changes"]
    assert change["recipient_ref"] == "evening"
    assert (change["before"]["verdict"], change["after"]["verdict"], change["after"]["reason"]) == (
        "allow",
        "defer",
        "outside_window",
    )
    assert change["after"]["not_before"] == "2026-12-02T13:00:00+00:00"
    assert (said["newly_contacted"], refs(said["no_longer_contacted"])) == ([], ["evening"])
    assert said["counts"] == [
        {
            "before": "allow",
            "reason_before": None,
            "after": "defer",
            "reason_after": "outside_window",
            "category": "operational",
            "country": "US",
            "intents": 1,
        }
    ]


def test_a_wider_window_lists_who_would_newly_be_contacted(daybook: Run, tmp_path: Path, house: House) -> None:
    one, other = write(tmp_path, sample()), write(tmp_path, narrowed(end="24:00"))

    told = daybook("policy", "diff", one, other, "--tenant", house.tenant, *SINCE)

    assert told.exit_code == 0
    assert "1 would NEWLY be contacted" in told.output
    assert "night  intent" in told.output
    assert "defer outside_window until 2026-12-02T13:00:00Z → allow" in told.output
    assert "no longer" not in told.output
    assert "2015550" not in told.output  # no address


def test_who_was_contacted_in_the_morning_is_not_newly_contacted_at_night(
    daybook: Run, tmp_path: Path, house: House, fresh_database: Engine
) -> None:
    with committing(fresh_database) as session:
        claim(session, house, lane=Lane.BULK, now=AT_EIGHT_AM)

    other = write(tmp_path, narrowed(end="24:00"))
    said = json.loads(daybook("policy", "diff", "sample@2026-11-01", other, "--tenant", house.tenant, *SINCE, "--json").output)

    assert said["decisions"] > 5
    assert refs(said["changes"]) == ["night"]
    assert said["newly_contacted"] == []


def test_the_dates_of_a_version_change_nothing(daybook: Run, tmp_path: Path, house: House) -> None:
    """What is published for next year is asked about last month."""
    other = write(tmp_path, sample() | {"version": "next", "effective_from": "2030-01-01T00:00:00Z"})

    told = daybook("policy", "diff", "sample@2026-11-01", other, "--tenant", house.tenant, *SINCE)

    assert "nothing changes for anybody" in told.output


def test_another_hour_is_a_change_though_the_verdict_is_the_same(daybook: Run, tmp_path: Path, house: House) -> None:
    other = write(tmp_path, narrowed(start="09:00"))

    said = json.loads(daybook("policy", "diff", "sample@2026-11-01", other, "--tenant", house.tenant, *SINCE, "--json").output)

    (change,) = said["changes"]
    assert change["recipient_ref"] == "night"
    assert (change["before"]["not_before"], change["after"]["not_before"]) == (
        "2026-12-02T13:00:00+00:00",
        "2026-12-02T14:00:00+00:00",
    )
    assert said["newly_contacted"] == said["no_longer_contacted"] == []


def test_a_blocked_country_is_counted_by_country(daybook: Run, tmp_path: Path, house: House) -> None:
    raw = sample() | {"version": "no-gb"}
    raw["countries"]["allowed"].remove("GB")

    said = json.loads(
        daybook("policy", "diff", "sample@2026-11-01", write(tmp_path, raw), "--tenant", house.tenant, *SINCE, "--json").output
    )

    assert [(c["country"], c["after"], c["reason_after"], c["intents"]) for c in said["counts"]] == [
        ("GB", "suppress", "country_blocked", 1)
    ]


def test_the_newest_are_looked_at_first_and_a_limit_is_told(
    daybook: Run, tmp_path: Path, house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparing, "PAGE_COUNT", 2)  # pages of two, so that five decisions are three of them
    other = write(tmp_path, narrowed(start="09:00", end="20:00"))
    command = ("policy", "diff", "sample@2026-11-01", other, "--tenant", house.tenant, *SINCE)

    some, all_of_them = daybook(*command, "--limit", "3", "--json"), daybook(*command, "--json")

    assert refs(json.loads(some.output)["changes"]) == ["night"]
    assert json.loads(some.output)["complete"] is False
    assert "raise --limit" in daybook(*command, "--limit", "3").output
    assert refs(json.loads(all_of_them.output)["changes"]) == ["evening", "night"]
    assert json.loads(all_of_them.output)["decisions"] == 5


def test_only_what_was_stored_since_then_is_looked_at(daybook: Run, tmp_path: Path, house: House, fresh_database: Engine) -> None:
    other = write(tmp_path, narrowed(start="09:00", end="20:00"))
    since = transact(lambda tx: tx.now)
    with committing(fresh_database) as session:
        tell(session, house, "late", AT_ELEVEN_PM)
    command = ("policy", "diff", "sample@2026-11-01", other, "--tenant", house.tenant, "--json", "--since")

    of_an_hour, of_now = (json.loads(daybook(*command, each).output) for each in ("1h", since.isoformat()))

    assert refs(of_an_hour["changes"]) == ["evening", "late", "night"]
    assert refs(of_now["changes"]) == ["late"]


def test_evidence_that_cannot_be_replayed_is_counted(daybook: Run, tmp_path: Path, house: House, fresh_database: Engine) -> None:
    with committing(fresh_database) as session:
        rows(session, "SELECT set_config('daybook.retention', 'on', true)")
        rows(session, "UPDATE decision SET evidence = evidence #- '{facts,zones}' WHERE evidence #>> '{facts,country}' = 'GB'")

    told = daybook("policy", "diff", "sample@2026-11-01", write(tmp_path, sample()), "--tenant", house.tenant, *SINCE)

    assert "1 decisions keep evidence that cannot be replayed" in told.output


def test_what_is_neither_a_file_nor_published_and_what_is_no_document_are_told(
    daybook: Run, tmp_path: Path, house: House
) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("name: x")

    gone = daybook("policy", "diff", "sample@2026-11-01", "sample@9", "--tenant", house.tenant)
    wrong = daybook("policy", "diff", "sample@2026-11-01", bad, "--tenant", house.tenant)
    since = daybook("policy", "diff", "a", "b", "--since", "yesterday")

    assert (gone.exit_code, wrong.exit_code, since.exit_code) == (2, 2, 2)
    assert "'sample@9' is neither a file nor a version" in gone.output
    assert "is no policy document" in wrong.output
    assert "'yesterday' is no instant" in since.output
