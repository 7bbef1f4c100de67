"""Actions on rollout plans by page: what a form asks for, and whether its sender may.

A form says who asks, with a password of ``pages.actions``. A browser adds neither by itself, so the page of
another site can ask for nothing. It names the decisions that the page showed: if there is another one since,
it is refused.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from admission_gateway_worker.text import printable
from gateway.base.text import one_of
from gateway.observe.decisions.rate import TokenBucket
from gateway.server.rollout.actions import ACTS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gateway.server.serving.page_access import PageAccess

WRONG_PER_SECOND: Final = 0.2
WRONG_AT_ONCE: Final = 5
"""Wrong passwords: while there are more, right ones are refused too, as they cannot be told apart by time."""
_MAX_WHO: Final = 100
_MAX_WHY: Final = 500
_MAX_PASSWORD: Final = 1024
BY_PAGE: Final = " by page"
"""After the name of who acts."""

log = logging.getLogger(__name__)


class Asked(NamedTuple):
    """What a form asks for."""

    action: str
    seen: str
    """``gateway.server.rollout.actions.seen_of`` what was shown."""
    who: str
    why: str

    @classmethod
    def of(cls, fields: Mapping[str, str]) -> Asked:
        """Return what *fields* ask for, unchecked, without spaces around it."""
        return cls(*(fields.get(name, "").strip() for name in cls._fields))


class Guard:
    """Decides which forms are obeyed, for one gateway."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """*clock* returns seconds, and never goes back."""
        self._clock = clock
        self._wrong = TokenBucket(WRONG_PER_SECOND, WRONG_AT_ONCE)

    def refusal(self, access: PageAccess, asked: Asked, password: str) -> tuple[int, str] | None:
        """Return the status and the reason why *asked* is not obeyed; None if it is."""
        if asked.action not in ACTS:
            return 400, f"action: found {printable(asked.action, 20)}, expected {one_of(ACTS)}"
        if not asked.who or len(asked.who) > _MAX_WHO or ":" in asked.who:
            return 400, f"expected your name, of at most {_MAX_WHO} characters without a colon"
        if not asked.why or len(asked.why) > _MAX_WHY:
            return 400, f"expected a reason of at most {_MAX_WHY} characters"
        now = self._clock()
        if self._wrong.next_at > now:
            return 429, "too many wrong passwords, try again in some seconds or use the command"
        if len(password) > _MAX_PASSWORD or not access.may_act(asked.who, password):
            self._wrong.take(now)
            log.warning("a page was asked to %s a plan with a wrong name or password", asked.action)
            return 403, "the name or the password is wrong"
        return None
