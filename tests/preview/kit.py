"""Previews in tests."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.kit import call_command, pool_document, webhook_document

if TYPE_CHECKING:
    from pathlib import Path

WEB = """\
# The shop.
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  labels: {app: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata:
      labels: {app: web}
    spec:
      containers:
        - name: main
          image: nginx
"""
CONFIG_MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n"


def deny(message: str = "no", field: str = "", **more: Any) -> dict[str, Any]:
    """The script of a denial."""
    causes = [{"field": field, "message": message}] if field else []
    return {"deny": {"code": 403, "message": message, "causes": causes}, **more}


def pods(script: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """*script* for Pods alone."""
    return of(script, "", "pods", **fields)


def of(script: dict[str, Any], group: str, resource: str, **fields: Any) -> dict[str, Any]:
    """*script* for one resource alone."""
    rule = {"operations": ["CREATE"], "apiGroups": [group], "apiVersions": ["*"], "resources": [resource]}
    return {**script, "webhook": {"rules": [rule], **fields}}


def configure(file: Path, target: str, **phases: list[dict[str, Any]]) -> Path:
    """Write a configuration with webhooks of the scripts ``mutate=[…]`` and ``validate=[…]``."""
    text = pool_document("pool", target)
    for phase, scripts in phases.items():
        text += webhook_document(phase, phase[0], "pool", *scripts, timeoutSeconds=30)
    file.write_text(text)
    return file


def preview(*arguments: object, status: int = 0, stdin: str | None = None) -> dict[str, Any]:
    """Run the command, and return the report."""
    done = call_command("preview", *arguments, "--json", stdin=None if stdin is None else stdin.encode())
    assert done.returncode == status, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def findings(report: dict[str, Any]) -> list[dict[str, Any]]:
    """All findings of *report*."""
    return [one for found in report["objects"] for one in found["findings"]]
