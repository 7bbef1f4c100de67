"""``authorizer`` in matchConditions: checks as SubjectAccessReviews, and the decisions known so far.

Nothing is sent from here. A check without a decision is noted as missing, and an error of the expression; the
conditions are evaluated again once the decision is there.

Source: k8s.io/apiserver pkg/authorization/authorizer; k8s.io/api authorization/v1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from gateway.pure.cel.authorizer import Decision
from gateway.pure.cel.errors import EvaluationError
from gateway.pure.core.conditions import AccessCheck

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gateway.pure.core.conditions import AccessDecision

_SUBJECT = (("user", "username"), ("uid", "uid"), ("groups", "groups"), ("extra", "extra"))
"""Members of a SubjectAccessReview's spec and of ``userInfo``."""


def subject_of(user_info: object) -> dict[str, object]:
    """Return the members of a SubjectAccessReview's spec that describe the user of a request."""
    # The type of userInfo is not checked when a review is decoded.
    user = user_info if isinstance(user_info, dict) else {}
    return {name: user[member] for name, member in _SUBJECT if user.get(member)}


class KnownDecisions:
    """The authorizer's decisions that an evaluation can use, and the checks whose decisions it lacks."""

    __slots__ = ("decisions", "missing")

    def __init__(self) -> None:
        self.decisions: Mapping[AccessCheck, AccessDecision] = {}
        self.missing: dict[AccessCheck, None] = {}

    def decide(self, spec: dict[str, object]) -> Decision:
        """Return the decision on the SubjectAccessReview with *spec*.

        Raises:
            EvaluationError: there is none yet; the check is noted in ``missing``.
        """
        check = AccessCheck(orjson.dumps(spec, option=orjson.OPT_SORT_KEYS))
        decision = self.decisions.get(check)
        if decision is None:
            self.missing[check] = None
            raise EvaluationError("the authorizer's decision is not known yet")
        return Decision(decision.allowed, decision.reason, decision.error)
