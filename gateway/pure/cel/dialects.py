"""The dialects of CEL: what policies of other engines have beside or instead of Kubernetes' environment.

Source: github.com/kyverno/kyverno v1.19.1 pkg/cel/compiler/env.go, pkg/cel/policies/vpol/compiler;
github.com/open-policy-agent/gatekeeper v3.23.1 pkg/drivers/k8scel.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gateway.pure.cel.dialect_macros import ALL, NOW, OR_VALUE_ONLY
from gateway.pure.cel.environment import ENVIRONMENT, KUBERNETES, Dialect
from gateway.pure.cel.libraries import (
    certificates,
    cluster_objects,
    encoders,
    global_context,
    images,
    kyverno,
    kyverno_formats,
    mathext,
    optional_values,
    regexext,
    yaml_texts,
)
from gateway.pure.cel.types import DYN, STRING, TIMESTAMP, Type, list_of

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "CLUSTER_POLICY",
    "GATEKEEPER",
    "KUBERNETES",
    "KYVERNO",
    "KYVERNO_EXCEPTION",
    "Dialect",
    "of_kyverno",
]

_REQUEST: Final = "kubernetes.AdmissionRequest"
_EXCEPTION: Final = Type("libs.Exception")
_TEXTS: Final = list_of(STRING)


def _refusals() -> Mapping[str, str]:
    """Return the functions of Kyverno that policies here do not have, each with what to say about it."""
    network = "reads from the network, which is not supported; a worker can do it"
    writes = "writes to the cluster, which a review cannot do"
    reasons = {
        "http": {
            "post": "sends data to a server, which a review of the gateway does not; http.get only reads",
            "client": "trusts a certificate of the policy; policies.backends of the GatewayConfiguration has "
            "the certificates of each server, for http.get",
        },
        "image": {"getMetadata": network},
        "generator": {"apply": writes},
    }
    found = {
        f"{prefix}.{name}": f"{prefix}.{name} {reason}"
        for prefix, names in reasons.items()
        for camel, reason in names.items()
        for name in (camel, camel[0].upper() + camel[1:])
    }
    differs = "gives another value at each call, so that no review could be repeated; a worker can do it"
    for name in ("random", "random.random"):
        found[name] = f"{name} {differs}"
    found["json.encode"] = "json.encode always exceeds the cost limit of Kyverno; use json.marshal"
    return found


KYVERNO: Final = Dialect(
    "Kyverno",
    functions=(
        *optional_values.FUNCTIONS,
        *encoders.FUNCTIONS,
        *mathext.FUNCTIONS,
        *regexext.FUNCTIONS,
        *images.FUNCTIONS,
        *kyverno.FUNCTIONS,
        *kyverno_formats.FUNCTIONS,
        *certificates.FUNCTIONS,
        *yaml_texts.FUNCTIONS,
        *cluster_objects.OF_KYVERNO,
        *global_context.FUNCTIONS,
    ),
    macros=ALL,
    variables={
        "exceptions": _EXCEPTION,
        cluster_objects.RESOURCE: cluster_objects.CONTEXT,
        global_context.GLOBAL_CONTEXT: global_context.CONTEXT,
        NOW: TIMESTAMP,
    },
    fields={
        _REQUEST: {**ENVIRONMENT.fields[_REQUEST], "object": DYN, "oldObject": DYN},
        **kyverno.FIELDS,
        _EXCEPTION.name: {"allowedImages": _TEXTS, "allowedValues": _TEXTS},
    },
    refused=_refusals(),
    has_authorizer=False,
)
"""Policies of policies.kyverno.io. Their objects can be in ``request``, too."""
KYVERNO_EXCEPTION: Final = replace(
    KYVERNO, variables={name: of for name, of in KYVERNO.variables.items() if name != "exceptions"}
)
"""Conditions of exceptions, which decide what the variable ``exceptions`` has, and have no such variable."""
_KYVERNO_NAMESPACED: Final = replace(
    KYVERNO,
    functions=(
        *(each for each in KYVERNO.functions if each not in cluster_objects.OF_KYVERNO),
        *cluster_objects.NAMESPACED,
    ),
)
"""Those of one namespace."""


def of_kyverno(namespace: str) -> Dialect:
    """Return the dialect of the policies of *namespace*, or of all namespaces if it is empty."""
    return _KYVERNO_NAMESPACED if namespace else KYVERNO


CLUSTER_POLICY: Final = Dialect("ClusterPolicy", functions=optional_values.FUNCTIONS, macros=OR_VALUE_ONLY)
"""``validate.cel`` of Kyverno's ClusterPolicy and Policy."""
GATEKEEPER: Final = Dialect("Gatekeeper", has_authorizer=False)
"""K8sNativeValidation of Gatekeeper's ConstraintTemplates. Their loader declares the variables ``params`` and
``anyObject``."""
