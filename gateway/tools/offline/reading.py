"""Files with reviews and Kubernetes objects, JSON or YAML, for commands that run reviews."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from admission_gateway_worker.json_patch.repair import repaired
from gateway.base.errors import MalformedReview
from gateway.config.yaml.parsing import parse_yaml, problems_in
from gateway.pure.core.reading import read_deep

if TYPE_CHECKING:
    from gateway.engine.object_review import Json


def read_review(file: str) -> tuple[bytes, Json]:
    """Return the AdmissionReview or object in *file*, as JSON and parsed; ``-`` is standard input.

    The JSON of a file that is JSON is not changed.

    Raises:
        MalformedReview: the file is unreadable, neither JSON nor YAML, no mapping, or has several documents.
    """
    try:
        content = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise MalformedReview(f"{file}: cannot be read: {error.strerror}") from None
    try:
        found = read_deep(repaired(content))
    except orjson.JSONDecodeError:
        content, found = _from_yaml(content, file)
    if not isinstance(found, dict):
        raise MalformedReview(f"{file}: expected an AdmissionReview or an object")
    return content, found


def _from_yaml(content: bytes, file: str) -> tuple[bytes, object]:
    documents = list(parse_yaml(content.decode(errors="replace")))
    for line, column, message in problems_in(documents):
        raise MalformedReview(f"{file}:{line}:{column}: {message}")
    if len(documents) != 1:
        found = f"{len(documents)} documents" if documents else "nothing"
        raise MalformedReview(f"{file}: found {found}, expected one AdmissionReview or object")
    return orjson.dumps(documents[0].root), documents[0].root
