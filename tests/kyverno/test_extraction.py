"""Pod templates in workloads: which are found, and what many of them cost.

What Kyverno makes of them is in ``tests/recorded/test_kyverno.py``.
"""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.pure.admission_policies.evaluation import Allowance
from gateway.pure.kyverno.extraction import pod_templates, shown_path
from tests.kyverno.documents import PODS, validating
from tests.policies.documents import decided

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pytest

    Json = dict[str, Any]

WIDGET = {"group": "example.io", "version": "v1", "kind": "Widget"}
WIDGETS = {"group": "example.io", "version": "v1", "resource": "widgets"}
TEMPLATE: Json = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
LEAVES = st.sampled_from([None, 1, "a", TEMPLATE, {**TEMPLATE, "metadata": {}}, {**TEMPLATE, "metadata": 1}])
NODES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "spec"]), inner, max_size=3)
    ),
)
SPECS = st.dictionaries(st.sampled_from(["a", "b", "spec"]), NODES, max_size=3)


def by_path(value: Any, path: str) -> Iterator[tuple[str, Json]]:
    """Yield paths and templates below *value*, with recursion as in Kyverno."""
    if isinstance(value, dict):
        containers = value["spec"].get("containers") if isinstance(value.get("spec"), dict) else None
        if containers == TEMPLATE["spec"]["containers"] and isinstance(value.get("metadata", {}), dict):
            yield path, value
            return
        for key, each in sorted(value.items()):
            yield from by_path(each, f"{path}.{key}")
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from by_path(each, f"{path}[{number}]")


@given(SPECS, SPECS)
def test_templates_are_found_with_those_at_their_paths(spec: Json, old: Json) -> None:
    before = dict(by_path(old, "spec"))
    found = pod_templates({"spec": spec}, {"spec": old}, Allowance(is_brief=False))
    assert [(shown_path(path), template, of) for path, template, of in found] == [
        (path, template, before.get(path)) for path, template in by_path(spec, "spec")
    ]


def refusal(folder: Path, policy: Json, spec: Json) -> str | None:
    created = {"apiVersion": "example.io/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": spec}
    members = {"kind": WIDGET, "resource": WIDGETS, "object": created}
    members |= {"requestKind": WIDGET, "requestResource": WIDGETS}
    status = decided(folder, [policy], members).decision.status
    return None if status is None else status.message


def about_widgets(expression: str) -> Json:
    autogen = {"podControllers": {"controllers": ["widgets.v1.example.io"]}}
    return validating(expression, matchConstraints={"resourceRules": [PODS]}, autogen=autogen)


def test_all_templates_share_a_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each may cost as much as a policy on a Pod: without a bound, a thousand take minutes."""
    monkeypatch.setattr("gateway.pure.kyverno.extraction.POLICY_LIMIT", 1_000_000)
    dear = about_widgets("lists.range(300).all(i, lists.range(300).all(j, i + j >= 0))")
    assert refusal(tmp_path, dear, {"a": [TEMPLATE]}) is None
    many = refusal(tmp_path, dear, {"a": [TEMPLATE] * 1000})
    assert many is not None
    head, _, path = many.partition(" (pod template at spec.a[")
    assert head == "Policy p error: error: operation cancelled: actual cost limit exceeded"
    assert 0 < int(path.partition("]")[0]) < 999


def test_paths_are_not_written_for_all_objects() -> None:
    """Each of the objects beside the template would have a text as long as its path."""
    spec: Json = {"a": TEMPLATE}
    for _ in range(100):
        spec = {"k" * 1000: spec, **{f"{number}": {"a": {}} for number in range(100)}}
    tracemalloc.start()
    try:
        ((path, *_),) = pod_templates({"spec": spec}, None, Allowance(is_brief=False))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(shown_path(path)) == len("spec.a") + 100 * 1001
    assert peak < 20_000_000
