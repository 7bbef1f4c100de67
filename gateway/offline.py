"""Runs one review without the HTTPS front end, for ``admission-gateway review``."""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import orjson

from gateway.admit import Admission, needs_namespace
from gateway.config.digest import digest
from gateway.config.parsing import parse_yaml
from gateway.core.deadline import Deadline
from gateway.core.explain import explain
from gateway.core.reading import read_deep, repaired
from gateway.core.response import encode
from gateway.core.review import decode
from gateway.errors import MalformedReview
from gateway.paths import Paths
from gateway.process.local_workers import STOP_GRACE_S, LocalWorkers, targets_of
from gateway.snapshot import ClusterView, Pools
from gateway.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gateway.config.model import Config
    from gateway.core.answer import Answer
    from gateway.core.matching import Selection
    from gateway.core.webhook import Phase
    from gateway.kubernetes.namespaces import ClusterNamespaces

BUDGET_S: Final = 30.0
_READY_WITHIN_S: Final = 10.0


async def review(config: Config, body: bytes, phases: Sequence[Phase]) -> tuple[bytes, list[str]]:
    """Return the AdmissionReview that answers *body*, and a line of explanation for each webhook.

    Runs the real phases with the real workers; workers with a command are started and stopped. With two
    phases the second gets the object with the changes of the first, and the answer combines both.

    Raises:
        ReviewError: *body* is not a valid review.
        ConfigError: a pool's TLS files are unreadable.
        ClusterError: the namespace of the request or custom resources are needed, and the cluster is
            unreachable.
    """
    request = decode(body)
    if config.gateway.kubernetes is not None and config.gateway.kubernetes.custom_resources:
        from gateway.kubernetes.custom_resources import read_once

        config = await read_once(config.gateway.kubernetes, config)
    runtime = Path(tempfile.mkdtemp(prefix="admission-gateway-"))
    workers = LocalWorkers(runtime)
    metrics = Metrics()
    pools = Pools(metrics, lambda pool: targets_of(pool, runtime))
    cluster: ClusterNamespaces | None = None
    try:
        workers.update(config.pools)
        paths = Paths(config)
        view: ClusterView | None = None
        if config.gateway.kubernetes is not None:
            # Imported late: it loads much, which only a configuration with a cluster needs.
            from gateway.kubernetes.namespaces import ClusterNamespaces

            cluster = ClusterNamespaces(config.gateway.kubernetes)
            is_needed = any(needs_namespace(paths[f"/{phase}"], request) for phase in phases)
            found = await cluster.get(request.namespace) if is_needed else None
            view = ClusterView({} if found is None else {found.name: found}, None, cluster.authorize)
        prepared = await pools.prepare(config)
        admission = Admission(pools.use(prepared, paths, digest(config), view), metrics)
        await prepared.wait_until_ready(_READY_WITHIN_S)
        answers: list[Answer] = []
        lines: list[str] = []
        for phase in phases:
            if answers and not answers[-1].decision.allowed:
                lines += _not_reached(paths[f"/{phase}"])
                continue
            answer = await _run(admission, paths[f"/{phase}"], body)
            answers.append(answer)
            lines += explain(answer.evaluation, paths[f"/{phase}"])
            body = _after(answer, body)
        return _combined(answers), lines
    finally:
        if cluster is not None:
            await cluster.close()
        await pools.close(0.0)
        await workers.stop(STOP_GRACE_S)
        shutil.rmtree(runtime, ignore_errors=True)


def _not_reached(selection: Selection) -> list[str]:
    return [
        f"{selection.phase} {webhook.configuration}/{webhook.name}: not reached, the mutating phase rejected "
        "the request"
        for webhook in selection.webhooks
    ]


async def _run(admission: Admission, selection: Selection, body: bytes) -> Answer:
    answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    deadline = Deadline.after(BUDGET_S, admission.snapshot.backends.now())
    admission.review(selection, body, deadline, answered.set_result, answered.set_exception)
    return await answered


def _after(answer: Answer, body: bytes) -> bytes:
    """Return the review as input of the next phase."""
    if not answer.decision.patch:
        return body
    request = answer.evaluation.request
    changed = {**request.document, "object": answer.evaluation.final_object}
    return orjson.dumps({"kind": "AdmissionReview", "apiVersion": request.api_version, "request": changed})


def _combined(answers: Sequence[Answer]) -> bytes:
    last = answers[-1].decision
    decision = replace(
        last,
        patch=answers[0].decision.patch if last.allowed else b"",
        warnings=tuple(dict.fromkeys(text for answer in answers for text in answer.decision.warnings)),
        audit_annotations={
            key: value
            for answer in reversed(answers)
            for key, value in answer.decision.audit_annotations.items()
        },
    )
    request = answers[0].evaluation.request
    return encode(request.api_version, request.uid, decision)


def read_review(file: str) -> bytes:
    """Return the JSON of the review in *file*, which may be YAML; ``-`` is standard input.

    Raises:
        MalformedReview: the file is unreadable, or neither JSON nor YAML.
    """
    try:
        content = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise MalformedReview(f"{file}: cannot be read: {error.strerror}") from None
    try:
        read_deep(repaired(content))
    except orjson.JSONDecodeError:
        return _from_yaml(content, file)
    return content


def _from_yaml(content: bytes, file: str) -> bytes:
    text = content.decode(errors="replace")
    for document in parse_yaml(text):
        for field, message in document.found:
            raise MalformedReview(": ".join(filter(None, (file, field, message))))
        return orjson.dumps(document.root)
    raise MalformedReview(f"{file}: empty, expected an AdmissionReview")
