"""Runs suites of Gatekeeper: each object as a request, and the violations of the constraint.

Violations count whatever the enforcement action of the constraint is. Templates in Rego, and expansion, are
run by a copy of the configuration's worker, one for the cases of a test that have the same inventory.

Source: github.com/open-policy-agent/gatekeeper pkg/gator/verify/runner.go.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

import orjson

from gateway.base.errors import MalformedReview, ReviewError
from gateway.config.merge.load import documents_in
from gateway.engine.object_review import RequestOptions, request_for, review_of
from gateway.pure.core.namespace import Namespace
from gateway.pure.core.review import metadata_of
from gateway.pure.core.verdict import Denied, Failed
from gateway.pure.core.webhook import WorkerRef
from gateway.tools.offline.gateway import offline_gateway
from gateway.tools.policy_tests.engine_worker import private_worker
from gateway.tools.policy_tests.policies import id_of, load_supported
from gateway.tools.policy_tests.results import CaseResult, is_selected

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from gateway.config.merge.model import Config
    from gateway.config.yaml.documents import Document
    from gateway.engine.dry_run import DryRun
    from gateway.engine.object_review import Json
    from gateway.tools.offline.gateway import OfflineGateway
    from gateway.tools.policy_tests.gatekeeper_suite import (
        GatekeeperCase,
        GatekeeperSuite,
        GatekeeperTest,
    )

_POINTS: Final = ("*", "gator.gatekeeper.sh")
"""The enforcement points that take part."""
_EXPANSION: Final = (
    "expansion: a worker expands workloads to what they generate: name its pool in "
    "policies.engines.gatekeeper of the GatewayConfiguration"
)


async def run_gatekeeper_suites(
    suites: Sequence[GatekeeperSuite], filters: Sequence[str], command: Sequence[str] = ()
) -> list[CaseResult]:
    """Return the results of the cases of *suites* that *filters* select, named ``TEST/CASE``.

    *command* starts the worker that evaluates what the gateway does not. Without it that is not supported.
    """
    results: list[CaseResult] = []
    for suite in suites:
        for test in suite.tests:
            cases = [one for one in test.cases if is_selected(suite.name, f"{test.name}/{one.name}", filters)]
            is_chosen = test.is_invalid and is_selected(suite.name, test.name, filters)
            if cases or is_chosen:
                results += await _run(suite, test, cases, command)
    return results


async def _run(
    suite: GatekeeperSuite, test: GatekeeperTest, cases: Sequence[GatekeeperCase], command: Sequence[str]
) -> list[CaseResult]:
    begin = time.monotonic()

    def result(
        name: str, problems: Sequence[str] = (), why_not: str = "", *, skip: bool = False
    ) -> CaseResult:
        seconds = time.monotonic() - begin
        place = suite.file, suite.document, suite.name
        return CaseResult(*place, name, tuple(problems), seconds, why_not, skip)

    names = [f"{test.name}/{one.name}" for one in cases] or [test.name]
    if suite.is_skipped or test.is_skipped:
        return [result(name, skip=True) for name in names]
    if test.expansion is not None and not command:
        return [result(name, why_not=_EXPANSION) for name in names]
    by_inventory: dict[tuple[Path, ...], list[GatekeeperCase]] = {}
    for case in cases:
        by_inventory.setdefault(case.inventory, []).append(case)
    found: dict[int, CaseResult] = {}
    for inventory, group in (by_inventory or {(): []}).items():
        with _loaded(test, inventory, command) as loaded:
            if loaded.of_template:
                return [result(name, why_not=loaded.of_template) for name in names]
            if test.is_invalid:
                valid = (
                    [] if loaded.problem else ["invalid: the constraint is valid, expected one that is not"]
                )
                return [result(test.name, valid)]
            if loaded.problem:
                return [result(name, [loaded.problem]) for name in names]
            async with offline_gateway(loaded.config, uses_cluster=False) as gateway:
                for case in group:
                    begin, name = time.monotonic(), f"{test.name}/{case.name}"
                    if case.is_skipped:
                        found[id(case)] = result(name, skip=True)
                    else:
                        problems = await _problems(gateway, case, is_counted=loaded.is_counted)
                        found[id(case)] = result(name, problems)
    return [found[id(case)] for case in cases]


class _Loaded(NamedTuple):
    """The configuration of a test."""

    config: Config
    of_template: str
    """Why its template, or its expansion, cannot be run. Empty if it can."""
    problem: str
    """That of the constraint; empty if there is none."""
    is_counted: bool
    """Whether violations of the constraint count."""


@contextmanager
def _loaded(test: GatekeeperTest, inventory: Sequence[Path], command: Sequence[str]) -> Iterator[_Loaded]:
    """Load *test*, whose worker, if it needs one, is started by *command* and also reads *inventory*."""
    templates, constraints = (list(documents_in([file])) for file in (test.template, test.constraint))
    expansions = [] if test.expansion is None else list(documents_in([test.expansion]))
    is_counted = [_enforce(one) for one in constraints]
    for one in templates:
        _for_all_operations(one)
    documents = [*templates, *constraints, *expansions]
    contents = [one.content for one in (*documents, *documents_in(inventory)) if one.content is not None]
    with private_worker(command, "gatekeeper", contents) as worker:
        config, refused = load_supported([*worker, *documents])
        of_constraint = [reason for document, reason in refused if document.file == test.constraint]
        of_others = [
            f"{(document.content or {}).get('kind')} {id_of(document)}: {reason}"
            for document, reason in refused
            if document.file != test.constraint
        ]
        if not any(isinstance(one.client, WorkerRef) for one in config.webhooks):
            config = replace(config, pools={})
        yield _Loaded(config, "; ".join(of_others[:1]), "; ".join(of_constraint), all(is_counted))


def _enforce(constraint: Document) -> bool:
    """Have *constraint* deny, and return whether its violations count."""
    content = constraint.content
    spec = None if content is None else content.get("spec")
    if content is None or not isinstance(spec, dict):
        return True
    scoped = spec.get("scopedEnforcementActions")
    kept = {key: each for key, each in spec.items() if key != "scopedEnforcementActions"}
    constraint.content = {**content, "spec": {**kept, "enforcementAction": "deny"}}
    if spec.get("enforcementAction") != "scoped" or not isinstance(scoped, list):
        return True
    points = [
        point.get("name")
        for action in scoped
        if isinstance(action, dict)
        for point in _listed(action.get("enforcementPoints"))
        if isinstance(point, dict)
    ]
    return any(point in _POINTS for point in points)


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _for_all_operations(template: Document) -> None:
    """Have *template* evaluated whatever the operation: only Gatekeeper's webhook looks at that."""
    content = template.content or {}
    spec = content.get("spec")
    targets = spec.get("targets") if isinstance(spec, dict) else None
    if isinstance(spec, dict) and isinstance(targets, list):
        changed = [{**one, "operations": ["*"]} if isinstance(one, dict) else one for one in targets]
        template.content = {**content, "spec": {**spec, "targets": changed}}


