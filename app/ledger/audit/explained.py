"""Invariant 9: every contact can be explained, from the attempt to the evidence, and every row names rules that exist."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from sqlalchemy.orm import Session

from app.ground.db import rows
from app.ledger.audit.check import NAMED, Breach, Check, Scope
from app.ledger.policies import InForce, read_policies
from policy.document import InvalidDocument, parse
from policy.replay import facts_of, replay
from policy.words import Reason
from policy.zones import tzdata_version

UNEXPLAINED = """
SELECT a.id AS attempt_id, a.decision_id
FROM scope s JOIN attempt a ON a.intent_id = s.id
LEFT JOIN decision d ON d.id = a.decision_id LEFT JOIN policy_version v ON v.id = d.policy_version_id
WHERE a.prepared_at IS NOT NULL
  AND (v.id IS NULL OR v.tenant_id <> a.tenant_id OR v.owner = '' OR d.decided_at < v.effective_from
       OR d.decided_at >= v.effective_until OR EXISTS (SELECT FROM policy_version n
                                                       WHERE n.tenant_id = v.tenant_id AND n.effective_from > v.effective_from
                                                         AND n.effective_from <= d.decided_at)
       OR d.evidence #>> '{policy,sha256}' IS DISTINCT FROM v.sha256
       OR d.evidence -> 'rules' IS NULL)
"""

# Why somebody was not contacted must be answerable as well.
UNDECIDED = """
SELECT i.id AS intent_id
FROM scope s JOIN intent i ON i.id = s.id
WHERE NOT EXISTS (SELECT FROM decision d WHERE d.intent_id = i.id)
   OR EXISTS (SELECT FROM transition t LEFT JOIN decision d ON d.id = t.cause_id
              WHERE t.intent_id = i.id AND t.state = 'suppressed' AND t.cause IN ('acceptance', 'dispatch')
                AND d.verdict IS DISTINCT FROM 'suppress')
"""

ALLOWED_BY_NOTHING = """
SELECT d.id AS decision_id, d.intent_id
FROM scope s JOIN decision d ON d.intent_id = s.id LEFT JOIN policy_version v ON v.id = d.policy_version_id
WHERE (d.policy_version_id IS NULL AND d.verdict = 'allow') OR (d.policy_version_id IS NOT NULL AND v.id IS NULL)
"""

POLICY_MISSING = """
SELECT e.id AS event_id, e.policy_version_id
FROM events s JOIN event e ON e.id = s.id
WHERE e.policy_version_id IS NOT NULL AND NOT EXISTS (SELECT FROM policy_version v WHERE v.id = e.policy_version_id)
"""

TEMPLATE_MISSING = """
SELECT e.id AS event_id
FROM events s JOIN event e ON e.id = s.id
WHERE NOT EXISTS (SELECT FROM template_version t
                  WHERE t.tenant_id = e.tenant_id AND t.name = e.template_name AND t.version = e.template_version)
"""

TENANT_MISSING = """
SELECT e.id AS event_id, e.tenant_id
FROM events s JOIN event e ON e.id = s.id
WHERE NOT EXISTS (SELECT FROM tenant t WHERE t.id = e.tenant_id)
"""

ROUTE_MISSING = """
SELECT a.id AS attempt_id, a.route_id
FROM scope s JOIN attempt a ON a.intent_id = s.id
WHERE (a.route_id IS NULL AND (a.state = 'queued' OR a.prepared_at IS NOT NULL))
   OR (a.route_id IS NOT NULL AND NOT EXISTS (SELECT FROM route r WHERE r.id = a.route_id AND r.tenant_id = a.tenant_id))
"""

PERSON_MISSING = """
SELECT i.id AS intent_id, i.contact_id
FROM scope s JOIN intent i ON i.id = s.id JOIN event e ON e.id = i.event_id LEFT JOIN contact c ON c.id = i.contact_id
WHERE c.id IS NULL OR c.tenant_id <> i.tenant_id OR c.recipient_ref <> i.recipient_ref OR c.address_hash <> i.gate_hash
   OR NOT EXISTS (SELECT FROM person_key k WHERE k.id = e.person_key_id)
   OR NOT EXISTS (SELECT FROM person_key k WHERE k.id = c.person_key_id)
