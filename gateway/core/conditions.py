"""matchConditions as the evaluation knows them: what judges a request, perhaps only once it was told more.

Expressions are compiled and evaluated elsewhere (``gateway.cel``), and whoever drives the evaluation asks the
API server's authorizer. What passes between the three is here.

Source: kubernetes/apiserver plugin/webhook/matchconditions/matcher.go.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from gateway.core.verdict import Failed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Json = dict[str, object]


@dataclass(frozen=True, slots=True)
class Check:
    """A question to the authorizer. Equal questions are asked once within a review."""

    spec: bytes
    """The spec of a SubjectAccessReview (authorization.k8s.io/v1): compact JSON with sorted keys."""


@dataclass(frozen=True, slots=True)
class CheckAnswer:
    """What the authorizer said."""

    allowed: bool = False
    reason: str = ""
    error: str = ""
    """Why it could not be found out; empty where it could."""


class Seen:
    """What conditions look at: the request, and the object as it is at one point of the evaluation."""

    __slots__ = ("document", "object", "old_object", "prepared")

    def __init__(self, document: Json, current: Json | None, old: Json | None) -> None:
        self.document = document
        """The AdmissionRequest, parsed. Its ``object`` is the one that came, and not to be looked at."""
        self.object = current
        """Null on DELETE, as is the other on CREATE."""
        self.old_object = old
        self.prepared: object | None = None
        """What the conditions made of it, kept for the next webhook's."""


@dataclass(frozen=True, slots=True)
class Excluded:
    """A condition is false: the webhook is not for this request."""

    condition: str
    """The name of the first one that is."""
    errors: int = 0
    """How many before it could not be evaluated, which does not matter then."""


@dataclass(frozen=True, slots=True)
class Unanswered:
    """No judgement before the authorizer has answered, or before it was thought about at more length."""

    checks: tuple[Check, ...] = ()
    work: Work | None = None
    """To be called in another thread."""


class Work:
    """Comes to a judgement, which takes long."""

    __slots__ = ("_judge", "of")

    def __init__(self, of: MatchConditions, judge: Callable[[], Judgement]) -> None:
        self.of = of
        """Whose it is: those whose work takes longer than that of others are not to keep these waiting."""
        self._judge = judge

    def __call__(self) -> Judgement:
        """Do it."""
        return self._judge()


class MatchConditions(Protocol):
    """The conditions of one webhook, compiled."""

    @property
    def needs_authorizer(self) -> bool:
        """Whether any of them mentions ``authorizer``."""

    def judge(self, seen: Seen, answers: Mapping[Check, CheckAnswer]) -> Judgement:
        """Return None if the webhook is to be called, else why it is not, or not yet.

        Failed where they cannot be evaluated; *answers* are those that the authorizer has given so far.
        """


Judgement = Excluded | Failed | Unanswered | None
Question = Check | Work
