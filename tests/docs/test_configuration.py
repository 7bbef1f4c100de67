"""docs/configuration.md has every field that the gateway reads, and the default that a field has."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from deploy.crds import crds
from gateway.base.errors import ConfigError
from gateway.config.merge.load import load
from gateway.pure.core.conditions import ConditionInput
from tests.docs.pages import DOCS, rows, section

if TYPE_CHECKING:
    from pathlib import Path

PAGE = (DOCS / "configuration.md").read_text()
WEBHOOKS = "MutatingWebhookConfiguration, ValidatingWebhookConfiguration"
HOOK = {"name": "a.b.c", "sideEffects": "None", "admissionReviewVersions": ["v1"]}
RULE = {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}
MINIMAL: dict[str, dict[str, Any]] = {
    "WorkerPool": {"spec": {"target": "a:1"}},
    "MutatingWebhookConfiguration": {
        "webhooks": [{**HOOK, "clientConfig": {"worker": {"pool": "p", "policy": "q"}}, "rules": [RULE]}]
    },
    "ClusterPolicyException": {
        "spec": {
            "webhooks": ["a.b.c"],
            "match": {"users": ["bot"]},
            "reason": "r",
            "owner": "o",
            "expires": "2026-12-01T00:00:00Z",
        }
    },
    "GatewayConfiguration": {},
    "Namespace": {},
}
SECTIONS = {
    "WorkerPool": "WorkerPool",
    "MutatingWebhookConfiguration": WEBHOOKS,
    "ClusterPolicyException": "PolicyException, ClusterPolicyException",
    "GatewayConfiguration": "GatewayConfiguration",
    "Namespace": "Namespace",
}
OPTIONAL = (
    r"kubernetes\.|imageReview\.|tls\.selfManaged\.|authentication\.webhookTokens\.|reports\.|rolloutPlans\.|logging\.decisionLog\.file\.|tracing\.|"
    r"record\.|webhooks\[\]\.cache\.|spec\.hedge\.|policies\.backends\[\]\.|policies\.engines\.|"
    r"webhooks\[\]\.clientConfig\.(service|caBundleFrom|imageReview|worker\.parametersFrom)\.|webhooks\[\]\.rollout\."
)
"""Mappings whose absence is not the same as their defaults."""
OPAQUE = {"spec", "status"}
"""Fields of a Namespace whose content only Kubernetes and workers read."""
UNKNOWN = "zzzzzzzzzz"


def documented(kind: str) -> dict[str, tuple[str, str, str]]:
    """Return type, default and meaning of each field of *kind*, by its path."""
    found = rows(section(PAGE, SECTIONS[kind]), 4)
    return {path.strip("`"): (type_, default, meaning) for path, type_, default, meaning in found}


def document(kind: str, content: dict[str, Any]) -> dict[str, Any]:
    of_webhooks = dict.fromkeys(
        ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"), "admissionregistration.k8s.io/v1"
    )
    versions = {"Namespace": "v1", **of_webhooks}
    return {
        "apiVersion": versions.get(kind, "admission-gateway.io/v1alpha1"),
        "kind": kind,
        "metadata": {"name": "p"},
        **content,
    }


def value(default: str) -> object:
    """Return what a default in code font stands for."""
    text = default.strip("`")
    return text if text == "*" else yaml.safe_load(text)


def nested(content: Any, path: str, value: object) -> None:
    """Set the field at *path* of *content*; ``[]`` is the first item of a list."""
    *parents, last = path.split(".")
    for parent in parents:
        name, is_list, _ = parent.partition("[]")
        following = content.get(name)
        if not following:
            following = content[name] = [{}] if is_list else {}
        content = following[0] if is_list else following
    content[last] = value


def known_fields(folder: Path, kind: str, parent: str) -> set[str]:
    """Return the fields that the gateway knows below *parent*: an unknown one is refused with their names."""
    content: dict[str, Any] = {}
    nested(content, f"{parent}.{UNKNOWN}" if parent else UNKNOWN, 1)
    file = folder / "a.yaml"
    file.write_text(yaml.safe_dump(document(kind, content)))
    with pytest.raises(ConfigError) as caught:
        load([file])
    (message,) = (problem.message for problem in caught.value.problems if UNKNOWN in problem.field)
    return set(message.partition("known fields: ")[2].split(", "))


def parents(paths: set[str]) -> set[str]:
    """Return the paths of the mappings in which *paths* are, the document's own (empty) among them."""
    return {path.rpartition(".")[0] for path in paths}


