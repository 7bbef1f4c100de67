"""The environments of expressions: variables, fields and functions, as in kube-apiserver 1.37.

Source: k8s.io/apiserver pkg/cel/environment/base.go, pkg/admission/plugin/cel/compile.go,
composition.go (variables of a policy).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gateway.pure.cel.authorizer import FUNCTIONS as AUTHORIZER_FUNCTIONS
from gateway.pure.cel.functions import Environment
from gateway.pure.cel.libraries import FUNCTIONS as LIBRARY_FUNCTIONS
from gateway.pure.cel.standard import standard_functions
from gateway.pure.cel.structs import FUNCTIONS as PATCH_FUNCTIONS
from gateway.pure.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    NULL,
    STRING,
    TIMESTAMP,
    UINT,
    Type,
    parse_type,
    type_of,
)
from gateway.pure.cel.values import TypeName

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gateway.pure.cel.functions import Function

GLOBALS: Final = (
    "object",
    "oldObject",
    "request",
    "namespaceObject",
    "authorizer",
    "authorizer.requestResource",
    "params",
    "(Go types)",
    "variables",
)
"""The variables, in the order of their values in a frame. Not every environment has all of them.

In place of one there is a ``GoTypes``, see ``gateway.pure.cel.go_types``."""
VARIABLES: Final = "variables"
"""The variable whose fields are the variables of a policy. Its value in a frame is a ``LazyVariables``."""

_VARIABLES: Final = {
    "object": "dyn",
    "oldObject": "dyn",
    "request": "kubernetes.AdmissionRequest",
    "namespaceObject": "kubernetes.Namespace",
    "authorizer": "kubernetes.authorization.Authorizer",
    "authorizer.requestResource": "kubernetes.authorization.ResourceCheck",
}
_TYPES: Final = {
    "bool": "bool",
    "int": "int",
    "uint": "uint",
    "double": "double",
    "string": "string",
    "bytes": "bytes",
    "list": "list(dyn)",
    "map": "map(dyn, dyn)",
    "null_type": "null_type",
    "type": "type",
    "optional_type": "optional_type(dyn)",
    "google.protobuf.Timestamp": "timestamp",
    "google.protobuf.Duration": "duration",
    "net.IP": "net.IP",
    "net.CIDR": "net.CIDR",
}
_GVK: Final = {"group": "string", "version": "string", "kind": "string"}
_GVR: Final = {"group": "string", "version": "string", "resource": "string"}
_FIELDS: Final[dict[str, dict[str, str]]] = {
    "kubernetes.AdmissionRequest": {
        "kind": "kubernetes.GroupVersionKind",
        "resource": "kubernetes.GroupVersionResource",
        "subResource": "string",
        "requestKind": "kubernetes.GroupVersionKind",
        "requestResource": "kubernetes.GroupVersionResource",
        "requestSubResource": "string",
        "name": "string",
        "namespace": "string",
        "operation": "string",
        "userInfo": "kubernetes.UserInfo",
        "dryRun": "bool",
        "options": "dyn",
    },
    "kubernetes.GroupVersionKind": _GVK,
    "kubernetes.GroupVersionResource": _GVR,
    "kubernetes.UserInfo": {
        "username": "string",
        "uid": "string",
        "groups": "list(string)",
        "extra": "map(string, list(string))",
    },
    "kubernetes.Namespace": {
        "metadata": "kubernetes.NamespaceMetadata",
        "spec": "kubernetes.NamespaceSpec",
        "status": "kubernetes.NamespaceStatus",
    },
    "kubernetes.NamespaceMetadata": {
        **dict.fromkeys(("name", "generateName", "namespace", "UID", "resourceVersion"), "string"),
        **dict.fromkeys(("labels", "annotations"), "map(string, string)"),
        **dict.fromkeys(("creationTimestamp", "deletionTimestamp"), "timestamp"),
        **dict.fromkeys(("deletionGracePeriodSeconds", "generation"), "int"),
        "finalizers": "list(string)",
    },
    "kubernetes.NamespaceSpec": {"finalizers": "list(string)"},
    "kubernetes.NamespaceStatus": {"conditions": "list(kubernetes.NamespaceCondition)", "phase": "string"},
    "kubernetes.NamespaceCondition": {
        **dict.fromkeys(("status", "type", "message", "reason"), "string"),
        "lastTransitionTime": "timestamp",
    },
}


def _functions() -> Mapping[str, tuple[Function, ...]]:
    by_name: dict[str, tuple[Function, ...]] = {}
    for each in (*standard_functions(), *LIBRARY_FUNCTIONS, *AUTHORIZER_FUNCTIONS):
        by_name[each.name] = (*by_name.get(each.name, ()), each)
    return by_name


_NAMED: Final = {name: parse_type(text) for name, text in _TYPES.items()}
TYPE_NAMES: Final = {name: TypeName(name) for name in _NAMED}
"""The names of types, as values."""
ENVIRONMENT: Final = Environment(
    {
        **{name: type_of(each) for name, each in _NAMED.items()},
        **{name: parse_type(text) for name, text in _VARIABLES.items()},
    },
    {kind: {name: parse_type(text) for name, text in fields.items()} for kind, fields in _FIELDS.items()},
    _functions(),
)
"""The environment of matchConditions of webhooks."""
_PATCH_FUNCTIONS: Final = {each.name: (each,) for each in PATCH_FUNCTIONS}
_OF_VARIABLES: Final = Type("kubernetes.variables")
_KEPT: Final = frozenset({BOOL, BYTES, DOUBLE, DURATION, INT, NULL, STRING, TIMESTAMP, UINT})


def policy_environment(
    variables: Mapping[str, Type] | None,
    *,
    has_params: bool,
    has_authorizer: bool = True,
    has_structs: bool = False,
) -> Environment:
    """Return the environment of expressions of an admission policy.

    *variables* are the types of the policy's variables that can be used, or None without ``variables``.
    With *has_structs* there are the types and functions of patches.
    """
    names = dict(ENVIRONMENT.variables)
    fields = ENVIRONMENT.fields
    if has_params:
        names["params"] = DYN
    if not has_authorizer:
        del names["authorizer"], names["authorizer.requestResource"]
    if variables is not None:
        names[VARIABLES] = _OF_VARIABLES
        fields = {**fields, _OF_VARIABLES.name: {name: _kept(each) for name, each in variables.items()}}
    functions = {**ENVIRONMENT.functions, **_PATCH_FUNCTIONS} if has_structs else ENVIRONMENT.functions
    return Environment(names, fields, functions, has_structs=has_structs)


def _kept(found: Type) -> Type:
    """Return the type of a variable whose expression has the type *found*: ``dyn`` for types of objects."""
    if found in _KEPT:
        return found
    if found.name in ("list", "map"):
        return Type(found.name, tuple(map(_kept, found.of)))
    return DYN
