"""The calls of an evaluation, and the payload that each of them sends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import orjson

from admission_gateway_worker.json_patch.diff import same
from admission_gateway_worker.json_patch.patch import STEP_BYTES, PatchConflict, Work, apply_in_steps
from gateway.pure.core.conditions import ConditionInput
from gateway.pure.core.identity import check_identity
from gateway.pure.core.matching import selectable_labels
from gateway.pure.core.policy import PolicyInput

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from gateway.pure.core.matching import WebhookInvocation
    from gateway.pure.core.namespace import Namespace
    from gateway.pure.core.policy import FollowedSchemas, Params
    from gateway.pure.core.review import AdmissionRequest, Json
    from gateway.pure.core.verdict import Failed, Verdict
    from gateway.pure.core.webhook import Mode

MAX_GROWTH_BYTES: Final = 3 * 1024 * 1024
"""Bytes that all patches together may add to an object: the API server's own bound for a write of a client.
etcd stores less, and the next worker has to be able to read the object."""

MAX_CHAINED_BYTES: Final = 64 * 1024
"""Size of a request up to which the verdicts of a chain count. They are settled in one step of the event
loop, which this bounds to tens of milliseconds for the longest chain of a hostile worker."""

MAX_KEPT_BYTES: Final = 32 * 1024
"""Size of a request up to which its changed object stays parsed while a call is awaited. It shares most with
the original object, so that the final patch is found by what is not shared."""

_REWRITTEN: Final = 5
"""Bytes of JSON as orjson writes them again, for each byte: ``1e15`` becomes ``1000000000000000.0``."""

_MAX_MARKS: Final = 200
"""With at most this many marks a patch makes no object that nests too deeply: orjson writes 254 levels."""


class Payload:
    """The request as webhooks get it at one point; earlier patches may have changed the object.

    Calls with the same payload share the Payload itself, so that a batch contains it once.
    """

    __slots__ = (
        "_condition_input",
        "_json",
        "_labels",
        "_object",
        "_object_json",
        "_policy_input",
        "encoded",
        "is_changed",
        "request",
        "size_bytes",
    )

    def __init__(self, request: AdmissionRequest, changed: Json | None = None, size_bytes: int = 0) -> None:
        """*changed* is the object after patches; with these, the request has up to *size_bytes*."""
        self.request = request
        self.encoded: tuple[bytes, ...] = ()
        """The parts of its encoding in messages to workers, for the dispatch. Empty before the first call."""
        self._object = changed
        self._object_json: bytes | None = None
        self._labels: tuple[Mapping[str, str], ...] | None = None
        self._condition_input: ConditionInput | None = None
        self._policy_input: PolicyInput | None = None
        self.is_changed = changed is not None
        """Whether patches changed the object."""
        self._json: bytes | None = None if self.is_changed else request.json
        self.size_bytes = size_bytes or len(request.json)
        """Bytes of the JSON of the request and of the patches so far: what they would be at most together,
        if numbers were written as they were read."""

    @property
    def json(self) -> bytes:
        """The AdmissionRequest's JSON with the present object."""
        if self._json is None:
            changed = {**self.request.document, "object": orjson.Fragment(self.object_json)}
            self._json = orjson.dumps(changed)
        return self._json

    @property
    def object(self) -> Json | None:
        """The present object; not to be changed."""
        if not self.is_changed:
            return self.request.object
        if self._object is None:
            self._object = orjson.loads(self.object_json)
        return self._object

    @property
    def object_json(self) -> bytes:
        """The JSON of the present object."""
        if self._object_json is None:
            self._object_json = orjson.dumps(self.object)
        return self._object_json

    @property
    def labels(self) -> tuple[Mapping[str, str], ...]:
        """The labels that objectSelectors are matched with."""
        if self._labels is None:
            self._labels = selectable_labels(self.outline, self.request.old_outline)
        return self._labels

    @property
    def outline(self) -> Json | None:
        """The present object, with its labels at least."""
        return self.object if self.is_changed else self.request.object_outline

    @property
    def can_be_chained(self) -> bool:
        """Whether calls on the present object may have been sent before it was known."""
        return not self.is_changed or self.size_bytes <= MAX_CHAINED_BYTES

    @property
    def condition_input(self) -> ConditionInput:
        """The input of matchConditions for the present object."""
        if self._condition_input is None:
            document = self.request.document
            current = self.object if self.is_changed else document.get("object")
            self._condition_input = ConditionInput(document, current, document.get("oldObject"))
            self._condition_input.has_go_types = self.request.has_go_types
        return self._condition_input

    def policy_input(
        self,
        namespace: Namespace | Failed | None,
        params: Params | None,
        schemas: FollowedSchemas | None,
        now: float,
    ) -> PolicyInput:
        """Return the input of policies for the present object; the arguments are the same for a review."""
        if self._policy_input is None:
            conditions = self.condition_input
            self._policy_input = PolicyInput(
                conditions, self.request, namespace, params, schemas, self.size_bytes, now
            )
        return self._policy_input

    def fresh_object(self) -> Json | None:
        """Return a copy of the object that the caller may change."""
        if not self.is_changed:
            return self.request.fresh_object()
        changed: Json = orjson.loads(self.object_json)
        return changed

    def patched(self, operations: list[Json], patch: bytes) -> Generator[None, None, Payload | None]:
        """Return the payload after the *operations* of the JSON *patch*; None if they change nothing.

        It yields between steps if *patch* is longer than ``STEP_BYTES``.

        Raises:
            PatchConflict: the patch does not apply, or makes the object too large.
            PatchRefused: the API server would refuse the result.
            RecursionError, TypeError: the result nests too deeply.
        """
        if not self.request.can_be_rewritten():
            raise PatchConflict("the request nests too deeply to be written again")
        document, work = self.object, Work()
        has_steps = len(patch) > STEP_BYTES
        if has_steps:
            yield
        patched = yield from apply_in_steps(document, operations, work)
        if not isinstance(patched, dict):
            raise PatchConflict("it leaves an array where the object was")
        if has_steps:
            yield
        added_bytes = len(patch) + work.copied_bytes
        return self._replaced(patched, added_bytes, is_flat=not work.has_moved and _is_flat(patch))

    def replaced(self, patched: dict[str, Any], patch: bytes) -> Payload | None:
        """Return the payload with the object *patched*; None if it is equal to the present one.

        *patch* are the operations that lead to it, as ``diff`` finds them.

        Raises:
            PatchConflict, PatchRefused, TypeError: as :meth:`patched`.
        """
        if not self.request.can_be_rewritten():
            raise PatchConflict("the request nests too deeply to be written again")
        return self._replaced(patched, len(patch), is_flat=_is_flat(patch))

    def _replaced(self, patched: dict[str, Any], added_bytes: int, *, is_flat: bool) -> Payload | None:
        before = cast("Json", self.object)
        size_bytes = self.size_bytes + added_bytes
        object_json = None
        if not is_flat or size_bytes * _REWRITTEN > len(self.request.json) + MAX_GROWTH_BYTES:
            # Two levels down, like the final patch, so that an object that nests too deeply fails here.
            object_json = orjson.dumps([[patched]])[2:-2]
            if len(object_json) > len(self.request.json) + MAX_GROWTH_BYTES:
                raise PatchConflict(
                    f"it leaves an object of {len(object_json)} bytes, "
                    f"more than {MAX_GROWTH_BYTES} over the request"
                )
        if same(patched, before):
            return None
        check_identity(self.request, before, patched)
        payload = Payload(self.request, patched, size_bytes)
        payload._object_json = object_json
        if self._policy_input is not None:
            payload._policy_input = self._policy_input.after(payload.condition_input, size_bytes)
        return payload

    def drop_parsed(self, *, keeps_small: bool) -> None:
        """Drop the parsed forms; the next access parses again.

        A small object stays if it was changed, or with *keeps_small*.
        """
        self._condition_input = self._policy_input = None
        if (self.is_changed or keeps_small) and self.size_bytes <= MAX_KEPT_BYTES:
            return
        if self.is_changed:
            self.object_json  # noqa: B018 - it is what is left of the object
        self._object = None
        self.request.drop_parsed()


