"""The policy ``pod-security`` and PodSecurity of Kubernetes: upstream's pods, random pods and requests."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from admission_gateway_worker.policies.pod_security.levels import LevelVersion, parse_version
from admission_gateway_worker.policies.pod_security.pod import Pod
from admission_gateway_worker.policies.pod_security.registry import CONTROLS, NEWEST, checks_of
from tests.library.pod_security.pods import mutated, violations
from tests.library.pod_security.questions import decision, question
from tests.library.pod_security.upstream import decide, evaluate, folder_of_pods

if TYPE_CHECKING:
    from pathlib import Path

FIRST: Final = int(os.environ.get("E2E_SEED", "0"))
SEEDS: Final = range(FIRST, FIRST + 3)
EACH: Final = 2000
VERSIONS: Final = ("latest", *(f"v1.{minor}" for minor in range(NEWEST + 2)))
POLICIES: Final = tuple(f"{level}:{version}" for level in ("baseline", "restricted") for version in VERSIONS)
PODS: Final = 4537
"""Upstream's pods for v1.0 to v1.37."""

REPLACED: Final = {each.replaces.lower(): each.id.lower() for each in CONTROLS}

Json = dict[str, Any]


@pytest.fixture(scope="module")
def upstream_pods() -> dict[Path, Json]:
    folder = folder_of_pods()
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return {
        file.relative_to(folder): defaulted(yaml.load(file.read_bytes(), loader))
        for file in sorted(folder.rglob("*.yaml"))
    }


def defaulted(pod: Json) -> Json:
    """Return *pod* with the only default of the API server that checks read."""
    for volume in pod["spec"].get("volumes") or ():
        if volume.keys() == {"name"}:
            volume["emptyDir"] = {}
    return pod


def test_upstreams_pods_pass_and_fail_the_check_that_they_are_made_for(
    upstream_pods: dict[Path, Json],
) -> None:
    assert len(upstream_pods) == PODS
    wrong = []
    for file, pod in upstream_pods.items():
        level, version, outcome, _ = file.parts
        checks = {
            name.lower(): check for name, check in checks_of(LevelVersion(level, parse_version(version)))
        }
        failed = {name for name, check in checks.items() if check(Pod(pod)) is not None}
        made_for = file.stem.rstrip("0123456789")
        expected = made_for if made_for in checks else REPLACED.get(made_for)
        # Some combinations that another check forbids are all that the API server accepts.
        if expected not in failed if outcome == "fail" else failed:
            wrong.append(f"{file}: {failed}")
    assert not wrong, "\n".join(wrong[:20])


@pytest.mark.parametrize("policy", ["baseline", "restricted"])
def test_upstreams_pods_have_the_same_texts_in_every_version(
    upstream_pods: dict[Path, Json], policy: str
) -> None:
    """Pods of all versions are few once those that are equal are left out."""
    pods = list({repr(pod): pod for pod in upstream_pods.values()}.values())
    policies = [each for each in POLICIES if each.startswith(policy)]
    assert_equal(pods, policies)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_pods_have_the_same_texts(upstream_pods: dict[Path, Json], seed: int) -> None:
    draw = random.Random(seed)
    pods = list(upstream_pods.values())
    drawn = [mutated(draw, draw.choice(pods)) for _ in range(EACH)]
    policies = draw.sample(POLICIES, 8)
    assert_equal(drawn, policies)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_requests_have_the_same_decision(upstream_pods: dict[Path, Json], seed: int) -> None:
    """Labels, defaults, exemptions, operations, workloads and namespaces: texts, annotations and metrics."""
    draw = random.Random(seed)
    pods = [pod for file, pod in upstream_pods.items() if file.parts[1] == "v1.37"]
    questions = [question(draw, pods) for _ in range(EACH)]
    different = []
    for asked, there in zip(questions, decide(questions), strict=True):
        here = decision(asked)
        if here != there:
            different.append(f"{asked}\n  there {there}\n  here {here}")
    assert not different, "\n".join(different[:10])


def assert_equal(pods: list[Json], policies: list[str]) -> None:
    different = []
    for pod, answers in zip(pods, evaluate((pod, policies) for pod in pods), strict=True):
        for policy, there in zip(policies, answers, strict=True):
            here = violations(policy, pod)
            if here != there:
                different.append(f"{policy} {pod}\n  there {there}\n  here {here}")
    assert not different, "\n".join(different[:20])
