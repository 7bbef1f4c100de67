"""Owners and images of exceptions: what is accepted, what is refused, and what is warned of."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.config.kinds.policy_exception import read_policy_exception, webhook_name_problem
from gateway.config.yaml.fields import Fields, Problems
from gateway.pure.core.exemptions import Patterns


def read(namespace: str = "shop", **match: Any) -> tuple[Any, Problems]:
    found = {
        "metadata": {"name": "e", **({"namespace": namespace} if namespace else {})},
        "spec": {
            "webhooks": ["a.policies.test"],
            "match": match,
            "reason": "r",
            "owner": "o",
            "permanent": True,
        },
    }
    problems = Problems("e")
    kind = "PolicyException" if namespace else "ClusterPolicyException"
    return read_policy_exception(Fields(found, "", problems), kind).match, problems


def warnings(namespace: str = "shop", **match: Any) -> list[str]:
    _, problems = read(namespace, **match)
    assert not problems.found
    return [str(one) for one in problems.warnings()]


def test_owners_are_names_by_kind_and_images_are_compared_as_they_are_pulled() -> None:
    match, problems = read(
        owners=["Deployment.apps/web", "Deployment.apps/api-*", "Pod/*"],
        images=["docker.io/nginx", "r.example:5000/shop/*", "localhost/a"],
        users=["ci"],
    )
    assert not problems.found
    assert match.owners == (
        ("Deployment.apps", Patterns(frozenset({"web"}), ("api-",))),
        ("Pod", Patterns(frozenset(), ("",))),
    )
    assert match.images == Patterns(
        frozenset({"docker.io/library/nginx", "localhost/a"}), ("r.example:5000/shop/",)
    )


@pytest.mark.parametrize(
    "image",
    [
        "nginx",
        "shop/web",
        "*",
        "r.example*",
        "r.example/a:1",
        "r.example/a@sha256:0",
        "r.example/A",
        "a.b/c/",
    ],
)
def test_an_image_that_is_no_repository_is_refused(image: str) -> None:
    _, problems = read(images=[image])
    assert "expected REGISTRY/PATH" in str(problems.found)


@pytest.mark.parametrize("owner", ["web", "/web", "Pod/", "Pod/a/b", "Pod/a*b", "Pod/a b", "Pod/é", "1/a"])
def test_an_owner_that_is_no_kind_and_name_is_refused(owner: str) -> None:
    _, problems = read(owners=[owner], users=["ci"])
    assert "expected KIND/NAME" in str(problems.found)


@pytest.mark.parametrize(
    "name",
    ["a.policies.test", "shop/pods", "pods/require a tag", "pods.v2/Rule_1", "shop/pods.v2/check: 'a'"],
)
def test_every_name_of_a_policy_or_rule_can_be_excepted(name: str) -> None:
    assert webhook_name_problem(name) is None


@pytest.mark.parametrize(
    "name", ["", "A", "a b", "pods/", "/pods", "pods/ ", "a/b/c/d", "a.b/c/d", "pods/a\nb", f"p/{'a' * 254}"]
)
def test_other_names_of_webhooks_are_refused(name: str) -> None:
    assert webhook_name_problem(name)


def test_owners_without_users_and_what_everyone_can_choose_are_warned_of() -> None:
    assert "writes its ownerReferences" in warnings(owners=["Pod/a"])[0]
    assert not warnings(owners=["Pod/a"], users=["ci"])
    assert not warnings(owners=["Pod/a"], groups=["ci"])
    assert not warnings(images=["r.example/a"])
    assert "anyone can choose" in warnings("", images=["r.example/a"])[0]
    assert len(warnings("", owners=["Pod/a"])) == 2
    assert not warnings("", owners=["Pod/a"], images=["r.example/a"], users=["ci"])
