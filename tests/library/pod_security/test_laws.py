"""What holds for any Pod, level and version."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Final

from hypothesis import given
from hypothesis import strategies as st

from admission_gateway_worker.policies.pod_security.evaluation import evaluate
from admission_gateway_worker.policies.pod_security.levels import LevelVersion
from admission_gateway_worker.policies.pod_security.parameters import prepare
from admission_gateway_worker.policies.pod_security.pod import Pod
from admission_gateway_worker.policies.pod_security.registry import CONTROLS, NEWEST
from tests.library.pod_security.pods import NO_EXEMPTIONS, mutated

if TYPE_CHECKING:
    import random

Json = dict[str, Any]

POD: Final[Json] = {"metadata": {"name": "web"}, "spec": {"containers": [{"name": "a"}, {"name": "b"}]}}
ALL: Final = prepare({"exemptions": {"controls": [{"control": each.id} for each in CONTROLS]}})

policies = st.builds(
    LevelVersion, st.sampled_from(("baseline", "restricted")), st.none() | st.integers(0, NEWEST + 1)
)
randoms = st.randoms(use_true_random=False)


@given(policies, randoms)
def test_an_evaluation_changes_nothing_and_repeats_itself(policy: LevelVersion, draw: random.Random) -> None:
    pod = mutated(draw, POD)
    before = copy.deepcopy(pod)
    first = evaluate(policy, Pod(pod), NO_EXEMPTIONS, "default")
    assert evaluate(policy, Pod(pod), NO_EXEMPTIONS, "default") == first
    assert pod == before


@given(policies, randoms)
def test_a_pod_that_is_exempt_of_all_controls_is_allowed(policy: LevelVersion, draw: random.Random) -> None:
    pod = Pod(mutated(draw, POD))
    assert evaluate(policy, pod, ALL, "default").violations == []


@given(policies, randoms, st.sampled_from(CONTROLS))
def test_an_exemption_of_a_control_leaves_the_others_as_they_are(
    policy: LevelVersion, draw: random.Random, control: Any
) -> None:
    pod = Pod(mutated(draw, POD))
    settings = prepare({"exemptions": {"controls": [{"control": control.id}]}})
    found = evaluate(policy, pod, NO_EXEMPTIONS, "default").violations
    result = evaluate(policy, pod, settings, "default")
    assert len(result.violations) == len(found) - len(result.exempt)
    assert [each for each in found if each in result.violations] == result.violations


@given(policies, randoms)
def test_an_exempt_container_does_not_count(policy: LevelVersion, draw: random.Random) -> None:
    """As if it were not there, for controls that read nothing else of the Pod."""
    pod = mutated(draw, POD)
    names = ("privileged", "hostPorts", "capabilities_baseline", "allowPrivilegeEscalation")
    controls = [{"control": name, "containers": ["a"]} for name in names]
    without = copy.deepcopy(pod)
    for field in ("initContainers", "containers", "ephemeralContainers"):
        without["spec"][field] = [each for each in pod["spec"].get(field) or () if each["name"] != "a"]
    reasons = {"privileged", "hostPort", "non-default capabilities", "allowPrivilegeEscalation != false"}
    exempt = evaluate(policy, Pod(pod), prepare({"exemptions": {"controls": controls}}), "default")
    expected = evaluate(policy, Pod(without), NO_EXEMPTIONS, "default")
    assert [each for each in exempt.violations if each[0] in reasons] == [
        each for each in expected.violations if each[0] in reasons
    ]
