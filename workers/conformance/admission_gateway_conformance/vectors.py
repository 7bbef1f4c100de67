"""Vectors of the sample policies: requests, and the answers that are the same in every language.

workers/conformance/README.md describes the format.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson
from google.protobuf.json_format import ParseDict, ParseError

from admission_gateway_worker.pb import worker_pb2 as pb
from gateway.base.errors import GatewayError

if TYPE_CHECKING:
    from admission_gateway_conformance.answers import Answer

FILE: Final = "samples.json"

FOLDER: Final = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Vector:
    """One review of one sample policy."""

    name: str
    policy: str
    request: bytes
    namespace: bytes
    parameters: bytes
    """JSON of the parameters; empty if there are none."""
    answer: Answer


def load(folder: Path) -> tuple[Vector, ...]:
    """Return the vectors in *folder*, in file order.

    Raises:
        GatewayError: the file does not exist or has another format.
    """
    file = folder / FILE
    try:
        return tuple(map(_vector, orjson.loads(file.read_bytes())))
    except OSError as error:
        raise GatewayError(f"{file}: {error.strerror}; --vectors DIR names another folder") from None
    except (ValueError, TypeError, KeyError, AttributeError, ParseError) as error:
        raise GatewayError(f"{file} is not a list of vectors: {type(error).__name__}: {error}") from None


def _vector(entry: dict[str, Any]) -> Vector:
    namespace, parameters = entry.get("namespaceObject"), entry.get("parameters")
    return Vector(
        entry["name"],
        entry["policy"],
        orjson.dumps(entry["request"]),
        b"" if namespace is None else orjson.dumps(namespace),
        b"" if parameters is None else orjson.dumps(parameters),
        _answer(entry["outcome"], has_parameters=parameters is not None),
    )


def _answer(outcome: dict[str, Any], *, has_parameters: bool) -> Answer:
    if "error" in outcome:
        return pb.Error(**outcome["error"])
    response = outcome["response"]
    patch, status = response.get("patch"), response.get("status")
    return pb.ReviewResponse(
        allowed=response["allowed"],
        status=None if status is None else ParseDict(status, pb.Status()),
        patch=orjson.dumps(patch, option=orjson.OPT_SORT_KEYS) if patch else b"",
        warnings=response.get("warnings", ()),
        audit_annotations=response.get("auditAnnotations", {}),
        parameters_applied=has_parameters,
    )
