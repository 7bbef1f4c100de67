"""An engine in memory with the policies of a subject, and what it makes of recorded reviews."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson

from gateway.config.merge.load import load
from gateway.engine.cluster_source import ClusterView, NoCluster
from gateway.engine.engine import Engine
from gateway.observe.telemetry.metrics import Metrics
from gateway.pure.core.conditions import AccessDecision
from gateway.pure.core.decision import MAX_WARNING_CHARS
from gateway.pure.core.namespace import Namespace
from gateway.pure.core.response import encode
from gateway.pure.core.review import V1
from gateway.pure.openapi.documents import built_in_schemas
from gateway.pure.openapi.schemas import Schemas
from tests.engines import INLINE, snapshot_of
from tests.kit import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from gateway.engine.dry_run import DryRun
    from gateway.pure.core.conditions import AccessCheck
    from tests.recorded.recording import Operation, Surroundings

    Json = dict[str, Any]
    Authorize = Callable[[Json], Json]

_PAIR: Final = re.compile(r"\\ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2}")
OF_DISPATCHER: Final = ("failed-open", "mutation")
"""Annotations about webhooks, which those of policies do not have in the API server."""


@dataclass(frozen=True)
class _Schemas:
    current: Schemas


class RecordedCluster(NoCluster):
    """A cluster as it was recorded, in which *authorize* decides on the spec of a SubjectAccessReview."""

    def __init__(self, recorded: Surroundings, authorize: Authorize) -> None:
        namespaces = {
            each["metadata"]["name"]: Namespace(
                each["metadata"]["name"], each["metadata"]["labels"], orjson.dumps(each)
            )
            for each in recorded.namespaces
        }

        def decide(
            check: AccessCheck, timeout_s: float, decided: Callable[[AccessDecision], None]
        ) -> Callable[[], None]:
            del timeout_s
            decision = AccessDecision(**authorize(json.loads(check.spec)))
            return asyncio.get_running_loop().call_soon(decided, decision).cancel

        schemas = _Schemas(Schemas(list(recorded.schemas), built_in_schemas()))
        self.view = ClusterView(namespaces, None, decide, schemas=schemas)


class RecordedEngine:
    """An engine with policies, until :meth:`close`."""

    def __init__(
        self, folder: Path, documents: Sequence[Json], recorded: Surroundings, authorize: Authorize
    ) -> None:
        """Write *documents*, the policies with their bindings and parameters, to *folder*, and read them."""
        self._folder, self._version = folder, recorded.kubernetes
        self._cluster = RecordedCluster(recorded, authorize)
        self._runner = asyncio.Runner()
        self._engine = self._runner.run(_engine())
        self.change(documents)

    def change(self, documents: Sequence[Json], resources: Sequence[Json] = ()) -> None:
        """Put *documents* in force, and no others. *resources* are the kinds that policies may read."""
        head = {"apiVersion": "admission-gateway.io/v1alpha1", "kind": "GatewayConfiguration"}
        settings = {**head, "kubernetes": {}, "kubernetesVersion": self._version}
        settings["policies"] = {"resources": [*resources]}
        text = "".join(f"{json.dumps(each)}\n---\n" for each in (settings, *documents))
        # JSON has two escapes for one character beyond the first 65,536, which YAML does not take.
        text = _PAIR.sub(lambda pair: str(json.loads(f'"{pair[0]}"')), text)
        (self._folder / "policies.yaml").write_text(text)
        self._runner.run(self._activate())

    async def _activate(self) -> None:
        self._engine.activate(await self._engine.prepare(load([self._folder]), self._cluster))

    def close(self) -> None:
        """End the engine."""
        self._runner.run(self._engine.close())
        self._runner.close()

    def answer(self, operation: Operation) -> Json:
        """Return what the engine makes of the reviews of *operation*, in the form of its ``answer``."""
        return self._runner.run(self._answer(operation))

    def review(self, path: str, request: Json) -> DryRun:
        """Return what the engine makes of *request* at *path*."""
        head = {"apiVersion": V1, "kind": "AdmissionReview"}
        selection = snapshot_of(self._engine).paths[path]
        body = orjson.dumps({**head, "request": request})
        return self._runner.run(self._engine.dry_run(body, [selection], budget_s=PATIENCE_S))

    async def _answer(self, operation: Operation) -> Json:
        paths = snapshot_of(self._engine).paths
        head = {"apiVersion": V1, "kind": "AdmissionReview"}
        runs = [
            await self._engine.dry_run(
                orjson.dumps({**head, "request": {"uid": "u", **review.request}}),
                [paths[path]],
                budget_s=PATIENCE_S,
            )
            for review in operation.reviews
            for path in review.paths
        ]
        return _answer_of(runs, operation.answer)


async def _engine() -> Engine:
    return Engine(Metrics(), lambda pool: [], surroundings=INLINE)


def _answer_of(runs: Sequence[DryRun], recorded: Json) -> Json:
    """Return what the user and the auditor see after *runs*.

    What the API server does without policies is as it is *recorded*: an answer to what is allowed.
    """
    decisions = [run.decision for run in runs]
    found: Json = {key: recorded[key] for key in ("status", "reason", "message") if key in recorded}
    if is_by_policy(found):
        found = {"status": 200}
    refusals = [json.loads(encode(V1, "u", each))["response"]["status"] for each in decisions if each.status]
    if refusals:
        status = refusals[0]
        found = {"status": status["code"], **refusal(status)}
    if warnings := {text[:MAX_WARNING_CHARS] for each in decisions for text in each.warnings}:
        found["warnings"] = sorted(warnings)
    is_mutating = any(answer.selection.phase == "mutate" for run in runs for answer in run.answers)
    if is_mutating and not refusals:
        found["object"] = runs[0].final_object
    annotations = {
        key.rpartition(".")[2]: parsed(value)
        for each in decisions
        for key, value in each.audit_annotations.items()
        if key.partition(".")[0] not in OF_DISPATCHER
    }
    # The API server publishes no annotations of mutating policies.
    return {**found, "annotations": annotations} if annotations and not is_mutating else found


def refusal(status: Json) -> Json:
    """Return of a Status what the API server and a webhook have in common.

    The API server evaluates the bindings of a policy in any order, and says the first denial only.
    """
    message: str = status["message"]
    begin = max(message.find("ValidatingAdmissionPolicy '"), message.find("policy '"), 0)
    text = re.sub(r"with binding '[^']*'", "with binding", message[begin:].partition("\n")[0])
    found: Json = {"reason": status.get("reason", ""), "message": text}
    if "denied request" in text:
        found["details"] = {key: value for key, value in status["details"].items() if key != "causes"}
    return found


def is_by_policy(answer: Json) -> bool:
    """Whether *answer* refuses because of a policy."""
    return "olicy '" in answer.get("message", "")


def first_failure(answer: Json) -> Json:
    """Return *answer* as API servers before 1.34 have it: they publish only the first failure."""
    failures = answer.get("annotations", {}).get("validation_failure")
    if not isinstance(failures, list):
        return answer
    return {**answer, "annotations": {**answer["annotations"], "validation_failure": failures[:1]}}


def parsed(text: str) -> object:
    """Return the value of *text*, if that is JSON."""
    try:
        return json.loads(text)
    except ValueError:
        return text
