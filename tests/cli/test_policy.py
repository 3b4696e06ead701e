"""`daybook policy check`, `test`, `publish`, `list`: what legal and releases do with rules."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from sqlalchemy import Engine

from app.desk.configure import store_policy
from app.ground.db import rows, transact
from policy.document import parse
from policy.findings import rfc3339
from tests.cli.conftest import Run
from tests.conftest import ROOT
from tests.making import SAMPLE, House, clock, committing, make_house, make_queued, sample

FIXTURES: Final = ROOT / "policy" / "fixtures"
BY_COUNTRY: Final = ROOT / "policy" / "documents" / "sample-2026-12-01.yaml"
DAY: Final = timedelta(days=1)


@pytest.fixture
def house(fresh_database: Engine) -> House:
    """Give a tenant with the sample in force."""
    with committing(fresh_database) as session:
        return make_house(session)


def now() -> datetime:
    return transact(lambda tx: tx.now)


def write(folder: Path, raw: dict[str, Any], name: str = "policy.yaml") -> Path:
    file = folder / name
    file.write_text(yaml.safe_dump(raw, sort_keys=False))
    return file


def reviewed(label: str, *, start: datetime, **changes: Any) -> dict[str, Any]:
    raw = sample() | {"version": label, "status": "reviewed", "reviewer": "Ada, counsel", "owner": "legal"}
    return raw | {"effective_from": rfc3339(start)} | changes


# check FILE


def test_every_mistake_is_named_with_its_path_line_and_column(daybook: Run, tmp_path: Path) -> None:
    """Each of these is read without a word by a YAML loader, or only the first is told."""
    file = tmp_path / "bad.yaml"
    file.write_text(
        """\
name: sample
owner: legal
owner: marketing
version: 2026-11-01
status: reviewed
effective_from: "2026-11-01"
channels: [sms]
countries: {allowed: [NO, us], when: ever}
categories:
  otp:
    max_age: 010
    cooldown: "1 hour"
    retry: {classes: [], max_attempts: 0_1, backoff: {initial: "5s", factor: 2, max: "30s"}, window: "2m"}
    ambiguity: {not_found: ask, horizon: close}
    hours:
      - id: daytime
        windows:
          - {days: [mon, mon], start: "08:00", end: 21:00}
