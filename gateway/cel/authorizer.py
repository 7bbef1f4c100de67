"""``authorizer``: what an expression asks, made a SubjectAccessReview, and the answer where there is one.

Nothing is asked here. A check without an answer is noted and is an error of the expression; whoever evaluates
it asks and evaluates again.

Source: k8s.io/apiserver pkg/cel/library/authz.go, pkg/authorization/authorizer; k8s.io/api authorization/v1.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

import orjson

from gateway.cel.errors import EvaluationError
from gateway.cel.functions import function
from gateway.cel.meter import charge, charge_check
from gateway.cel.operators import no_overload
from gateway.cel.selectors import field_requirements, label_requirements
from gateway.core.conditions import Check, CheckAnswer

if TYPE_CHECKING:
    from collections.abc import Mapping

_LABEL: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)
_SUBDOMAIN: Final = re.compile(
    r"(?=.{1,253}\Z)[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*", re.ASCII
)


class Questions:
    """What an evaluation has to go on, and what it would need besides."""

    __slots__ = ("answers", "missing")

    def __init__(self) -> None:
        self.answers: Mapping[Check, CheckAnswer] = {}
        self.missing: dict[Check, None] = {}

    def ask(self, spec: dict[str, object]) -> CheckAnswer:
        """Return the answer. Raises EvaluationError: there is none yet; the question is noted."""
        question = Check(orjson.dumps(spec, option=orjson.OPT_SORT_KEYS))
        answer = self.answers.get(question)
        if answer is None:
            self.missing[question] = None
            raise EvaluationError("the authorizer has not answered yet")
        return answer


class _Incomparable:
    """A value that is equal to nothing, nor unequal."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, _: object) -> bool:
        raise no_overload()


@dataclass(frozen=True, slots=True, eq=False)
class Authorizer(_Incomparable):
    """Asks for one user."""

    cel_type: ClassVar[str] = "kubernetes.authorization.Authorizer"
    questions: Questions
    subject: dict[str, object]
    """The members of a SubjectAccessReview's spec that say who."""

    def path(self, path: str) -> PathCheck:
        """``authorizer.path(path)``."""
        charge(1)
        if not path.strip():
            raise EvaluationError("path must not be empty")
        return PathCheck(self, path)

    def group(self, group: str) -> GroupCheck:
        """``authorizer.group(group)``."""
        charge(1)
        return GroupCheck(self, group)

    def service_account(self, namespace: str, name: str) -> Authorizer:
        """``authorizer.serviceAccount(namespace, name)``: the same questions for another user."""
        charge(1)
        if len(name) > 253 or not _SUBDOMAIN.fullmatch(name):
            raise EvaluationError("Invalid service account name")
        if not _LABEL.fullmatch(namespace):
            raise EvaluationError("Invalid service account namespace")
        groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}"]
        return Authorizer(
            self.questions, {"user": f"system:serviceaccount:{namespace}:{name}", "groups": groups}
        )


@dataclass(frozen=True, slots=True, eq=False)
class PathCheck(_Incomparable):
    """Asks about a path of the API server's that is no resource."""

    cel_type: ClassVar[str] = "kubernetes.authorization.PathCheck"
    authorizer: Authorizer
    path: str

    def check(self, verb: str) -> Decision:
        """``….check(verb)``."""
        charge_check()
        asked = {"nonResourceAttributes": _present(path=self.path, verb=verb)}
        return Decision(self.authorizer.questions.ask({**self.authorizer.subject, **asked}))


@dataclass(frozen=True, slots=True, eq=False)
class GroupCheck(_Incomparable):
    """Asks about a group of resources."""

    cel_type: ClassVar[str] = "kubernetes.authorization.GroupCheck"
    authorizer: Authorizer
    group: str

    def resource(self, resource: str) -> ResourceCheck:
        """``….resource(resource)``."""
        charge(1)
        if not resource.strip():
            raise EvaluationError("resource must not be empty")
        return ResourceCheck(self.authorizer, {"group": self.group, "resource": resource})


@dataclass(frozen=True, slots=True, eq=False)
class ResourceCheck(_Incomparable):
    """Asks about a resource."""

    cel_type: ClassVar[str] = "kubernetes.authorization.ResourceCheck"
    authorizer: Authorizer
    attributes: dict[str, str]
    """Members of ``resourceAttributes``; those that are empty are left out when it is asked."""
    field_selector: str = ""
    label_selector: str = ""

    def check(self, verb: str) -> Decision:
        """``….check(verb)``. A selector that cannot be read is left out."""
        charge_check()
        asked: dict[str, object] = {**_present(verb=verb, **self.attributes), "version": "*"}
        if self.field_selector and (fields := field_requirements(self.field_selector)):
            asked["fieldSelector"] = {"requirements": fields}
        if self.label_selector and (labels := label_requirements(self.label_selector)):
            asked["labelSelector"] = {"requirements": labels}
        spec = {**self.authorizer.subject, "resourceAttributes": asked}
        return Decision(self.authorizer.questions.ask(spec))


@dataclass(frozen=True, slots=True, eq=False)
class Decision(_Incomparable):
    """What the authorizer said."""

    cel_type: ClassVar[str] = "kubernetes.authorization.Decision"
    answer: CheckAnswer = field(default_factory=CheckAnswer)


def _present(**members: str) -> dict[str, str]:
    return {name: value for name, value in members.items() if value}


def _narrowed(name: str, check: ResourceCheck, value: str) -> ResourceCheck:
    charge(1)
    attributes = {**check.attributes, name: value}
    return ResourceCheck(check.authorizer, attributes, check.field_selector, check.label_selector)


def _selected(name: str, check: ResourceCheck, selector: str) -> ResourceCheck:
    """The price is that of as many requirements as the selector has room for."""
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
    function(
        "decision_allowed", f"{_DECISION}::allowed() -> bool", lambda decision: decision.answer.allowed, 1
    ),
    function(
        "decision_reason", f"{_DECISION}::reason() -> string", lambda decision: decision.answer.reason, 1
    ),
    function("decision_error", f"{_DECISION}::error() -> string", lambda decision: decision.answer.error, 1),
    function(
        "decision_errored", f"{_DECISION}::errored() -> bool", lambda decision: bool(decision.answer.error), 1
    ),
)
