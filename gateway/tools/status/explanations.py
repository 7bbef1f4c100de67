"""What a running gateway says to a review: a dry run by its configuration in force, without an effect.

See docs/pages.md, "Explain".
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from gateway.base.errors import GatewayError, MalformedReview
from gateway.observe.decisions.document import names_with_modes, not_enforced
from gateway.pure.core.decision import WOULD_BE_REFUSED
from gateway.tools.status.decisions import webhook_lines
from gateway.tools.status.reading import WRONG_ANSWER, message_of, parsed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    Json = dict[str, Any]

_ATTEMPTS: Final = 60
_PAUSE_S: Final = 1.0
"""A gateway explains one review a second, and ten at once."""
_OK, _BAD_REQUEST, _TOO_MANY = 200, 400, 429


class ExplainingPort(Protocol):
    """The admin port of a gateway that takes reviews."""

    @property
    def name(self) -> str:
        """The name of the gateway, for people."""

    async def post(self, path: str, body: bytes) -> tuple[int, bytes]:
        """Return status and body of the answer to *body*.

        Raises:
            GatewayError: there is none.
        """


class Explanation(NamedTuple):
    """What one gateway said."""

    gateway: str
    decisions: list[Json]
    """One for each phase that was reached, with all details, as behind the page of a decision."""

    @property
    def is_allowed(self) -> bool:
        """Whether the object would be stored."""
        return all(one["allowed"] for one in self.decisions)

    @property
    def not_enforced(self) -> str:
        """Which webhooks only their modes kept from refusing it. Empty if none, or if it is refused."""
        refusing = [hook for one in self.decisions for hook in not_enforced(one)]
        return f"{WOULD_BE_REFUSED} by {names_with_modes(refusing)}" if self.is_allowed and refusing else ""

    def lines(self, *, only_effects: bool = False) -> list[str]:
        """Return lines about the webhooks; with *only_effects* without those that only allowed it."""
        return [
            line for one in self.decisions for line in webhook_lines(_effects(one) if only_effects else one)
        ]


async def explain(ports: Iterable[ExplainingPort], review: bytes) -> Explanation:
    """Return what the first of *ports* that answers says to *review*, the JSON of an AdmissionReview.

    Raises:
        MalformedReview: the gateway cannot read it.
        GatewayError: no gateway answers; the text has a line for each.
    """
    errors = []
    for port in ports:
        try:
            return _checked(Explanation(port.name, await _ask(port, review)))
        except MalformedReview:
            raise
        except GatewayError as error:
            errors.append(f"{port.name}: {error}")
        except WRONG_ANSWER:
            errors.append(f"{port.name}: is this a gateway's admin port?")
    raise GatewayError("no gateway answers: " + "; ".join(errors))


async def _ask(port: ExplainingPort, review: bytes) -> list[Json]:
    for _ in range(_ATTEMPTS):
        status, body = await port.post("/explain?format=json", review)
        if status != _TOO_MANY:
            break
        await asyncio.sleep(_PAUSE_S)
    if status == _BAD_REQUEST:
        raise MalformedReview(message_of(body) or "the gateway cannot read it")
    if status != _OK:
        raise GatewayError(message_of(body) or f"the pages answer {status}")
    explanation = parsed(body)
    decisions: Sequence[Json] = explanation["decisions"]
    # An older gateway does not name endpoints.
    names = explanation.get("endpointNames", {})
    # Another program may answer with anything, and what is not kept cannot be looked up by its uid.
    return [
        {
            **one,
            "warnings": [text for text in one["warnings"] if one["uid"] not in text],
            "endpointNames": names,
        }
        for one in decisions
    ]


def _checked(explanation: Explanation) -> Explanation:
    """Return *explanation*. Raises what its use raises: another program may answer with anything."""
    lines = (*explanation.lines(), *explanation.lines(only_effects=True), explanation.not_enforced)
    for one in explanation.decisions:
        _ = "".join((one["configurationDigest"], *lines)), one["finalObject"]
    return explanation


def _effects(one: Json) -> Json:
    """Return the decision *one* with the webhooks that did more than to allow it."""
    hooks = [hook for hook in one["webhooks"] if hook["outcome"] != "Allowed" or hook["changed"]]
    left_out = [hook for hook in one["notCalled"] if hook["reason"].startswith("not called here")]
    return {**one, "webhooks": hooks, "notCalled": left_out}