"""

# The start of the next version closes an open end; an end that is written must be kept.
VERSIONS_OVERLAP = """
SELECT v.id AS policy_version_id, o.id AS other_policy_version_id
FROM policy_version v JOIN policy_version o
     ON o.tenant_id = v.tenant_id AND (o.effective_from, o.id) > (v.effective_from, v.id)
WHERE o.effective_from = v.effective_from OR o.effective_from < v.effective_until
"""

# A page at a time: evidence is read and decided on again here, not in Postgres.
DECISIONS: Final = """
WITH {scope}
SELECT d.id, d.policy_version_id, d.verdict, d.reason, d.not_before, d.evidence, d.decided_at
FROM scope s JOIN decision d ON d.intent_id = s.id
WHERE d.id > %(after)s ORDER BY d.id LIMIT %(page)s
"""
PAGE: Final = 5_000

VERSIONS: Final = (
    "SELECT id, sha256, owner, reviewer, status, effective_from, effective_until, document FROM policy_version ORDER BY id"
)

CHECKS: Final = (
    Check(9, "unexplained", "a handoff does not lead to a decision, a version in force, its hash and the evidence", UNEXPLAINED),
    Check(9, "undecided", "no decision says why somebody was, or was not, to be contacted", UNDECIDED),
    Check(9, "allowed_by_nothing", "a decision names no policy version that exists", ALLOWED_BY_NOTHING),
    Check(9, "policy_missing", "an event names a policy version that does not exist", POLICY_MISSING),
    Check(9, "template_missing", "an event names a template version that does not exist", TEMPLATE_MISSING),
    Check(9, "tenant_missing", "an event belongs to a tenant that does not exist", TENANT_MISSING),
    Check(9, "route_missing", "an attempt names a route that does not exist", ROUTE_MISSING),
    Check(9, "person_missing", "an intent's contact or vault key does not exist, or is another person's", PERSON_MISSING),
    Check(9, "versions_overlap", "two policy versions of a tenant are in force at once", VERSIONS_OVERLAP),
)
REWRITTEN: Final = Check(
    9, "policy_rewritten", "a policy version is not the document that its hash and columns stand for", VERSIONS
)

UNFAITHFUL: Final = Check(
    9, "unfaithful", "a decision's evidence and policy version do not give the verdict that is stored", DECISIONS
)


def find_rewritten(session: Session) -> Breach | None:
    """Hash every stored policy document again: there are few, and all decisions stand on them."""
    wrong = [{"policy_version_id": str(row.id)} for row in rows(session, VERSIONS) if not _is_as_stored(row)]
    if not wrong:
        return None
    return Breach(REWRITTEN.invariant, REWRITTEN.code, REWRITTEN.words, len(wrong), wrong[:NAMED])


def find_unfaithful(session: Session, scope: Scope) -> Breach | None:
    """Decide again on all stored evidence, with the version that it names, as of the moment that it was taken."""
    wrong: list[str] = []
    after = UUID(int=0)
    statement = DECISIONS.format(scope=scope.ctes)
    while page := rows(session, statement, from_id=scope.from_id, after=after, page=PAGE):
        policies = read_policies(session, {row.policy_version_id for row in page})
        wrong += [str(row.id) for row in page if not _is_faithful(row, policies.get(row.policy_version_id))]
        after = page[-1].id
    if not wrong:
        return None
    named = [{"decision_id": decision_id} for decision_id in wrong[:NAMED]]
    return Breach(UNFAITHFUL.invariant, UNFAITHFUL.code, UNFAITHFUL.words, len(wrong), named)


def _is_faithful(row: Any, policy: InForce | None) -> bool:  # noqa: ANN401 - a row of DECISIONS
    """Say whether the evidence gives the verdict; what was seen by other zone data is not for ours to repeat."""
    try:
        seen_by = facts_of(row.evidence).tzdata_version
        again = replay(policy.document if policy else None, row.evidence, now=row.decided_at)
    except (KeyError, TypeError, ValueError):
        return False
    until = row.not_before if row.reason != Reason.NO_POLICY else again.not_before  # that only says when to look again
    return seen_by != tzdata_version() or (row.verdict, row.reason, until) == (again.verdict, again.reason, again.not_before)


def _is_as_stored(row: object) -> bool:
    try:
        document = parse(getattr(row, "document"))  # noqa: B009 - a row has no type
    except InvalidDocument:
        return False
    names = ("sha256", "owner", "reviewer", "status", "effective_from", "effective_until")
    return all(getattr(document, name) == getattr(row, name) for name in names)
