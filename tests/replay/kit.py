"""Recordings and configurations for tests of replays."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import orjson

from gateway.config.kinds.record_settings import RecordSettings
from gateway.observe.recording import lines
from gateway.observe.recording.redaction import Marks
from tests.core.build import document
from tests.kit import call_command, pool_document, webhook_document

if TYPE_CHECKING:
    from pathlib import Path

HEADER = lines.header(RecordSettings(folder=None), Marks(b"k" * 16), 0.0, 1)  # type: ignore[arg-type]
ALLOWED = {"allowed": True, "code": 200, "reason": "", "message": ""}
NAMESPACE = {"metadata": {"name": "default", "labels": {"team": "a"}}}


def pod(**members: Any) -> dict[str, Any]:
    """An AdmissionRequest: the creation of a Pod."""
    found = {"metadata": {"name": "web", "namespace": "default", "labels": {}}, "spec": {"a": 1}}
    return document(**{"name": "web", "userInfo": {"username": "ann"}, "object": found, **members})


def review(
    request: dict[str, Any] | None = None, *webhooks: dict[str, Any], **members: Any
) -> dict[str, Any]:
    """The line of a review at ``/validate`` that was allowed."""
    return {
        "type": "review",
        "path": "/validate",
        "phase": "validate",
        "warnings": [],
        "namespace": NAMESPACE,
        "webhooks": list(webhooks),
        "request": pod() if request is None else request,
        **ALLOWED,
        **members,
    }


def recording(path: Path, *reviews: dict[str, Any]) -> Path:
    """Write a recording of *reviews*."""
    path.write_bytes(gzip.compress(HEADER + b"".join(orjson.dumps(one) + b"\n" for one in reviews)))
    return path


def configure(folder: Path, target: str, phase: str, *scripts: dict[str, Any], **fields: Any) -> Path:
    """Write a configuration with a webhook for each of *scripts*, and return its folder."""
    folder.mkdir(exist_ok=True)
    text = pool_document("pool", target) + webhook_document(
        phase, "v", "pool", *scripts, **{"timeoutSeconds": 30, **fields}
    )
    (folder / "c.yaml").write_text(text)
    return folder


def replay(*arguments: object, status: int = 0) -> dict[str, Any]:
    """Run the command, and return the report."""
    done = call_command("replay", *arguments, "--json")
    assert done.returncode == status, done.stderr
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found
