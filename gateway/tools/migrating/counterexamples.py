"""Reviews that both sides answer differently, as a PolicyTest that expects what the old engine answered.

``admission-gateway test`` fails it until the new configuration answers alike.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Final

import orjson

from gateway.base.errors import GatewayError
from gateway.base.text import printable_json
from gateway.config.kinds.namespace import NAME_LABEL
from gateway.config.yaml.documents import GATEWAY_VERSION, POLICY_TEST
from gateway.pure.core.review import V1
from gateway.tools.migrating.comparison import message_lines
from gateway.tools.registration.yaml_output import to_yaml
from gateway.tools.replay.about_request import kind_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from gateway.pure.core.namespace import Namespace
    from gateway.tools.migrating.proof import Group, Proof

    Json = dict[str, Any]

FILE: Final = "counterexamples.yaml"


def counterexamples(proof: Proof, config: Sequence[Path], folder: Path) -> tuple[dict[str, str], list[str]]:
    """Return the files of a test of *config* in *folder*, by name, and the name of each group's case.

    Raises:
        GatewayError: a review cannot be written.
    """
    cases: list[Json] = []
    texts: dict[str, str] = {}
    for number, group in enumerate(proof.ordered(), 1):
        file = f"review-{number:03}.json"
        request: Any = group.case.request
        name = f"{number:03} {request.get('operation')} {kind_of(request)}"
        try:
            texts[file] = _json({"kind": "AdmissionReview", "apiVersion": V1, "request": _request(group)})
            cases.append({"name": name, **_case(group, file)})
        except (RecursionError, TypeError) as error:
            raise GatewayError(f"{name} cannot be written: it nests too deeply") from error
    suite = {
        "apiVersion": GATEWAY_VERSION,
        "kind": POLICY_TEST,
        "metadata": {"name": "migration"},
        "config": [os.path.relpath(path, folder) for path in config],
        "cases": cases,
    }
    return {FILE: to_yaml(suite), **texts}, [str(one["name"]) for one in cases]


def _case(group: Group, file: str) -> Json:
    found = ", ".join(one.kind for one in group.found)
    case: Json = {"description": f"{group.count} reviews differ in: {found}", "review": file}
    if group.case.namespace is not None:
        case["namespace"] = _namespace(group.case.namespace)
    return {**case, "phase": group.case.phase or "both", "expect": _expected(group)}


def _request(group: Group) -> Json:
    request: Json = {**group.case.request, "dryRun": True}
    if group.redactor is None:
        return request
    objects: Json = {name: group.plain(request[name]) for name in ("object", "oldObject") if name in request}
    rest = {name: value for name, value in request.items() if name not in objects}
    plain: Json = group.redactor.redacted(rest)  # type: ignore[assignment]
    return {**plain, **objects}


def _expected(group: Group) -> Json:
    """Return the old engine's answer, as far as it is another than the new one."""
    old, kinds = group.old, {one.kind for one in group.found}
    expect: Json = {"allowed": old.allowed}
    if not old.allowed:
        expect["code"] = old.code
        expect["messageLines"] = [group.text(line) for line in message_lines(old)]
    if "warnings" in kinds:
        said, says = list(old.warnings or ()), list(group.new.warnings or ())
        # In the order of the new configuration, which the test compares.
        ordered = said if set(said) == set(says) else sorted(said, key=lambda one: (one not in says, one))
        expect["warnings"] = [group.text(line) for line in ordered]
    if old.allowed and (old.has_changed or "object" in kinds) and old.final_object() is not None:
        expect["object"] = group.plain(old.final_object())
    return expect


def _namespace(namespace: Namespace) -> Json:
    metadata = orjson.loads(namespace.json).get("metadata") or {}
    annotations: Mapping[str, Any] = metadata.get("annotations") or {}
    labels = {key: value for key, value in namespace.labels.items() if key != NAME_LABEL}
    found: Json = {"name": namespace.name}
    if labels:
        found["labels"] = labels
    if annotations:
        found["annotations"] = {key: value for key, value in annotations.items() if isinstance(value, str)}
    return found


def _json(document: Json) -> str:
    return printable_json(json.dumps(document, ensure_ascii=False, indent=2)) + "\n"
