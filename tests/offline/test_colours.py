"""Verdicts and diffs have colours in every command; tests/logs/test_terminal.py says when."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from gateway.base.terminal import Styled
from gateway.tools.audit.report import TITLES
from gateway.tools.audit.report import as_text as audit_text
from gateway.tools.status.decisions import Decisions
from gateway.tools.status.decisions import text as decisions_text
from tests.kit import call_command
from tests.replay.kit import policy, recording, review

if TYPE_CHECKING:
    from pathlib import Path

RED, MAGENTA, GREEN = "\x1b[31m", "\x1b[35m", "\x1b[32m"
POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: web, image: nginx}]}\n"
SUITE = """\
apiVersion: admission-gateway.io/v1alpha1
kind: PolicyTest
config: [deny.yaml]
cases:
  - {name: right, object: &pod {apiVersion: v1, kind: Pod, metadata: {name: web}}, expect: {allowed: false}}
  - {name: wrong, object: *pod, expect: {allowed: true}}
"""
UNREACHABLE = """\
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: v}
webhooks:
  - name: v.example.com
    clientConfig: {url: "https://127.0.0.1:1/"}
    rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
    sideEffects: None
    admissionReviewVersions: [v1]
"""


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ("preview pod.yaml --config deny.yaml", [f": {RED}denied\x1b[0m\n", f": {RED}error\x1b[0m: denied"]),
        ("review pod.yaml --config deny.yaml", [f"{RED}denied\x1b[0m (422"]),
        ("review pod.yaml --config gone.yaml", [f"{MAGENTA}could not be decided\x1b[0m (500"]),
        ("preview pod.yaml --config gone.yaml", [f": {MAGENTA}undecided\x1b[0m\n", f": {MAGENTA}error"]),
        ("replay r.gz --config deny.yaml", [f"\n{RED}newly denied\x1b[0m: 1 review\n", f"{GREEN}+ Valid"]),
        ("test suite.yaml", [f"  {GREEN}ok  \x1b[0m  right\n", "  \x1b[31;1mFAIL\x1b[0m  wrong\n"]),
    ],
)  # fmt: skip
def test_verdicts_have_colours(arguments: str, shown: list[str], tmp_path: Path) -> None:
    (tmp_path / "deny.yaml").write_text(policy("deny", "false"))
    (tmp_path / "gone.yaml").write_text(UNREACHABLE)
    (tmp_path / "pod.yaml").write_text(POD)
    (tmp_path / "suite.yaml").write_text(SUITE)
    recording(tmp_path / "r.gz", review())
    environment = {**os.environ, "FORCE_COLOR": "1"}
    found = call_command(*arguments.split(), folder=tmp_path, environment=environment).stdout
    assert [one for one in shown if one not in found] == [], found


def styles(lines: list[str]) -> set[tuple[str, str]]:
    return {part for line in lines if isinstance(line, Styled) for part in line.parts if part[1]}


def test_outcomes_of_decisions_have_colours() -> None:
    one: dict[str, Any] = {
        **dict.fromkeys(("time", "webhook", "operation", "kind", "name", "namespace", "uid", "user"), "x"),
        "phase": "validate",
        "dryRun": False,
        "code": 403,
        "message": "",
        "webhooks": [],
    }
    outcomes = ("Denied", "FailedClosed", "FailedOpen", "Allowed")
    decisions = [
        {**one, "outcome": outcome, "allowed": outcome in ("Allowed", "FailedOpen")} for outcome in outcomes
    ]
    found = [Decisions("g", decisions)]
    expected = set(zip(outcomes, ("denied", "failed", "failed", "good"), strict=True))
    assert styles(list(decisions_text(found))) == expected


def test_findings_of_an_audit_have_colours() -> None:
    group = {
        "part": "object",
        "objects": 1,
        "alike": 1,
        "webhook": "w",
        "kind": "Pod",
        "namespace": "",
        "examples": [],
    }
    report: dict[str, Any] = {
        **dict.fromkeys(("listed", "verdicts", "evaluated", "refusedAtRestart", *TITLES), 1),
        **dict.fromkeys(("owners", "skipped", "notEvaluated", "webhooksLeftOut", "notes", "problems"), ()),
        "configuration": "c",
        "refusedAtRestart": 0,
        "workloads": [],
        "groups": [{**group, "finding": finding} for finding in ("denied", "failed")],
    }
    assert styles(list(audit_text(report))) == {
        (TITLES["denied"], "denied"),
        (TITLES["failed"], "failed"),
    }
