"""The dialects of CEL: what policies of other engines have beside or instead of Kubernetes' environment.

Source: github.com/kyverno/kyverno v1.19.1 pkg/cel/compiler/env.go, pkg/cel/policies/vpol/compiler;
github.com/open-policy-agent/gatekeeper v3.23.1 pkg/drivers/k8scel.
"""

from __future__ import annotations

from typing import Final

from gateway.pure.cel.dialect_macros import or_value
from gateway.pure.cel.environment import ENVIRONMENT, KUBERNETES, Dialect
from gateway.pure.cel.libraries import optional_values
from gateway.pure.cel.types import DYN, STRING, Type, list_of

__all__ = ["CLUSTER_POLICY", "GATEKEEPER", "KUBERNETES", "KYVERNO", "Dialect"]

_REQUEST: Final = "kubernetes.AdmissionRequest"
_EXCEPTION: Final = Type("libs.Exception")
_TEXTS: Final = list_of(STRING)

KYVERNO: Final = Dialect(
    "Kyverno",
    functions=optional_values.FUNCTIONS,
    macros={"orValue": or_value},
    variables={"exceptions": _EXCEPTION},
    fields={
        _REQUEST: {**ENVIRONMENT.fields[_REQUEST], "object": DYN, "oldObject": DYN},
        _EXCEPTION.name: {"allowedImages": _TEXTS, "allowedValues": _TEXTS},
    },
    has_authorizer=False,
)
"""Policies of policies.kyverno.io. Their objects can be in ``request``, too."""
CLUSTER_POLICY: Final = Dialect(
    "ClusterPolicy", functions=optional_values.FUNCTIONS, macros={"orValue": or_value}
)
"""``validate.cel`` of Kyverno's ClusterPolicy and Policy."""
GATEKEEPER: Final = Dialect("Gatekeeper", has_authorizer=False)
"""K8sNativeValidation of Gatekeeper's ConstraintTemplates. Their loader declares the variables ``params`` and
``anyObject``."""