async def _problems(gateway: OfflineGateway, case: GatekeeperCase, *, is_counted: bool) -> list[str]:
    try:
        request = _request(case.object)
        namespaces = _namespaces(case.inventory)
        review = await gateway.review(review_of(request), ("validate",), namespaces)
    except ReviewError as error:
        return [f"object: {error}"]
    if failed := _failure(review):
        return [failed]
    messages = list(_messages(review)) if is_counted else []
    problems = [problem for one in case.assertions if (problem := one.problem(messages))]
    return [*problems, *(f"  {text}" for text in messages)] if problems else []


def _request(file: Path) -> Json:
    """Return the request of the object or AdmissionReview in *file*.

    Raises:
        MalformedReview: the file has none, or it is incomplete.
    """
    found = _content(file)
    if found.get("kind") != "AdmissionReview":
        metadata = metadata_of(found)
        # Gatekeeper does not know which kinds have namespaces.
        bare = {**found, "metadata": {key: one for key, one in metadata.items() if key != "namespace"}}
        made = request_for(bare if metadata else found, RequestOptions(is_dry_run=False))
        # Nothing gives the object a namespace that it does not have.
        return {**made, "object": found, "namespace": metadata.get("namespace") or ""}
    given = found.get("request")
    if not isinstance(given, dict):
        raise MalformedReview(f"{file}: request: is required")
    base = given.get("object") or given.get("oldObject")
    if not isinstance(base, dict):
        raise MalformedReview(f"{file}: found neither request.object nor request.oldObject")
    # What the request lacks is that of the creation of its object.
    made = request_for(base, RequestOptions(is_dry_run=False))
    if given.get("object") is None:
        made["object"] = None
    return {**made, **{key: each for key, each in given.items() if each is not None}}


def _content(file: Path) -> Json:
    documents = list(documents_in([file]))
    for one in documents:
        for problem in one.problems.errors():
            raise MalformedReview(str(problem))
    contents: list[Json] = [one.content for one in documents if one.content is not None]
    if len(contents) != 1:
        raise MalformedReview(f"{file}: found {len(contents)} objects, expected one")
    return contents[0]


def _namespaces(inventory: Sequence[Path]) -> dict[str, Namespace]:
    """Return the namespaces of *inventory*, by name. Others are not known."""
    found = {}
    for document in documents_in(inventory):
        content = document.content or {}
        metadata = content.get("metadata")
        if content.get("kind") == "Namespace" and isinstance(metadata, dict):
            given = metadata.get("labels")
            labels = {key: str(each) for key, each in given.items()} if isinstance(given, dict) else {}
            name = str(metadata.get("name"))
            # Without the label that the API server adds.
            found[name] = Namespace(name, labels, orjson.dumps({**content, "metadata": metadata}))
    return found


def _failure(review: DryRun) -> str:
    """Return why a worker has no answer; empty if there is none to ask, or it has one."""
    for outcome in review.outcomes:
        hook, verdict = outcome.invocation.webhook, outcome.verdict
        if isinstance(hook.client, WorkerRef) and isinstance(verdict, Failed):
            return f"policy {hook.client.policy} of the worker: {verdict.cause}"
    return ""


def _messages(review: DryRun) -> Iterator[str]:
    """Yield the message of each violation, without the name of the constraint."""
    for outcome in review.outcomes:
        verdict = outcome.verdict
        if isinstance(verdict, Denied):
            head = f"[{outcome.invocation.webhook.name}] "
            yield from verdict.message.removeprefix(head).split(f"\n{head}")
        elif isinstance(verdict, Failed):
            yield verdict.cause
