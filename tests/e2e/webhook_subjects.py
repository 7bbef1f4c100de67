"""The cases of webhooks by subject: each subject is a file of recorded answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tests.e2e import cases, denial_cases, operation_cases
from tests.recorded.recording import path_of

if TYPE_CHECKING:
    from tests.e2e.compare import Case
    from tests.e2e.setups import Hook

CAPTURED: Final = "captured"
"""Name of the registration that records reviews. The API server calls it first, in the order of names."""


@dataclass(frozen=True)
class WebhookSubject:
    """Cases whose webhooks are in force at the same time."""

    name: str
    cases: tuple[Case, ...]
    over_https: tuple[int, ...]
    """How to run them in memory: 0 with workers, 1 over HTTPS, and 2 with every other webhook over HTTPS."""

    @property
    def hooks(self) -> list[Hook]:
        """All webhooks."""
        return [hook for case in self.cases for hook in case.confined()]

    @property
    def sent(self) -> dict[str, list[object]]:
        """The documents of the operations of each case."""
        return {case.name: [one.document for one in case.operations] for case in self.cases}


DENIALS: Final = WebhookSubject("denials", (denial_cases.CASE,), (1,))
WEBHOOKS: Final = WebhookSubject(
    "webhooks", (*cases.POLICIES, *operation_cases.OPERATIONS, cases.DEFAULTS, cases.LONG_WARNING), (0, 2)
)
WEBHOOK_FILES: Final = {path_of(each.name): each for each in (DENIALS, WEBHOOKS)}
