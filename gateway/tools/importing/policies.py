"""Admission policies and bindings for ``import``: which, in which form, and what else they need.

Source: k8s.io/api admissionregistration/v1 types.go; kubernetes.io "Validating Admission Policy" and
"Mutating Admission Policy".
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, Final

from gateway.config.yaml.documents import ADMISSION_GROUP, GATEWAY_VERSION, POLICY_KINDS, plural_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    Json = dict[str, Any]

KINDS: Final = tuple(kind for pair in POLICY_KINDS.items() for kind in pair)
"""Each kind of policies before its bindings."""


def is_policy(document: Mapping[str, Any]) -> bool:
    """Whether *document* is a policy or a binding of Kubernetes, in any version."""
    version = document.get("apiVersion")
    return (
        isinstance(version, str)
        and version.startswith(f"{ADMISSION_GROUP}/")
        and document.get("kind") in KINDS
    )


def written(document: Json, metadata: Json, *, as_resource: bool) -> Json:
    """Return the policy or binding *document* in the form that is written, with this *metadata*."""
    version = GATEWAY_VERSION if as_resource else document["apiVersion"]
    made = {"apiVersion": version, "kind": document["kind"], "metadata": metadata}
    # Without a spec it is left for validation to reject.
    return {**made, "spec": document["spec"]} if "spec" in document else made


def param_kinds(documents: Iterable[Json]) -> list[str]:
    """Return ``KIND of APIVERSION`` of the parameters of the policies in *documents*, sorted."""
    found = set()
    for document in documents:
        match document.get("spec"):
            case {"paramKind": {"apiVersion": str(version), "kind": str(kind)}}:
                found.add(f"{kind} of {version}")
    return sorted(found)


def deletions(documents: Sequence[Json], options: Sequence[str]) -> Iterator[str]:
    """Yield the commands that end the API server's own evaluation of *documents*: bindings first.

    *options* are the options of kubectl that select the cluster.
    """
    for kind in (*POLICY_KINDS.values(), *POLICY_KINDS):
        names = [one["metadata"]["name"] for one in documents if one["kind"] == kind]
        # A command with unprintable characters would be unsafe to paste.
        if names := [name for name in names if name and name.isprintable()]:
            resource = f"{plural_of(kind)}.{ADMISSION_GROUP}"
            yield shlex.join(["kubectl", *options, "delete", resource, *names])