# The other tables are made of the fields themselves.
@pytest.mark.parametrize("kind", ["MutatingWebhookConfiguration"])
def test_the_page_has_every_field(tmp_path: Path, kind: str) -> None:
    paths = set(documented(kind))
    everywhere = {"apiVersion", "kind", "metadata"} | ({"spec"} if kind == "WorkerPool" else set())
    read = {
        f"{parent}.{name}" if parent else name
        for parent in parents(paths) - {"metadata"}
        for name in known_fields(tmp_path, kind, parent)
        if parent or name not in everywhere
    }
    below_metadata = {path for path in paths if path.startswith("metadata.")}
    assert paths - below_metadata == read


@pytest.mark.parametrize("kind", SECTIONS)
def test_every_field_has_a_type_and_a_default(kind: str) -> None:
    for path, (type_, default, _) in documented(kind).items():
        assert type_, path
        assert default in {"required", "none"} or re.fullmatch(r"`[^`]+`", default), path
        if type_ in {"mapping", "LabelSelector", "list"}:
            below = path if type_ != "list" else f"{path}[]"
            assert below in parents(set(documented(kind))) or path in OPAQUE, path


def without_places(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name: value for name, value in fields if name != "place"}


@pytest.mark.parametrize("kind", [kind for kind in SECTIONS if kind != "Namespace"])
def test_a_default_that_is_written_out_changes_nothing(tmp_path: Path, kind: str) -> None:
    implicit, explicit = (tmp_path / name for name in ("implicit.yaml", "explicit.yaml"))
    others = [document("WorkerPool", MINIMAL["WorkerPool"])] if kind.startswith("Mutating") else []
    content = yaml.safe_load(yaml.safe_dump(MINIMAL[kind]))
    written = document(kind, content)
    implicit.write_text(yaml.safe_dump_all([written, *others]))
    defaults = 0
    for path, (_, default, _) in documented(kind).items():
        if default not in {"required", "none"} and not re.match(OPTIONAL, path):
            nested(written, path, value(default))
            defaults += 1
    explicit.write_text(yaml.safe_dump_all([written, *others]))
    assert defaults >= (1 if kind == "ClusterPolicyException" else 2)
    found, expected = (
        asdict(load([file]), dict_factory=without_places) | {"warnings": (), "source": b"", "documents": {}}
        for file in (explicit, implicit)
    )
    assert found == expected


def test_the_examples_of_keys_are_accepted(tmp_path: Path) -> None:
    """The first one is a whole webhook, the second one a key that has the old object too."""
    text = PAGE.partition("\n### cache\n")[2].partition("\n### ")[0]
    (hook,), other = (yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL))
    pool = document("WorkerPool", MINIMAL["WorkerPool"])
    pool["metadata"]["name"] = hook["clientConfig"]["worker"]["pool"]
    new, old = (dict[str, object]({"spec": {"containers": [{"image": image}]}}) for image in "ab")
    digests = []
    for fields in (hook, {**hook, **other}):
        webhooks = document("ValidatingWebhookConfiguration", {"webhooks": [fields]})
        (tmp_path / "a.yaml").write_text(yaml.safe_dump_all([webhooks, pool]))
        (read,) = load([tmp_path / "a.yaml"]).validating
        assert read.cache is not None
        requests = (ConditionInput({"namespace": "shop"}, new, each) for each in (None, old, new))
        digests.append({read.cache.key.digest(each) for each in requests})
    assert all(map(all, digests))
    assert [len(each) for each in digests] == [1, 3]


def test_the_defaults_of_mappings_that_may_be_absent_are_those_of_the_schema() -> None:
    hedge = documented("WorkerPool")
    schemas = {
        one["spec"]["names"]["kind"]: one["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        for one in yaml.safe_load_all(crds())
        if one
    }
    spec = schemas["WorkerPool"]["properties"]["spec"]["properties"]
    for name, field in spec["hedge"]["properties"].items():
        assert value(hedge[f"spec.hedge.{name}"][1]) == field["default"]
    hook = schemas["MutatingWebhookConfiguration"]["properties"]["webhooks"]["items"]["properties"]
    port = hook["clientConfig"]["properties"]["service"]["properties"]["port"]["default"]
    written = documented("MutatingWebhookConfiguration")["webhooks[].clientConfig.service.port"][1]
    assert value(written) == port
