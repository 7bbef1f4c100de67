"""Reviews leave out the policies that API servers have in force, as long as that is known."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from gateway.config.merge.load import load
from gateway.engine.moved import MovedPolicies, among, without
from gateway.pure.admission_policies.placing import Named, digest_of
from gateway.pure.core.matching import Selection

if TYPE_CHECKING:
    from pathlib import Path

    from gateway.config.merge.model import Config

KIND = "ValidatingAdmissionPolicy"


def configured(folder: Path, **messages: str) -> Config:
    """Return a configuration with a policy of each name, which refuses pods with its message."""
    pods = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
    group = "admissionregistration.k8s.io/v1"
    documents = []
    for name, message in messages.items():
        head = {"apiVersion": group, "metadata": {"name": name}}
        validations = [{"expression": "false", "message": message}]
        spec = {"matchConstraints": {"resourceRules": [pods]}, "validations": validations}
        documents.append({**head, "kind": KIND, "spec": spec})
        bound = {"policyName": name, "validationActions": ["Deny"]}
        documents.append({**head, "kind": f"{KIND}Binding", "spec": bound})
    folder.mkdir(exist_ok=True)
    (folder / "all.yaml").write_text("\n---\n".join(map(json.dumps, documents)))
    return load([folder])


def digests(config: Config, *names: str) -> dict[Named, str]:
    found = {webhook.name: webhook.policy for webhook in config.validating}
    return {
        Named(KIND, name): digest_of(KIND, policy.expressions)
        for name in names
        if (policy := found[name]) is not None
    }


def test_policies_are_left_out_until_what_is_known_is_too_old(tmp_path: Path) -> None:
    config = configured(tmp_path, a="no", b="no")
    now = 0.0
    moved = MovedPolicies(lambda: now)
    selection = Selection("validate", config.validating)
    assert moved.leave_out(selection) is selection
    moved.renew(digests(config, "a"), until=10.0)
    assert [one.name for one in moved.leave_out(selection).webhooks] == ["b"]
    assert moved.leave_out(selection) is moved.leave_out(selection)
    now = 9.0
    moved.renew(digests(config, "a"), until=19.0)
    now = 18.0
    assert [one.name for one in moved.leave_out(selection).webhooks] == ["b"]
    moved.renew(digests(config, "b"), until=28.0)
    assert [one.name for one in moved.leave_out(selection).webhooks] == ["a"]
    now = 28.0
    assert moved.leave_out(selection) is selection
    assert not moved.digests


def test_another_version_of_a_policy_is_evaluated(tmp_path: Path) -> None:
    old, new = configured(tmp_path / "old", a="no"), configured(tmp_path / "new", a="never")
    moved = MovedPolicies(lambda: 0.0)
    moved.renew(digests(old, "a"), until=10.0)
    selection = Selection("validate", new.validating)
    assert moved.leave_out(selection) is selection
    assert among(old.validating, moved.digests) == moved.digests
    assert among(new.validating, moved.digests) == {}
    assert without(old.validating, moved.digests) == ()
    assert without(new.validating, moved.digests) == new.validating


def test_a_policy_that_is_on_templates_since_it_moved_is_evaluated_on_them(tmp_path: Path) -> None:
    """The API server evaluates it on Pods until it is back."""
    config = configured(tmp_path, a="no")
    file = tmp_path / "all.yaml"
    key = "admission-gateway.io/applies-to-templates"
    policy, _, bound = file.read_text().partition("\n---\n")
    document = json.loads(policy)
    document["metadata"]["annotations"] = {key: "Deny"}
    file.write_text(f"{json.dumps(document)}\n---\n{bound}")
    on_pods, on_templates = load([tmp_path]).validating
    assert without((on_pods, on_templates), digests(config, "a")) == (on_templates,)