def _is_flat(patch: bytes) -> bool:
    """Whether the operations of *patch*, other than move and copy, surely make no object too deep.

    The levels of a value are those of its path, whose slashes may be written with a backslash, and its own.
    """
    return len(patch) - len(patch.translate(None, b"/\\{[")) <= _MAX_MARKS


class Applied(NamedTuple):
    """The result of a webhook's patch."""

    payload: Payload | None
    """The payload for later webhooks. None if it is unchanged."""
    failure: Failed | None
    is_patched: bool
    """Whether at least one operation was applied, even without effect."""


class Delivery:
    """How the driver makes a call, and what it notes for metrics and records. No outcome depends on it."""

    __slots__ = (
        "cache_key",
        "elapsed_s",
        "endpoint",
        "is_repeated",
        "parameters",
        "sent_at",
        "started_at",
        "traceparent",
    )

    parameters: bytes
    """JSON of the parameters that are sent; empty if there are none."""
    cache_key: bytes
    """The digest under which the driver keeps the verdict; empty if it does not."""
    elapsed_s: float
    """Seconds until the verdict."""
    started_at: float
    """When the first attempt was made, in seconds on the monotonic clock."""
    endpoint: str
    """Address of the worker or HTTPS server whose verdict counted."""
    is_repeated: bool
    """Whether it was retried or hedged at another endpoint."""
    traceparent: str
    """The trace context that is sent; empty if there is none."""
    sent_at: float
    """When the last attempt was written, in seconds on the monotonic clock. It is 0 if none was written,
    or if the call is not traced."""


class Call(Delivery):
    """One call of a webhook, requested by the evaluation and made by its driver."""

    __slots__ = (
        "after",
        "applied",
        "index",
        "invocation",
        "is_ahead",
        "is_followed",
        "is_matched",
        "mode",
        "payload",
        "verdict",
    )

    def __init__(
        self,
        index: int,
        invocation: WebhookInvocation,
        payload: Payload,
        *,
        is_ahead: bool,
        after: Call | None = None,
        mode: Mode = "Enforce",
    ) -> None:
        self.index = index
        self.invocation = invocation
        self.payload = payload
        """The payload that is sent; once ``after`` is settled, the one on which the call is evaluated."""
        self.mode = mode
        """The mode of the webhook in this review; Shadow also for calls of candidates."""
        self.is_ahead = is_ahead
        """Whether it is speculative: made before its turn."""
        self.after = after
        """The call that leaves the object for this one, until that call is settled. None if the payload
        has the object."""
        self.is_followed = False
        """Whether other calls were made ``after`` this one."""
        self.is_matched = after is None
        """Whether the webhook is known to match the object on which the call is evaluated."""
        self.verdict: Verdict | None = None
        self.applied: Applied | None = None
        """The result of the verdict's patch, if that was applied before the verdict's turn."""
        # Not in a method of Delivery, because it would be called for every call.
        self.parameters = self.cache_key = b""
        self.endpoint = self.traceparent = ""
        self.elapsed_s = self.started_at = self.sent_at = 0.0
        self.is_repeated = False
