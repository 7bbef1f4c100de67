"""``authorizer``: the values and functions with which an expression checks what a user may do.

A check becomes the spec of a SubjectAccessReview, and the ``Decide`` function of the caller decides on it.

Source: k8s.io/apiserver pkg/cel/library/authz.go, pkg/authorization/authorizer; k8s.io/api authorization/v1.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

from gateway.pure.cel.errors import EvaluationError
from gateway.pure.cel.functions import function
from gateway.pure.cel.meter import charge, charge_check, count_text
from gateway.pure.cel.operators import no_overload
from gateway.pure.cel.selectors import field_requirements, label_requirements

if TYPE_CHECKING:
    from collections.abc import Callable

    Decide = Callable[[dict[str, object]], "Decision"]
    """Returns the decision on a SubjectAccessReview with this spec. Raises EvaluationError: there is none."""

_LABEL: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)
_SUBDOMAIN: Final = re.compile(
    r"(?=.{1,253}\Z)[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*", re.ASCII
)


class _Incomparable:
    """A value without equality: a comparison is an error."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, _: object) -> bool:
        raise no_overload()


@dataclass(frozen=True, slots=True, eq=False)
class Authorizer(_Incomparable):
    """The authorizer for one user."""

    cel_type: ClassVar[str] = "kubernetes.authorization.Authorizer"
    decide: Decide
    subject: dict[str, object]
    """The members of a SubjectAccessReview's spec that describe the user."""

    def path(self, path: str) -> PathCheck:
        """``authorizer.path(path)``."""
        charge(1)
        count_text(len(path))
        if not path.strip():
            raise EvaluationError("path must not be empty")
        return PathCheck(self, path)

    def group(self, group: str) -> GroupCheck:
        """``authorizer.group(group)``."""
        charge(1)
        count_text(len(group))
        return GroupCheck(self, group)

    def service_account(self, namespace: str, name: str) -> Authorizer:
        """``authorizer.serviceAccount(namespace, name)``: the authorizer for another user."""
        charge(1)
        if len(name) > 253 or not _SUBDOMAIN.fullmatch(name):
            raise EvaluationError("Invalid service account name")
        if not _LABEL.fullmatch(namespace):
            raise EvaluationError("Invalid service account namespace")
        groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}"]
        return Authorizer(
            self.decide, {"user": f"system:serviceaccount:{namespace}:{name}", "groups": groups}
        )


@dataclass(frozen=True, slots=True, eq=False)
class PathCheck(_Incomparable):
    """Checks of a path of the API server that is not a resource."""

    cel_type: ClassVar[str] = "kubernetes.authorization.PathCheck"
    authorizer: Authorizer
    path: str

    def check(self, verb: str) -> Decision:
        """``….check(verb)``."""
        charge_check()
        attributes = _present(path=self.path, verb=verb)
        return self.authorizer.decide({**self.authorizer.subject, "nonResourceAttributes": attributes})


@dataclass(frozen=True, slots=True, eq=False)
class GroupCheck(_Incomparable):
    """Checks of resources of an API group."""

    cel_type: ClassVar[str] = "kubernetes.authorization.GroupCheck"
    authorizer: Authorizer
    group: str

    def resource(self, resource: str) -> ResourceCheck:
        """``….resource(resource)``."""
        charge(1)
        count_text(len(resource))
        if not resource.strip():
            raise EvaluationError("resource must not be empty")
        return ResourceCheck(self.authorizer, {"group": self.group, "resource": resource})


@dataclass(frozen=True, slots=True, eq=False)
class ResourceCheck(_Incomparable):
    """Checks of a resource."""

    cel_type: ClassVar[str] = "kubernetes.authorization.ResourceCheck"
    authorizer: Authorizer
    attributes: dict[str, str]
    """Members of ``resourceAttributes``; empty ones are left out of a check."""
    field_selector: str = ""
    label_selector: str = ""

    def check(self, verb: str) -> Decision:
        """``….check(verb)``. A selector that cannot be parsed is left out."""
        charge_check()
        attributes: dict[str, object] = {**_present(verb=verb, **self.attributes), "version": "*"}
        if self.field_selector and (fields := field_requirements(self.field_selector)):
            attributes["fieldSelector"] = {"requirements": fields}
        if self.label_selector and (labels := label_requirements(self.label_selector)):
            attributes["labelSelector"] = {"requirements": labels}
        return self.authorizer.decide({**self.authorizer.subject, "resourceAttributes": attributes})


@dataclass(frozen=True, slots=True, eq=False)
class Decision(_Incomparable):
    """The authorizer's decision on a check."""

    cel_type: ClassVar[str] = "kubernetes.authorization.Decision"
    allowed: bool = False
    reason: str = ""
    error: str = ""
    """Why there is no decision; empty if there is one."""


def _present(**members: str) -> dict[str, str]:
    return {name: value for name, value in members.items() if value}


def _narrowed(name: str, check: ResourceCheck, value: str) -> ResourceCheck:
    charge(1)
    count_text(len(value))
    attributes = {**check.attributes, name: value}
    return ResourceCheck(check.authorizer, attributes, check.field_selector, check.label_selector)


def _selected(name: str, check: ResourceCheck, selector: str) -> ResourceCheck:
    """Costs as much as the largest number of requirements that fits into the selector."""
    charge(10 + math.ceil(0.1 * len(selector)) + math.ceil(0.5 * len(selector)) * 50)
    if name == "fieldSelector":
        return replace(check, field_selector=selector)
    return replace(check, label_selector=selector)


_TYPES: Final = {
    each.__name__: each.cel_type for each in (Authorizer, PathCheck, GroupCheck, ResourceCheck, Decision)
}
_RESOURCE: Final = _TYPES["ResourceCheck"]
_DECISION: Final = _TYPES["Decision"]

FUNCTIONS: Final = (
    function(
        "authorizer_path", f"{Authorizer.cel_type}::path(string) -> {PathCheck.cel_type}", Authorizer.path
    ),
    function(
        "authorizer_group", f"{Authorizer.cel_type}::group(string) -> {GroupCheck.cel_type}", Authorizer.group
    ),
    function(
        "authorizer_serviceaccount",
        f"{Authorizer.cel_type}::serviceAccount(string, string) -> {Authorizer.cel_type}",
        Authorizer.service_account,
    ),
    function(
        "groupcheck_resource", f"{GroupCheck.cel_type}::resource(string) -> {_RESOURCE}", GroupCheck.resource
    ),
    *(
        function(
            f"resourcecheck_{name}",
            f"{_RESOURCE}::{name}(string) -> {_RESOURCE}",
            partial(_narrowed, name),
        )
        for name in ("subresource", "namespace", "name")
    ),
    *(
        function(
            f"authorizer_{name.lower()}",
            f"{_RESOURCE}::{name}(string) -> {_RESOURCE}",
            partial(_selected, name),
        )
        for name in ("fieldSelector", "labelSelector")
    ),
    function("pathcheck_check", f"{PathCheck.cel_type}::check(string) -> {_DECISION}", PathCheck.check),
    function("resourcecheck_check", f"{_RESOURCE}::check(string) -> {_DECISION}", ResourceCheck.check),
    function("decision_allowed", f"{_DECISION}::allowed() -> bool", lambda decision: decision.allowed, 1),
    function("decision_reason", f"{_DECISION}::reason() -> string", lambda decision: decision.reason, 1),
    function("decision_error", f"{_DECISION}::error() -> string", lambda decision: decision.error, 1),
    function("decision_errored", f"{_DECISION}::errored() -> bool", lambda decision: bool(decision.error), 1),
)
