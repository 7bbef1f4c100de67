"""Parameters of policies: prepared once for each value, and shared by the calls that have it.

Source: protos/README.md, section Parameters.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

from admission_gateway_worker.answer import failure_text
from admission_gateway_worker.log import log_failure
from admission_gateway_worker.payload import decode

if TYPE_CHECKING:
    from admission_gateway_worker.policy import Policy
    from admission_gateway_worker.review import Review

MAX_ID: Final = 256
"""Highest id of parameters of a stream."""

MAX_BYTES: Final = 64 * 1024
"""Limit of the JSON of one value."""

MAX_PREPARED: Final = 1024
"""Prepared values of a policy that are kept: those that were used last."""


MAX_PREPARED_BYTES: Final = 4 * 1024 * 1024
"""The size of their JSON. Prepared values take several times as much, and a namespace can change its own."""


class ParametersRefused(Exception):
    """A call cannot be evaluated with its parameters; the text is for the gateway."""


class PreparedParameters:
    """The prepared parameters of one policy, by their JSON; of refused parameters the reason."""

    def __init__(self) -> None:
        self._values: OrderedDict[bytes, Any] = OrderedDict()
        self._bytes = 0
        """The bytes of the JSON of all parameters."""

    def get(self, policy: Policy, review: Review, json: bytes) -> object:
        """Return what ``prepare`` of *policy* makes of *json*; empty stands for ``{}``.

        A failure is logged when it occurs for the first time, with the uid of *review*.

        Raises:
            ParametersRefused: the policy takes none, they are not a JSON object, or ``prepare`` failed.
        """
        values = self._values
        if json in values:
            values.move_to_end(json)
            value = values[json]
        else:
            value = _prepare(policy, json)
            if isinstance(value, ParametersRefused) and value.__cause__ is not None:
                log_failure(policy, review, value.__cause__)
                value.__cause__ = None
            self._keep(json, value)
        if isinstance(value, ParametersRefused):
            raise ParametersRefused(*value.args)
        return value

    def problem(self, policy: Policy, json: bytes) -> str:
        """Return why no call of *policy* can be evaluated with *json*, or "".

        A value that can be used is kept for calls. Nothing is logged.
        """
        if not json and policy.parameters is None:
            return ""
        if len(json) > MAX_BYTES:
            return too_long(json)
        value = self._values[json] if json in self._values else _prepare(policy, json)
        if isinstance(value, ParametersRefused):
            return str(value)
        if json not in self._values:
            self._keep(json, value)
        return ""

    def _keep(self, json: bytes, value: object) -> None:
        self._values[json] = value
        self._bytes += len(json)
        while len(self._values) > MAX_PREPARED or self._bytes > MAX_PREPARED_BYTES:
            self._bytes -= len(self._values.popitem(last=False)[0])


def too_long(json: bytes) -> str:
    """Return the text for parameters above ``MAX_BYTES``."""
    return f"the parameters have {len(json)} bytes, expected at most {MAX_BYTES}"


def _prepare(policy: Policy, json: bytes) -> object:
    """Return the prepared value, or a ParametersRefused, whose cause is the failure of ``prepare``."""
    if policy.parameters is None:
        return ParametersRefused(f'policy "{policy.name}" takes no parameters')
    try:
        parameters = decode("parameters", json) if json else {}
    except ValueError as problem:
        return ParametersRefused(str(problem))
    try:
        return policy.prepare(parameters)
    except (Exception, SystemExit) as problem:
        text = failure_text(problem)
        refused = ParametersRefused(f'the parameters of policy "{policy.name}" cannot be used: {text}')
        refused.__cause__ = problem
        return refused
