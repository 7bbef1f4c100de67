"""A document of each kind of policies that can have a rollout, with what it needs, in tests."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tests.config import test_mutating_policies as mutating
from tests.config import test_policies as validating
from tests.gatekeeper import documents as gatekeeper
from tests.kubewarden import test_documents as kubewarden
from tests.kyverno import documents as kyverno
from tests.kyverno import test_worker_rules as rules

if TYPE_CHECKING:
    from collections.abc import Callable

Json = dict[str, Any]

ROLLOUT: Final = "admission-gateway.io/rollout"
AT: Final = f'metadata.annotations["{ROLLOUT}"]'
_CEL: Final[Json] = {"cel": {"expressions": [{"expression": "false"}]}}
_GATEKEEPER: Final = {
    "apiVersion": "admission-gateway.io/v1alpha1",
    "kind": "GatewayConfiguration",
    "policies": {"engines": {"gatekeeper": {"pool": "wasm"}}},
}


class Kind(NamedTuple):
    """A kind of documents that have a rollout."""

    document: Callable[[], Json]
    others: tuple[Json, ...]
    """What the document needs."""
    names: tuple[str, ...]
    """Phase and name of the entries that it makes."""
    softer: Json | None = None
    """Members of a spec whose own action does not deny. None if it has no action."""
    softer_field: str = ""


KINDS: Final[dict[str, Kind]] = {
    "ValidatingAdmissionPolicyBinding": Kind(
        validating.binding,
        (validating.policy(),),
        ("validate p",),
        {"validationActions": ["Warn", "Audit"]},
        "validationActions",
    ),
    "MutatingAdmissionPolicyBinding": Kind(mutating.binding, (mutating.policy(),), ("mutate p",)),
    "ValidatingPolicy": Kind(
        lambda: kyverno.validating("false"),
        (),
        ("validate p",),
        {"validationActions": ["Warn"]},
        "validationActions",
    ),
    "NamespacedValidatingPolicy": Kind(
        lambda: kyverno.validating("false", namespace="n"),
        (),
        ("validate n/p",),
        {"validationActions": ["Audit"]},
        "validationActions",
    ),
    "MutatingPolicy": Kind(lambda: kyverno.mutating("Object{}"), (), ("mutate p",)),
    "NamespacedMutatingPolicy": Kind(
        lambda: kyverno.mutating("Object{}", namespace="n"), (), ("mutate n/p",)
    ),
    "ClusterPolicy in CEL": Kind(
        lambda: rules.policy(rules.validate(**_CEL)),
        (),
        ("validate p",),
        {"validationFailureAction": "Audit"},
        "rules",
    ),
    "ClusterPolicy for the worker": Kind(
        lambda: rules.policy(rules.validate("r"), rules.mutate("m")),
        (rules.engines(), rules.POOL),
        ("mutate p/m", "validate p/r"),
        {"validationFailureActionOverrides": [{"action": "Audit", "namespaces": ["a"]}]},
        "rules",
    ),
    "Policy": Kind(
        lambda: rules.policy(rules.validate(**_CEL), namespace="n"),
        (),
        ("validate n/p",),
        {"validationFailureAction": "Audit"},
        "rules",
    ),
    "constraint in CEL": Kind(
        gatekeeper.constraint,
        (gatekeeper.template("NeedsLabels", "false"),),
        ("validate c",),
        {"enforcementAction": "warn"},
        "enforcementAction",
    ),
    "constraint in Rego": Kind(
        gatekeeper.constraint,
        (gatekeeper.rego_template(), _GATEKEEPER, kubewarden.POOL),
        ("validate c",),
        {"enforcementAction": "dryrun"},
        "enforcementAction",
    ),
    "mutator": Kind(gatekeeper.mutator, (_GATEKEEPER, kubewarden.POOL), ("mutate m",)),
    "ClusterAdmissionPolicy": Kind(
        kubewarden.policy,
        (kubewarden.engines(), kubewarden.POOL),
        ("validate p",),
        {"mode": "monitor"},
        "mode",
    ),
    "mutating AdmissionPolicy": Kind(
        lambda: kubewarden.policy(namespace="n", mutating=True),
        (kubewarden.engines(), kubewarden.POOL),
        ("mutate n/p",),
        {"mode": "monitor"},
        "mode",
    ),
}
"""By the name of the kind."""


def annotated(kind: Kind, rollout: object, **spec: Any) -> list[Json]:
    """Return the documents of *kind* with *rollout*: a text, or what is written as JSON."""
    document = kind.document()
    value = rollout if isinstance(rollout, str) else json.dumps(rollout)
    document["metadata"].setdefault("annotations", {})[ROLLOUT] = value
    document["spec"] |= spec
    return [*kind.others, document]