"""
    )

    told = daybook("policy", "check", file)

    assert told.exit_code == 1
    where = {line.split(": error: ")[0].removeprefix(f"{file}:"): line.split(": error: ")[1] for line in told.output.splitlines()}
    assert {place: said.split(": ")[0] for place, said in where.items()} == {
        "1:1": "reviewer",
        "3:1": "owner",
        "4:10": "version",
        "6:17": "effective_from",
        "8:23": "countries.allowed[0]",
        "8:27": "countries.allowed[1]",
        "8:38": "countries.when",
        "11:14": "categories.otp.max_age",
        "12:15": "categories.otp.cooldown",
        "13:40": "categories.otp.retry.max_attempts",
        "14:28": "categories.otp.ambiguity.not_found",
        "18:26": "categories.otp.hours[0].windows[0].days[1]",
        "18:53": "categories.otp.hours[0].windows[0].end",
    }
    assert "is written twice, first in line 2" in where["3:1"]
    assert "another number: 010" in where["11:14"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"a: [1,\n b: }", "2:5: error: document: is not YAML"),
        (b"", "1:1: error: document: must be one YAML document to a file"),
        (b"name: a\n---\nname: b\n", "3:1: error: document: must be one YAML document to a file"),
        (b"name: \x01", "1:7: error: document: holds a character that no text should (U+0001)"),
        (b"- a list", "1:1: error: document: must be a mapping"),
        (b"name: !!python/object:os.system {}", "must not have a tag of its own"),
        (b"name: !secret x", "1:7: error: name: cannot be read: put 'x' in quotes"),
        (b"effective_from: 2026-13-45", "1:17: error: effective_from: cannot be read: put '2026-13-45' in quotes"),
        (b"a: &a [*a]", "1:4: error: a[0]: repeats itself too often"),
        (b"[" * 5000, "1:1: error: document: is nested too deeply"),
        (b"name: {<<: {a: 1}}", "has a key that is no word"),
    ],
)
def test_what_is_no_plain_yaml_is_told_where(daybook: Run, tmp_path: Path, content: bytes, said: str) -> None:
    file = tmp_path / "bad.yaml"
    file.write_bytes(content)

    told = daybook("policy", "check", file)

    assert told.exit_code == 1
    assert said in told.output


def test_nine_lines_of_aliases_are_no_bomb(daybook: Run, tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    file = tmp_path / "bomb.yaml"
    file.write_text("\n".join(lines))

    told = daybook("policy", "check", file)

    assert told.exit_code == 1
    assert "repeats itself too often" in told.output


def test_what_an_alias_repeats_is_read_as_if_it_were_written_out(daybook: Run, tmp_path: Path) -> None:
    raw = sample()
    text = yaml.safe_dump(raw)  # PyYAML writes an alias wherever one object stands twice
    raw["categories"]["operational"]["ambiguity"] = raw["categories"]["transactional"]["ambiguity"]
    file = write(tmp_path, raw)

    read = json.loads(daybook("policy", "check", file, "--json").output)

    assert "*id001" in file.read_text()
    assert "*id001" not in text
    assert read[0]["summary"]["sha256"] == parse(sample()).sha256


def test_a_file_that_cannot_be_read_is_no_finding(daybook: Run, tmp_path: Path) -> None:
    (tmp_path / "latin.yaml").write_bytes(b"name: caf\xe9")

    missing, latin = daybook("policy", "check", tmp_path / "gone.yaml"), daybook("policy", "check", tmp_path / "latin.yaml")

    assert (missing.exit_code, latin.exit_code) == (2, 2)
    assert "No such file" in missing.output
    assert "is not UTF-8 (byte 9)" in latin.output
    assert daybook("policy", "check").exit_code == 2


def test_a_sound_document_is_summed_up_and_what_is_suspicious_in_it_is_named(daybook: Run, tmp_path: Path) -> None:
    raw = sample()
    del raw["categories"]["otp"]
    raw["categories"]["marketing"]["hours"][0]["banned_weekdays"] = ["mon", "tue", "wed", "thu", "fri", "sat"]
    raw["categories"]["operational"]["cooldown"] = "4d"
    file = write(tmp_path, raw | {"effective_until": "2030-01-01T00:00:00Z"})

    told = daybook("policy", "check", file)
    read = json.loads(daybook("policy", "check", file, "--json").output)

    assert told.exit_code == 0
    assert "sample@2026-11-01" in told.output
    assert "owner       compliance" in told.output
    assert read[0]["summary"]["sha256"] == parse(raw | {"effective_until": "2030-01-01T00:00:00Z"}).sha256
    assert [doubt["path"] for doubt in read[0]["doubts"]] == [
        "status",
        "effective_from",
        "effective_until",
        "categories",
        "categories.transactional",
        "categories.operational.cooldown",
        "categories.marketing.hours[0]",
    ]
    assert all(doubt["line"] > 0 for doubt in read[0]["doubts"])


def test_resending_that_proves_nothing_or_never_happens_is_named(daybook: Run, tmp_path: Path) -> None:
    raw = yaml.safe_load(SAMPLE.read_text())
    raw["categories"]["transactional"]["ambiguity"] |= {"not_found": "resend", "waited": {"after": "2h", "then": "resend"}}
    raw["categories"]["operational"]["ambiguity"] |= {"waited": {"after": "12h", "then": "resend"}}
    raw["categories"]["operational"]["retry"] |= {"max_attempts": 1}
    raw["categories"]["marketing"]["ambiguity"] |= {"waited": {"after": "1h", "then": "review"}}

    told = daybook("policy", "check", write(tmp_path, raw)).output

    assert "transactional.ambiguity.not_found: never resends by routes of kannel, null: their look-ups prove nothing" in told
    assert "transactional.ambiguity.waited: resends on silence: by routes of kannel, null no look-up says if it was taken" in told
    assert "operational.ambiguity.waited.after: is no shorter than retry.window" in told
    assert "operational.retry.max_attempts: is 1" in told
    assert "marketing.ambiguity" not in told


def test_a_country_whose_rules_name_no_hours_is_named(daybook: Run, tmp_path: Path) -> None:
    raw = yaml.safe_load(BY_COUNTRY.read_text())
    whole = write(tmp_path, raw, "whole.yaml")
    without = write(tmp_path, raw | {"rules": [rule for rule in raw["rules"] if rule["country"] != "SG"]}, "without.yaml")

    whole_said, without_said = daybook("policy", "check", whole).output, daybook("policy", "check", without).output

    assert "categories.marketing" not in whole_said
    assert "categories.marketing: has no hours in SG: any time of day and night is good" in without_said


def test_a_reviewed_document_far_ahead_leaves_nothing_to_say_about_its_dates(daybook: Run, tmp_path: Path, world: object) -> None:
    del world
    file = write(tmp_path, reviewed("2", start=now() + 30 * DAY))

    read = json.loads(daybook("policy", "check", file, "--json").output)

    assert not {"status", "effective_from", "effective_until"} & {doubt["path"] for doubt in read[0]["doubts"]}


# test


def test_the_fixtures_that_are_shipped_hold(daybook: Run) -> None:
    told = daybook("policy", "test", FIXTURES)

    assert told.exit_code == 0, told.output
    assert "as expected" in told.output


def fixture_of(folder: Path, **changes: Any) -> Path:
    raw = {
        "policy": "policy.yaml",
        "sha256": parse(sample()).sha256,
        "cases": [
            {
                "name": "at night it waits",
                "now": "2026-12-01T04:00:00Z",
                "facts": {"category": "operational"},
                "expect": {"verdict": "defer", "reason": "outside_window", "not_before": "2026-12-01T13:00:00Z"},
            }
        ],
    } | changes
    return write(folder, raw, "fixture.yaml")


def test_a_decision_that_is_another_one_is_shown_beside_the_expected_one(daybook: Run, tmp_path: Path) -> None:
    raw = sample()
    raw["categories"]["operational"]["hours"][0]["windows"][0]["start"] = "09:30"
    write(tmp_path, raw)

    told = daybook("policy", "test", fixture_of(tmp_path, sha256=parse(raw).sha256))

    assert told.exit_code == 1
    assert "expected  defer  outside_window  2026-12-01T13:00:00Z" in told.output
    assert "got       defer  outside_window  2026-12-01T14:30:00Z" in told.output
    assert "window: defer" in told.output
    assert "0 of 1 as expected" in told.output


def test_a_document_that_was_changed_fails_its_pinned_fixtures_though_it_decides_the_same(daybook: Run, tmp_path: Path) -> None:
    write(tmp_path, sample() | {"owner": "somebody else"})

    told = daybook("policy", "test", fixture_of(tmp_path), "--json")

    (outcome,) = json.loads(told.output)
    assert told.exit_code == 1
    assert outcome["failures"] == []
    assert "is pinned to" in outcome["problems"][0]


def test_a_published_version_is_tried_by_its_label(daybook: Run, tmp_path: Path, house: House) -> None:
    held = daybook("policy", "test", fixture_of(tmp_path, policy="sample@2026-11-01"), "--tenant", house.tenant)
    gone = daybook("policy", "test", fixture_of(tmp_path, policy="sample@9"), "--tenant", house.tenant)

    assert (held.exit_code, gone.exit_code) == (0, 2)
    assert "neither a file nor a version" in gone.output


def test_a_fixture_is_read_line_by_line_too(daybook: Run, tmp_path: Path) -> None:
    write(tmp_path, sample())
    raw = yaml.safe_load(fixture_of(tmp_path).read_text())
    (tmp_path / "fixture.yaml").unlink()
    head = {"policy": raw["policy"], "sha256": raw["sha256"]}
    (tmp_path / "fixture.jsonl").write_text("\n".join(map(json.dumps, [head, *raw["cases"]])))

    told = daybook("policy", "test", tmp_path / "fixture.jsonl")

    assert (told.exit_code, "1 of 1 as expected" in told.output) == (0, True)


def test_the_mistakes_of_a_fixture_are_named(daybook: Run, tmp_path: Path) -> None:
    write(tmp_path, sample())
    case = {
        "name": "x",
        "now": "soon",
        "facts": {"category": "operational", "weather": "fine", "zone_source": "stars"},
        "expect": {"verdict": "defer", "reason": "because"},
    }

    told = daybook("policy", "test", fixture_of(tmp_path, cases=[case]))

    assert told.exit_code == 1
    for said in (
        "cases[0].now: must be an instant",
        "cases[0].facts.weather: is not a key we know",
        "cases[0].facts: cannot be read as evidence: 'stars'",
        "cases[0].expect: must say not_before with `defer`",
        "cases[0].expect.reason: must be one of",
    ):
        assert said in told.output


# publish and list


def test_a_version_is_published_ahead_listed_and_kept_with_its_owner(daybook: Run, tmp_path: Path, house: House) -> None:
    start = (now() + 30 * DAY).replace(microsecond=0)
    file = write(tmp_path, reviewed("2027", start=start))

    told = daybook("policy", "publish", file, "--tenant", house.tenant, "--reason", "the charter")
    listed = json.loads(daybook("policy", "list", "--tenant", house.tenant, "--json").output)

    assert told.exit_code == 0
    assert "it follows sample@2026-11-01, which ends when it starts" in told.output
    assert [(v["policy"], v["in_force"], v["owner"]) for v in listed] == [
        ("sample@2026-11-01", True, "compliance"),
        ("sample@2027", False, "legal"),
    ]
    assert listed[0]["ends_at"] == listed[1]["effective_from"] == start.isoformat()
    assert listed[1]["sha256"] == parse(reviewed("2027", start=start)).sha256
    assert "Ada, counsel" in daybook("policy", "list").output
    (action,) = transact(lambda tx: rows(tx.session, "SELECT actor, verb, reason FROM operator_action"))
    assert (action.verb, action.reason, action.actor[:4]) == ("publish_policy", "the charter", "cli:")


def test_from_says_when_it_starts_whatever_the_file_says(daybook: Run, tmp_path: Path, house: House) -> None:
    start = (now() + 2 * DAY).replace(microsecond=0)
    file = write(tmp_path, reviewed("2", start=now() - DAY))

    told = daybook("policy", "publish", file, "--tenant", house.tenant, "--from", rfc3339(start), "--json")

    said = json.loads(told.output)
    assert (told.exit_code, said["effective_from"]) == (0, rfc3339(start))
    assert said["sha256"] == parse(reviewed("2", start=start)).sha256


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"effective_from": "2026-11-02T00:00:00Z"}, "must start at least 60 s from now"),
        ({"effective_from": "2020-01-01T00:00:00Z"}, "is in force at some instant"),
        ({"version": "2026-11-01"}, "what was published never changes"),
        ({"reviewer": None}, "reviewer: must name who reviewed it"),
    ],
    ids=["too soon", "overlap", "known", "no reviewer"],
)
def test_a_refusal_is_one_clear_sentence_and_stores_nothing(
    daybook: Run, tmp_path: Path, house: House, changes: dict[str, Any], said: str
) -> None:
    file = write(tmp_path, reviewed("2", start=now() + DAY) | changes)

    told = daybook("policy", "publish", file, "--tenant", house.tenant)

    assert told.exit_code == 1
    assert said in told.output
    assert len(json.loads(daybook("policy", "list", "--json").output)) == 1


@pytest.mark.usefixtures("house")
def test_nobodys_tenant_and_an_instant_without_zone_are_told(daybook: Run, tmp_path: Path) -> None:
    file = write(tmp_path, sample())

    nobody = daybook("policy", "publish", file, "--tenant", "nobody")
    no_zone = daybook("policy", "publish", file, "--from", "2026-12-01T08:00:00")

    assert (nobody.exit_code, no_zone.exit_code) == (2, 2)
    assert "no tenant named 'nobody'" in nobody.output
    assert "must name its zone" in no_zone.output


# check --deployed


def test_rules_that_start_or_lapse_soon_are_named_with_their_owner(daybook: Run, house: House) -> None:
    at = now()
    first, second = reviewed("soon", start=at + 3 * DAY), reviewed("later", start=at + 10 * DAY)
    second["effective_until"] = rfc3339(at + 13 * DAY)
    transact(lambda tx: [store_policy(tx.session, tenant_id=house.tenant_id, raw=raw, now=at) for raw in (first, second)])

    told = daybook("policy", "check", "--deployed", "--json")

    said = {
        (r["grade"], r["policy"], r["owner"], r["words"].split(" at ")[0], r["words"].split(", ")[-1])
        for r in json.loads(told.output)
    }
    assert told.exit_code == 0
    assert {entry[:4] for entry in said} == {
        ("note", "sample@2026-11-01", "compliance", "in force, and a sample: nobody has answered for it"),
        ("warning", "sample@2026-11-01", "compliance", "lapses"),
        ("warning", "sample@soon", "legal", "starts"),
        ("warning", "sample@soon", "legal", "lapses"),
        ("warning", "sample@later", "legal", "starts"),
        ("warning", "sample@later", "legal", "lapses"),
    }
    assert {entry[4] for entry in said} >= {"sample@soon follows", "sample@later follows"}
    assert any("NOTHING FOLLOWS" in entry[4] for entry in said)


def test_a_lapse_is_told_loudly_and_ends_with_1_only_when_asked(daybook: Run, fresh_database: Engine) -> None:
    """A release that mends something must not wait for counsel."""
    with committing(fresh_database) as session:
        raw = sample() | {"effective_until": "2026-11-02T00:00:00Z"}
        house = make_house(session, policy=raw)
        make_house(session, policy={})

    told, strict = daybook("policy", "check", "--deployed"), daybook("policy", "check", "--deployed", "--strict")

    assert (told.exit_code, strict.exit_code) == (0, 1)
    assert (
        f"LAPSED: tenant {house.tenant}, sample@2026-11-01 (owner compliance): NO VERSION IS IN FORCE since 2026-11-02"
        in told.output
    )
    assert "NO VERSION IS IN FORCE and never was" in told.output


def test_a_stored_document_that_this_release_cannot_read_stops_the_release(
    daybook: Run, house: House, fresh_database: Engine
) -> None:
    with committing(fresh_database) as session:
        rows(session, "SELECT set_config('daybook.retention', 'on', true)")
        rows(session, 'UPDATE policy_version SET document = document || \'{"moon": "full"}\'')

    told = daybook("policy", "check", "--deployed")

    assert told.exit_code == 1
    assert f"ERROR: tenant {house.tenant}, sample@2026-11-01 (owner compliance)" in told.output
    assert "cannot read it: moon: is not a key we know" in told.output


def test_zone_data_that_changed_since_somebody_decided_is_noted(daybook: Run, house: House, fresh_database: Engine) -> None:
    with committing(fresh_database) as session:
        make_queued(session, house, now=clock(session))
        rows(session, "SELECT set_config('daybook.retention', 'on', true)")
        before = daybook("policy", "check", "--deployed").output
        rows(session, "UPDATE decision SET evidence = jsonb_set(evidence, '{facts,tzdata_version}', '\"2019.1\"')")

    told = daybook("policy", "check", "--deployed")

    assert "2019.1" not in before
    assert told.exit_code == 0
    assert "decisions were last taken under 2019.1" in told.output


@pytest.mark.usefixtures("fresh_database")
def test_a_daybook_without_tenants_has_nothing_to_say(daybook: Run) -> None:
    assert (
        daybook("policy", "check", "--deployed").output
        == "policies: every tenant has one in force, and none starts or lapses soon\n"
    )
    assert daybook("policy", "check", "--deployed", SAMPLE).exit_code == 2


def test_the_release_step_migrates_and_then_looks_at_the_rules() -> None:
    release = (ROOT / "Procfile").read_text().splitlines()[0]

    assert release == "release: python -m cli migrate && python -m cli policy check --deployed"
