"""The environments of expressions: variables, fields and functions, as in kube-apiserver 1.37.

Source: k8s.io/apiserver pkg/cel/environment/base.go, pkg/admission/plugin/cel/compile.go,
composition.go (variables of a policy).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import TYPE_CHECKING, Final

from gateway.pure.cel.authorizer import FUNCTIONS as AUTHORIZER_FUNCTIONS
from gateway.pure.cel.functions import Environment
from gateway.pure.cel.libraries import FUNCTIONS as LIBRARY_FUNCTIONS
from gateway.pure.cel.libraries import cluster_objects
from gateway.pure.cel.standard import standard_functions
from gateway.pure.cel.structs import FUNCTIONS as PATCH_FUNCTIONS
from gateway.pure.cel.types import DYN, OF_VARIABLES, Type, parse_type, type_of
from gateway.pure.cel.values import TypeName

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gateway.pure.cel.functions import Function, Macro

GLOBALS: Final = (
    "object",
    "oldObject",
    "request",
    "namespaceObject",
    "authorizer",
    "authorizer.requestResource",
    "params",
    "resource",
    "(Go types)",
    "variables",
)
"""The variables, in the order of their values in a frame. Not every environment has all of them.

The value of ``resource`` is a ``ClusterObjects``, or None if no expression uses it. In place of one variable
there is a ``GoTypes``, see ``gateway.pure.cel.go_types``."""
SLOTS: Final[Mapping[str, int]] = {
    **{name: number for number, name in enumerate(GLOBALS)},
    "exceptions": GLOBALS.index("params"),
    "globalContext": GLOBALS.index("authorizer.requestResource"),
    "@now": GLOBALS.index("authorizer"),
}
"""The position of each variable in a frame. Variables of a dialect are in place of some that it lacks:
``exceptions``, ``globalContext``, a ``GlobalContext``, and ``@now``, a ``Timestamp``."""
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


def _with(
    functions: Mapping[str, tuple[Function, ...]], more: Iterable[Function]
) -> Mapping[str, tuple[Function, ...]]:
    by_name = dict(functions)
    for each in more:
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
    _with({}, (*standard_functions(), *LIBRARY_FUNCTIONS, *AUTHORIZER_FUNCTIONS)),
)
"""The environment of matchConditions of webhooks."""
_PATCH_FUNCTIONS: Final = {each.name: (each,) for each in PATCH_FUNCTIONS}


@dataclass(frozen=True, eq=False)
class Dialect:
    """How the expressions of one kind of policies differ from those of Kubernetes."""

    name: str
    functions: tuple[Function, ...] = ()
    """Functions beside those of Kubernetes. Overloads of the same name come after those of Kubernetes."""
    macros: Mapping[str, Macro] = field(default_factory=dict)
    """Macros beside those of Kubernetes, by the name in a call."""
    variables: Mapping[str, Type] = field(default_factory=dict)
    """Variables beside those of Kubernetes; ``SLOTS`` has their names."""
    fields: Mapping[str, Mapping[str, Type]] = field(default_factory=dict)
    """The fields of object types, beside those of Kubernetes or instead of them."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Functions that policies elsewhere have and the gateway does not, each with what to say about it."""
    has_authorizer: bool = True

    @cached_property
    def all_functions(self) -> Mapping[str, tuple[Function, ...]]:
        """All functions by name, with those of Kubernetes."""
        return _with(ENVIRONMENT.functions, self.functions) if self.functions else ENVIRONMENT.functions

    @cached_property
    def functions_for_patches(self) -> Mapping[str, tuple[Function, ...]]:
        """All functions by name, with those for patches."""
        return {**self.all_functions, **_PATCH_FUNCTIONS}

    @cached_property
    def all_fields(self) -> Mapping[str, Mapping[str, Type]]:
        """The fields of all object types."""
        return {**ENVIRONMENT.fields, **self.fields} if self.fields else ENVIRONMENT.fields


KUBERNETES: Final = Dialect(
    "Kubernetes",
    functions=cluster_objects.FUNCTIONS,
    variables={cluster_objects.RESOURCE: cluster_objects.CONTEXT},
)
"""The expressions of admission policies, with the reads of objects that the API server's do not have."""


def policy_environment(
    variables: Mapping[str, Type] | None,
    *,
    has_params: bool,
    has_authorizer: bool = True,
    has_structs: bool = False,
    dialect: Dialect = KUBERNETES,
) -> Environment:
    """Return the environment of expressions of an admission policy.

    *variables* are the types of the policy's variables that can be used, or None without ``variables``.
    With *has_structs* there are the types and functions of patches.
    """
    return Environment(
        _names(
            dialect,
            has_params=has_params,
            has_authorizer=has_authorizer and dialect.has_authorizer,
            has_variables=variables is not None,
        ),
        dialect.all_fields,
        dialect.functions_for_patches if has_structs else dialect.all_functions,
        has_structs=has_structs,
        macros=dialect.macros,
        refused=dialect.refused,
        policy_variables=variables,
    )


@cache
def _names(
    dialect: Dialect, *, has_params: bool, has_authorizer: bool, has_variables: bool
) -> Mapping[str, Type]:
    """Return the types of the variables of *dialect*. They are the same for all of its policies."""
    names = {**ENVIRONMENT.variables, **dialect.variables}
    if has_params:
        names["params"] = DYN
    if not has_authorizer:
        del names["authorizer"], names["authorizer.requestResource"]
    if has_variables:
        names[VARIABLES] = OF_VARIABLES
    return names
