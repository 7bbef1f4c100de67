"""Webhook configurations as clusters have them, random ones too, and the command as it is called."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from gateway.config.merge.load import load
from tests.kit import call_command
from tests.registration.kit import few_rules

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from subprocess import CompletedProcess

    from gateway.config.merge.model import Config

    Json = dict[str, Any]

MUTATING, VALIDATING = "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"
CLUSTERS_OWN = {
    "uid": "6f3c",
    "resourceVersion": "7",
    "generation": 3,
    "creationTimestamp": "2026-01-01T00:00:00Z",
    "managedFields": [{"manager": "helm"}],
}


def entry(name: str = "a.policies.test", **members: Any) -> Json:
    """A webhook as a cluster has it, called by a Service unless *members* replace that."""
    rule = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
    return {
        "name": name,
        "clientConfig": {"service": {"namespace": "policies", "name": "hooks", "port": 443, "path": "/a"}},
        "rules": [{**rule, "scope": "Namespaced"}],
        "failurePolicy": "Fail",
        "matchPolicy": "Equivalent",
        "namespaceSelector": {},
        "objectSelector": {},
        "sideEffects": "None",
        "timeoutSeconds": 10,
        "admissionReviewVersions": ["v1"],
        **members,
    }


def configuration(kind: str = VALIDATING, name: str = "policies", *entries: Json, **metadata: Any) -> Json:
    """A configuration as a cluster has it, with what the cluster adds."""
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name, **CLUSTERS_OWN, **metadata},
        "webhooks": list(entries or (entry(),)),
    }


def registering(name: str = "admission-gateway") -> Json:
    """What ``manifests`` registers."""
    client_config = {"service": {"namespace": "policies", "name": "gateway", "path": "/validate.fail"}}
    return configuration(
        VALIDATING, name, entry("fail.validate.admission-gateway.io", clientConfig=client_config)
    )


def run(*arguments: object) -> CompletedProcess[str]:
    """Run ``admission-gateway import``, and return how it ended."""
    return call_command("import", *arguments)


def write(file: Path, *documents: Json) -> Path:
    """Write *documents* into *file* as kubectl prints several."""
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(documents)}))
    return file


def read(folder: Path, texts: Sequence[str]) -> Config:
    """What the gateway reads in *texts*."""
    file = folder / "read.yaml"
    file.write_text("\n---\n".join(texts))
    return load([file])


def _rules(draw: st.DrawFn) -> list[Json]:
    return [
        {
            "operations": list(rule.operations),
            "apiGroups": list(rule.api_groups),
            "apiVersions": list(rule.api_versions),
            "resources": list(rule.resources),
            "scope": rule.scope,
        }
        for rule in draw(few_rules)
    ]


some_names = st.lists(st.sampled_from(["a", "b", "b.c", "b-c", "1", "yes", "0x1"]), unique=True, max_size=4)


@st.composite
def configurations(draw: st.DrawFn) -> list[Json]:
    """Some objects of both kinds, in any order, valid to the API server."""
    made = []
    texts = st.sampled_from(["", "a", "yes", "1e3", "null", "a b", "~", "- x", "é\u2028", 'say "x"'])
    selector = st.sampled_from([{}, {"matchLabels": {"team": "a", "kind": "b"}}])
    for kind in (MUTATING, VALIDATING):
        for name in draw(some_names):
            entries = []
            for number in range(draw(st.integers(0, 3))):
                own: Json = {
                    "rules": _rules(draw),
                    "failurePolicy": draw(st.sampled_from(["Fail", "Ignore"])),
                    "namespaceSelector": draw(selector),
                    "objectSelector": draw(selector),
                    "timeoutSeconds": draw(st.integers(1, 30)),
                }
                if draw(st.booleans()):
                    own["clientConfig"] = {"url": "https://hooks.test:8443/x"}
                if draw(st.booleans()):
                    del own["timeoutSeconds"], own["failurePolicy"], own["objectSelector"]
                if kind == MUTATING:
                    own["reinvocationPolicy"] = draw(st.sampled_from(["Never", "IfNeeded"]))
                entries.append({**entry(f"h{number}.policies.test"), **own})
            annotations = draw(st.dictionaries(st.sampled_from(["note", "a.test/note"]), texts))
            annotations["kubectl.kubernetes.io/last-applied-configuration"] = "{}"
            made.append({**configuration(kind, name, annotations=annotations), "webhooks": entries})
    return draw(st.permutations(made))
