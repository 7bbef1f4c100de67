"""Reviews of access that expressions create with ``resource.post``, as the API server answers them.

Nothing is created: such a review is a check of the API server's authorizer. Everything else that an
expression could create would be a write to the cluster, which a review must not do.

Source: kubernetes pkg/registry/authorization/{subjectaccessreview,localsubjectaccessreview}/rest.go,
pkg/apis/authorization/validation; github.com/kyverno/sdk extensions/cel/libs/resource/impl.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson

from gateway.base.text import shown
from gateway.pure.admission_policies.params import UnresolvedError
from gateway.pure.cel.errors import EvaluationError
from gateway.pure.cel.meter import count_steps
from gateway.pure.core.conditions import AccessCheck, Unresolved

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gateway.pure.cel.constant_calls import Arguments
    from gateway.pure.core.conditions import AccessDecision, Decisions

    Json = dict[str, Any]

_VERSION: Final = "authorization.k8s.io/v1"
_OF_CLUSTER: Final = "subjectaccessreviews"
_KINDS: Final = {_OF_CLUSTER: "SubjectAccessReview", "localsubjectaccessreviews": "LocalSubjectAccessReview"}
_EXPECTED: Final = f"expected {' or '.join(_KINDS)} of {_VERSION}"
_NEEDS_CLUSTER: Final = (
    "found resource.post, which requires a cluster; expected GatewayConfiguration.kubernetes to name one"
)
MAX_CHECKS: Final = 32
"""Different reviews of access that the expressions of a policy create for one object."""
_STEPS: Final = 20_000


def problems_of_posts(calls: Iterable[Arguments], *, has_cluster: bool) -> Iterator[str]:
    """Yield why calls of ``resource.post`` with these arguments cannot succeed."""
    calls = sorted(calls, key=repr)
    for call in calls:
        if len(call) > 1:
            version, plural, *_ = call
            if version not in (None, _VERSION) or plural not in (None, *_KINDS):
                what = f"{plural or 'objects'} of {version or 'any version'}"
                yield f"creates {what}, which a review of the gateway cannot do, {_EXPECTED}"
    if calls and not has_cluster:
        yield _NEEDS_CLUSTER


class AccessReviews:
    """The reviews of access that one policy creates for an object."""

    def __init__(self, decisions: Decisions) -> None:
        """*decisions* are those of the authorizer so far."""
        self._decisions = decisions
        self._checks: set[AccessCheck] = set()

    def post(self, version: str, plural: str, namespace: str, review: Json) -> Json:
        """Return *review* with the decision as its status.

        Raises:
            EvaluationError: it cannot be created.
            UnresolvedError: the authorizer has to decide first.
        """
        count_steps(_STEPS)
        if version != _VERSION or plural not in _KINDS:
            found = f"found {shown(plural)} of {shown(version)}"
            raise _failed(f"permission denied: {found}, {_EXPECTED}")
        if (namespace == "") != (plural == _OF_CLUSTER):
            raise _failed("the server could not find the requested resource")
        kind = _KINDS[plural]
        for member, expected in (("apiVersion", _VERSION), ("kind", kind)):
            if review.get(member, expected) != expected:
                raise _failed(f"found {member} {shown(review[member])}, expected {expected}")
        spec = review.get("spec")
        if namespace != "":
            _check_local(spec, namespace)
        try:
            text = orjson.dumps(spec, option=orjson.OPT_SORT_KEYS)
        except TypeError:
            raise _failed("spec nests too deeply") from None
        decision = self._decision(AccessCheck(text))
        if decision.error:
            raise _failed(decision.error)
        status: Json = {"allowed": decision.allowed}
        if decision.denied:
            status["denied"] = True
        if decision.reason:
            status["reason"] = decision.reason
        if decision.evaluation_error:
            status["evaluationError"] = decision.evaluation_error
        return {"apiVersion": _VERSION, "kind": kind, "metadata": {}, **review, "status": status}

    def _decision(self, check: AccessCheck) -> AccessDecision:
        self._checks.add(check)
        if len(self._checks) > MAX_CHECKS:
            raise _failed(f"found more than {MAX_CHECKS} different reviews of access")
        decision = self._decisions.get(check)
        if decision is None:
            raise UnresolvedError(Unresolved(checks=(check,)))
        return decision


def _check_local(spec: object, namespace: str) -> None:
    """Check that the LocalSubjectAccessReview with *spec* is about *namespace*."""
    members: Json = spec if isinstance(spec, dict) else {}
    attributes = members.get("resourceAttributes")
    if attributes is not None and (
        not isinstance(attributes, dict) or attributes.get("namespace") != namespace
    ):
        raise _invalid("spec.resourceAttributes.namespace", "must match metadata.namespace")
    if members.get("nonResourceAttributes") is not None:
        raise _invalid("spec.nonResourceAttributes", "disallowed on this kind of request")


def _invalid(field: str, message: str) -> EvaluationError:
    about = 'LocalSubjectAccessReview.authorization.k8s.io "" is invalid'
    return _failed(f"{about}: {field}: Invalid value: {message}")


def _failed(reason: str) -> EvaluationError:
    return EvaluationError(f"failed to create resource: {reason}")
