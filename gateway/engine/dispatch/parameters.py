"""The parameters of calls: those of the webhook, with the values of the request's namespace.

Where workers declare a JSON Schema for a policy, parameters that no worker of the pool accepts fail the call.
Nothing is checked before the first list of policies has been read.

Source: docs/write-a-policy.md, section Parameters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import orjson

from gateway.base.text import described
from gateway.engine.dispatch.verdicts import one_line
from gateway.pure.core.namespace import Namespace
from gateway.pure.core.review import is_namespace
from gateway.pure.core.verdict import Failed, FailureReason
from gateway.pure.core.webhook import MAX_PARAMETERS_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gateway.engine.dispatch.parameter_schema import ParameterSchema
    from gateway.pure.core.review import AdmissionRequest
    from gateway.pure.core.webhook import WorkerRef

    FoundNamespace = Namespace | Failed | None

NOWHERE: Final = "neither in the cluster of GatewayConfiguration.kubernetes nor in a Namespace document"
_KEPT: Final = 1024
"""Results that are kept, of each client or each client and namespace; at the limit all are dropped."""
_KEPT_BYTES: Final = 16 * 1024 * 1024
"""Bytes of their keys and values: a namespace can have a MiB, and each change of it is another key."""
_HTTP_CODE: Final = 400


class ParameterTable:
    """The parameters of the clients of one gateway, and what their workers declare."""

    def __init__(self) -> None:
        self._schemas: dict[str, Mapping[str, Sequence[ParameterSchema]]] = {}
        """By pool and policy, the different schemas that its workers declare."""
        self.has_schemas = False
        """Whether any is known; if not, only clients with parameters are affected."""
        self._results: dict[tuple[WorkerRef, bytes], bytes | Failed] = {}
        """By client and, if its parameters depend on it, JSON of the namespace."""
        self._kept_bytes = 0

    def declare(self, pool: str, schemas: Mapping[str, Sequence[ParameterSchema]]) -> None:
        """Take the different *schemas* that the workers of *pool* declare, by policy; nothing for nothing."""
        if schemas:
            self._schemas[pool] = schemas
        else:
            self._schemas.pop(pool, None)
        self.has_schemas = bool(self._schemas)
        self._results.clear()
        self._kept_bytes = 0

    def of(self, worker: WorkerRef, request: AdmissionRequest, namespace: FoundNamespace) -> bytes | Failed:
        """Return the JSON of the parameters of a call, empty for none; Failed if they cannot be used.

        *namespace* is that of *request*: None if there is none, Failed if it could not be looked up.
        """
        json = b""
        if worker.parameters_annotation and request.namespace and not is_namespace(request):
            if not isinstance(namespace, Namespace):
                return namespace or _failed(f'namespace "{request.namespace}" is not known: it is {NOWHERE}')
            json = namespace.json
        key = worker, json
        found = self._results.get(key)
        if found is None:
            if len(self._results) >= _KEPT or self._kept_bytes >= _KEPT_BYTES:
                self._results.clear()
                self._kept_bytes = 0
            found = self._results[key] = self._result(worker, json)
            self._kept_bytes += len(json) + (0 if isinstance(found, Failed) else len(found))
        return found

    def _result(self, worker: WorkerRef, namespace_json: bytes) -> bytes | Failed:
        found, place = worker.parameters, ""
        text = _annotation(namespace_json, worker.parameters_annotation) if namespace_json else None
        if text is not None:
            place = f"annotation {worker.parameters_annotation} of the namespace: "
            try:
                found = merged(found, text)
            except ValueError as error:
                return _failed(f"{place}{error}")
        declared = self._schemas.get(worker.pool, {}).get(worker.policy, ())
        refusals = [schema.problems(found) for schema in declared]
        if refusals and all(refusals):
            return _failed(f"{place}{'; '.join(f'parameters{one}' for one in refusals[0])}")
        return found


def merged(parameters: bytes, annotation: str) -> bytes:
    """Return *parameters* with the members of the JSON object *annotation* in place of its own.

    Raises:
        ValueError: *annotation* is not a JSON object, or the result is too large.
    """
    try:
        members = orjson.loads(annotation)
    except ValueError as error:
        raise ValueError(f"found no JSON, expected a JSON object: {error}") from None
    if not isinstance(members, dict):
        raise ValueError(f"found {described(members)}, expected a JSON object")
    try:
        found = orjson.dumps({**orjson.loads(parameters or b"{}"), **members}, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        raise ValueError("the JSON nests too deeply") from None
    if len(found) > MAX_PARAMETERS_BYTES:
        expected = f"expected at most {MAX_PARAMETERS_BYTES}"
        raise ValueError(f"with it the parameters have {len(found)} bytes, {expected}")
    return found


def _annotation(namespace_json: bytes, key: str) -> str | None:
    metadata = orjson.loads(namespace_json).get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    text = annotations.get(key) if isinstance(annotations, dict) else None
    return text if isinstance(text, str) else None


def _failed(text: str) -> Failed:
    return Failed(FailureReason.PARAMETERS, one_line(text), _HTTP_CODE)
