"""Runs suites of Gatekeeper: each object as a request, and the violations of the constraint.

Violations count whatever the enforcement action of the constraint is. Gatekeeper's Rego, and what it keeps as
inventory for it, are not here.

Source: github.com/open-policy-agent/gatekeeper pkg/gator/verify/runner.go.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import orjson

from gateway.base.errors import MalformedReview, ReviewError
from gateway.config.merge.load import documents_in
from gateway.engine.object_review import RequestOptions, request_for, review_of
from gateway.pure.core.namespace import Namespace
from gateway.pure.core.review import metadata_of
from gateway.pure.core.verdict import Denied, Failed
from gateway.tools.offline.gateway import offline_gateway
from gateway.tools.policy_tests.policies import load_supported
from gateway.tools.policy_tests.results import CaseResult, is_selected

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

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
_EXPANSION: Final = "expansion: the gateway does not expand workloads to what they generate"


async def run_gatekeeper_suites(
    suites: Sequence[GatekeeperSuite], filters: Sequence[str]
) -> list[CaseResult]:
    """Return the results of the cases of *suites* that *filters* select, named ``TEST/CASE``."""
    results: list[CaseResult] = []
    for suite in suites:
        for test in suite.tests:
            cases = [one for one in test.cases if is_selected(suite.name, f"{test.name}/{one.name}", filters)]
            is_chosen = test.is_invalid and is_selected(suite.name, test.name, filters)
            if cases or is_chosen:
                results += await _run(suite, test, cases)
    return results


async def _run(
    suite: GatekeeperSuite, test: GatekeeperTest, cases: Sequence[GatekeeperCase]
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
    templates = list(documents_in([test.template]))
    constraints = list(documents_in([test.constraint]))
    is_counted = [_enforce(one) for one in constraints]
    for one in templates:
        _for_all_operations(one)
    config, refused = load_supported([*templates, *constraints])
    of_constraint = [reason for document, reason in refused if document.file == test.constraint]
    of_template = [reason for document, reason in refused if document.file == test.template]
    if test.has_expansion or of_template:
        return [result(name, why_not=_EXPANSION if test.has_expansion else of_template[0]) for name in names]
    if test.is_invalid:
        valid = [] if of_constraint else ["invalid: the constraint is valid, expected one that is not"]
        return [result(test.name, valid)]
    if of_constraint:
        return [result(name, of_constraint) for name in names]
    results = []
    async with offline_gateway(config, uses_cluster=False) as gateway:
        for name, case in zip(names, cases, strict=True):
            begin = time.monotonic()
            if case.is_skipped:
                results.append(result(name, skip=True))
            else:
                results.append(result(name, await _problems(gateway, case, is_counted=all(is_counted))))
    return results


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
        made = request_for(found, RequestOptions(is_dry_run=False))
        # Nothing gives the object a namespace that it does not have.
        return {**made, "object": found, "namespace": metadata_of(found).get("namespace") or ""}
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


def _messages(review: DryRun) -> Iterator[str]:
    """Yield the message of each violation, without the name of the constraint."""
    for outcome in review.outcomes:
        verdict = outcome.verdict
        if isinstance(verdict, Denied):
            head = f"[{outcome.invocation.webhook.name}] "
            yield from verdict.message.removeprefix(head).split(f"\n{head}")
        elif isinstance(verdict, Failed):
            yield verdict.cause
