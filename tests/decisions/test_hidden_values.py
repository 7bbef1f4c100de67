"""No form of a secret value is in a line of the decision log, in a page, or in a recording."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import orjson
import pytest

from gateway.observe.decisions import log
from gateway.observe.decisions.recent import detailed_page_json
from gateway.observe.decisions.redaction import Redactors
from gateway.observe.recording import recorder
from gateway.pure.core.verdict import Denied
from gateway.server.reports.finding import denials
from tests.core.build import request, webhook
from tests.decisions.kit import answer
from tests.decisions.quoting import QUOTINGS
from tests.decisions.test_log import logged
from tests.decisions.test_quotations import AWKWARD, left_of, secret
from tests.decisions.test_recent import kept
from tests.kit import PATIENCE_S
from tests.recording.test_recorder import record

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gateway.pure.core.answer import Answer

KIND = {"group": "", "version": "v1", "kind": "Secret"}
HOOKS = [webhook("a.policies.test")]


@pytest.fixture(autouse=True)
def _the_end_waits_for_all_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (log, recorder):
        monkeypatch.setattr(module, "CLOSE_S", PATIENCE_S)


def quoted(value: str, held: dict[str, object]) -> list[Answer]:
    """The answers to reviews of *held* by a policy that quotes *value* in all ways."""
    messages = (f"the value {quoting(value)} is bad" for quoting in QUOTINGS.values())
    kind = KIND if held["kind"] == "Secret" else {**KIND, "kind": str(held["kind"])}
    review = request(kind=kind, object=held)
    return [
        answer({"a.policies.test": Denied(403, message=one, warnings=(one,))}, HOOKS, review)
        for one in messages
    ]


def shown(folder: Path, answers: list[Answer]) -> list[str]:
    """Return what log, pages and recording have of *answers*."""
    lines, _ = logged(folder, answers)
    pages = [detailed_page_json(one) for one in kept(*answers).read().recent(limit=1000)]
    (folder / "recording").mkdir()
    recorded = record(folder / "recording", *answers)
    assert len(lines) == len(pages) == len(recorded) == len(answers)
    return [orjson.dumps(one).decode() for one in (*lines, *pages, *recorded)]


HELD: dict[str, Callable[[str], dict[str, object]]] = {
    "a Secret": secret,
    "an earlier version": lambda value: {
        "kind": "ConfigMap",
        "metadata": {
            "name": "db",
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": json.dumps(secret(value))},
        },
    },
    "a variable": lambda value: {
        "kind": "Pod",
        "spec": {"containers": [{"name": "c", "env": [{"name": "DB_PASS", "value": value}]}]},
    },
    "a field": lambda value: {"kind": "Thing", "spec": {"privateKey": {"inline": value}}},
    "an argument": lambda value: {"kind": "Pod", "spec": {"containers": [{"args": ["--token", value]}]}},
}


@pytest.mark.parametrize(
    ("kind", "value"),
    [*(("a Secret", value) for value in AWKWARD[:4]), *((kind, AWKWARD[0]) for kind in HELD)],
)
def test_a_value_is_nowhere(tmp_path: Path, value: str, kind: str) -> None:
    for text in shown(tmp_path, quoted(value, HELD[kind](value))):
        assert not left_of(value, text), text


def test_a_value_is_in_no_finding_of_reports_and_events() -> None:
    value = AWKWARD[0]
    held = HELD["a variable"](value)
    message = f"the value {value!r} is bad"
    review = request(kind={**KIND, "kind": "Pod"}, operation="UPDATE", object=held, oldObject=held)
    told = answer({"a.policies.test": Denied(403, message=message)}, HOOKS, review)
    (finding,) = denials(told, 0.1, 0.0, Redactors())
    assert not left_of(value, finding.message)
    assert finding.message.startswith("the value '(redacted ")
