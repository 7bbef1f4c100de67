"""Real policies: the same in several languages, in four sets.

``v1``, ``v4`` and ``v10`` have one, four and ten validating policies: a required label, no privileged
containers, no tag ``latest``, limits for all containers, and six more required labels. ``m4`` has four
mutating policies, each of which changes the Pod: imagePullPolicy, a label, a toleration, default requests.

``python -m loadtest.policies`` builds the workers whose tools are installed.
"""

from __future__ import annotations

import copy
import json
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from tests.languages.toolchains import PYTHON, ROOT, missing, named

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.languages.toolchains import Language

LABELS: Final = ("app", "owner", "env", "cost", "component", "version", "part-of")
"""Required labels; the policy of each is ``require-LABEL``."""
_PRIVILEGED, _LATEST, _LIMITS = "deny-privileged", "deny-latest", "require-limits"
_V10: Final = (
    *(f"require-{LABELS[0]}", _PRIVILEGED, _LATEST, _LIMITS),
    *(f"require-{label}" for label in LABELS[1:]),
)
SETS: Final[Mapping[str, Sequence[str]]] = {
    "v1": _V10[:1],
    "v4": _V10[:4],
    "v10": _V10,
    "m4": ("always-pull", "add-label", "add-toleration", "default-requests"),
}
"""The names of the policies of each set, in order."""
MUTATING: Final = "m4"
MUTATING_DOCUMENTS: Final = "m10"
"""The set of ``loadtest.policies.mutations``, which only the gateway has."""
TOLERATION: Final = {"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}
REQUESTS: Final = {"cpu": "100m", "memory": "128Mi"}

_SAMPLES: Final = named("java").product
"""Has the SDK in its class path."""
_CLASSES: Final = "workers/java/samples/target/policies"
POLICY_WORKERS: Final[Mapping[str, Language]] = {
    language.name: language
    for language in (
        replace(PYTHON, run=(sys.executable, "-m", "loadtest.policies.worker")),
        replace(
            named("go"),
            run=("workers/go/target/policies",),
            product="workers/go/target/policies",
            build="cd workers/go && go build -o target/policies ../../loadtest/policies/policies.go",
        ),
        replace(
            named("rust"),
            run=("workers/rust/target/release/policies",),
            product="workers/rust/target/release/policies",
            build="cargo build --release --manifest-path loadtest/policies/rust/Cargo.toml"
            " --target-dir workers/rust/target",
        ),
        replace(
            named("java"),
            run=("java", "-cp", f"{_SAMPLES}:{_CLASSES}", "Policies"),
            product=f"{_CLASSES}/Policies.class",
            build=f"{named('java').build} && "
            f"javac -d {_CLASSES} -cp {_SAMPLES} loadtest/policies/Policies.java",
        ),
    )
}
"""The worker of each language that has one."""


def unready(language: Language) -> str:
    """Return why the worker of *language* cannot be started now; empty if it can."""
    lacks = missing(language)
    if lacks or not language.product or (ROOT / language.product).is_file():
        return lacks
    return "not built; `python -m loadtest.policies` builds it"


def real_path(name: str) -> str:
    """Return the path at which a gateway serves the set *name*."""
    return f"/{'mutate' if name == MUTATING else 'validate'}/{name}"


def labelled(review: bytes) -> bytes:
    """Return *review* of a Pod with all ``LABELS``, and with members that kube-apiserver sends besides."""
    document: dict[str, Any] = json.loads(review)
    request = document["request"]
    request |= {"requestKind": request["kind"], "requestResource": request["resource"]}
    request["object"]["metadata"]["labels"] |= dict.fromkeys(LABELS, "x")
    return json.dumps(document, separators=(",", ":")).encode()


def violating(pod: Mapping[str, Any], policy: str) -> dict[str, Any]:
    """Return a copy of *pod*, which has all ``LABELS``, that only *policy* denies."""
    changed: dict[str, Any] = copy.deepcopy(dict(pod))
    container = changed["spec"]["containers"][0]
    if policy == _PRIVILEGED:
        container["securityContext"] = {"privileged": True}
    elif policy == _LATEST:
        container["image"] = "registry.example.com/team/app:latest"
    elif policy == _LIMITS:
        del container["resources"]
    else:
        del changed["metadata"]["labels"][policy.removeprefix("require-")]
    return changed


def mutated(pod: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of *pod* as the mutating policies leave it."""
    changed: dict[str, Any] = copy.deepcopy(dict(pod))
    changed["metadata"]["labels"]["managed"] = "true"
    changed["spec"].setdefault("tolerations", []).append(TOLERATION)
    for container in changed["spec"]["containers"]:
        container["imagePullPolicy"] = "Always"
        container.setdefault("resources", {}).setdefault("requests", REQUESTS)
    return changed
