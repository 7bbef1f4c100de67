"""Runs tests of Kyverno: each object as a request of the API server, and what each policy makes of it.

A row passes only if its policy has a result for the object. Kyverno's own command also passes rows for
objects to which the policy does not apply.

Source: github.com/kyverno/kyverno cmd/cli/kubectl-kyverno commands/test/{test,output,command}.go,
processor/{operation,policy_processor}.go, resource/{tidy,labels,resource}.go.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from admission_gateway_worker.json_patch.diff import same
from gateway.base.errors import ReviewError
from gateway.base.text import one_of, shown
from gateway.config.merge.load import documents_in
from gateway.config.yaml.documents import POLICY_KINDS
from gateway.engine.object_review import (
    DEFAULT_NAMESPACE,
    RequestOptions,
    built_in_resource,
    request_for,
    review_of,
)
from gateway.pure.admission_policies.evaluation import Allowance
from gateway.pure.core.matching import selectors_match
from gateway.pure.core.rules import rules_match
from gateway.pure.core.verdict import Allowed, Denied
from gateway.pure.core.webhook import PolicyRef
from gateway.pure.kyverno.cluster_policy import KyvernoClusterPolicy
from gateway.tools.offline.changes import changes
from gateway.tools.offline.gateway import offline_gateway
from gateway.tools.policy_tests.kyverno_objects import read_objects
from gateway.tools.policy_tests.policies import bindings_of, load_policies
from gateway.tools.policy_tests.results import CaseResult, is_selected
from gateway.tools.policy_tests.suite import bare_namespace

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
    from pathlib import Path

    from gateway.engine.dry_run import DryRun
    from gateway.engine.object_review import Json
    from gateway.pure.core.evaluation import Evaluation
    from gateway.pure.core.webhook import Webhook
    from gateway.tools.offline.gateway import OfflineGateway
    from gateway.tools.policy_tests.kyverno_objects import KyvernoObjects
    from gateway.tools.policy_tests.kyverno_test import KyvernoTest, ObjectName, Row
    from gateway.tools.policy_tests.policies import LoadedPolicies

_MAPS: Final = frozenset(("annotations", "labels", "matchLabels", "nodeSelector", "data", "stringData"))
"""Fields that Kyverno reads as an empty mapping if they are null."""
_NO_SCHEMA: Final = "there is no schema of "
"""The error of an ApplyConfiguration for a custom resource: its schema is in the cluster."""
_GENERATED: Final = "generate.kyverno.io/"


class PolicyResponse(NamedTuple):
    """What one policy, or one rule of it, makes of one object."""

    policy: str
    """Its name, with its namespace if it has one."""
    rule: str
    """Empty for policies without rules."""
    result: str
    message: str


class _Reviewed(NamedTuple):
    responses: Sequence[PolicyResponse]
    final_object: Json | None
    problem: str
    """Why there was no review. Empty if there was."""


class _Case(NamedTuple):
    name: str
    row: Row
    resource: ObjectName | None
    """None: all objects of the test."""


async def run_kyverno_tests(tests: Sequence[KyvernoTest], filters: Sequence[str]) -> list[CaseResult]:
    """Return the results of the rows of *tests* that *filters* select: one case for each object of a row."""
    results: list[CaseResult] = []
    for test in tests:
        cases = [one for one in _cases(test) if is_selected(test.name, one.name, filters)]
        if cases:
            results += await _run(test, cases)
    return results


def _cases(test: KyvernoTest) -> Iterator[_Case]:
    for row in test.rows:
        what = f"{row.policy} {row.rule}".rstrip()
        operation = f" {row.operation}" if row.operation else ""
        for resource in row.resources or (None,):
            yield _Case(f"{what}{operation} on {resource or 'all'}: {row.result}", row, resource)


async def _run(test: KyvernoTest, cases: Sequence[_Case]) -> list[CaseResult]:
    objects, problem = _objects(test.resources)
    others, _ = _objects((*test.target_resources, *test.param_resources))
    readable, wrong = read_objects(test, [*objects, *others])
    policies = load_policies(
        documents_in((*test.policies, *test.exceptions)),
        documents_in(test.param_resources),
        bindings_of(test.user, test.file),
        readable.kinds,
        readable.servers,
    )
    async with offline_gateway(policies.config, uses_cluster=False) as gateway:
        run = _TestRun(test, policies, objects, problem, readable, wrong, gateway)
        return [await run.result(case) for case in cases]


class _TestRun:
    """One test with its policies and objects; each object is reviewed once for each operation."""

    def __init__(
        self,
        test: KyvernoTest,
        policies: LoadedPolicies,
        objects: Sequence[Json],
        problem: str,
        readable: KyvernoObjects,
        wrong: str,
        gateway: OfflineGateway,
    ) -> None:
        """*objects* are sent as requests, and expressions read those in *readable*.

        *problem* is that of the former, and *wrong* that of the latter.
        """
        self._test = test
        self._policies = policies
        self._objects = objects
        self._readable = readable
        self._wrong = wrong
        self._problem = problem
        self._gateway = gateway
        self._reviewed: dict[tuple[int, str], _Reviewed] = {}

    async def result(self, case: _Case) -> CaseResult:
        begin = time.monotonic()
        reason = self._not_supported(case)
        problems = () if reason else tuple([one async for one in self._problems(case)])
        if any(_NO_SCHEMA in one for one in problems):
            reason, problems = f"clusterResources: {problems[0]}", ()
        seconds = time.monotonic() - begin
        test = self._test
        return CaseResult(test.file, test.document, test.name, case.name, problems, seconds, reason)

    def _not_supported(self, case: _Case) -> str:
        """Return why the gateway cannot run *case*, or an empty text."""
        policies, wanted = self._policies, case.row.policy
        for name, reason in policies.refused.items():
            if _is_named(wanted, name):
                return reason
        if policies.unloaded:
            return policies.unloaded
        if case.resource is None or any(case.resource.names(one) for one in self._objects):
            return ""
        if self._test.target_resources:
            return "targetResources: the gateway changes no existing objects, only those of requests"
        if self._test.has_payloads:
            return "payloads are no objects of an API server"
        return ""

    async def _problems(self, case: _Case) -> AsyncIterator[str]:
        """Yield lines about everything that differs from what *case* expects."""
        row, test = case.row, self._test
        if not any(_is_named(row.policy, name) for name in self._policies.names):
            yield f"policy: there is no policy {shown(row.policy)} in {_files(test.policies)}"
            return
        if self._wrong:
            yield self._wrong
            return
        found = [one for one in self._objects if case.resource is None or case.resource.names(one)]
        if self._problem and (case.resource is None or not found):
            yield self._problem
            return
        if not found:
            yield f"resources: there is no {shown(str(case.resource))} in {_files(test.resources)}"
            return
        are_found = False
        for one in found:
            operation = row.operation or self._operation(row.policy, one)
            reviewed = await self._review(one, operation)
            if reviewed.problem:
                yield reviewed.problem
            responses = [each for each in reviewed.responses if _is_of(row, each)]
            are_found = are_found or bool(responses)
            is_compared, lines = True, list[str]()
            if responses and row.patched:
                is_compared, lines = _compared(test.file.parent / row.patched, row, reviewed.final_object)
            for each in responses if is_compared else ():
                if each.result != row.result:
                    rule = f" of {each.rule}" if each.rule else ""
                    message = f": {each.message}" if each.message else ""
                    yield f"result{rule}: found {each.result}, expected {row.result}{message}"
            for line in lines:
                yield line
        if not are_found:
            yield f"result: the policy does not match, expected {row.result}"

    def _operation(self, policy: str, found: Json) -> str:
        values = self._test.values
        if not any(_is_named(policy, name) for name in self._policies.with_rules):
            return values.operation
        named = (policy.rpartition("/")[2], found["metadata"].get("name"))
        return values.operations.get(named, values.operation)

    async def _review(self, found: Json, operation: str) -> _Reviewed:
        key = id(found), operation
        if key not in self._reviewed:
            self._reviewed[key] = await self._reviewed_now(found, operation)
        return self._reviewed[key]

    async def _reviewed_now(self, found: Json, operation: str) -> _Reviewed:
        values = self._test.values
        resource = values.subresources.get((found["apiVersion"], found["kind"]), "")
        old = found if operation == "UPDATE" else None
        options = RequestOptions(operation, "", (), "", resource, old, is_dry_run=False)
        try:
            request = request_for(found, options)
            request["userInfo"] = self._test.user.info
            name = request.get("namespace", "")
            namespaces = {name: values.namespaces.get(name) or bare_namespace(name, {}, {})}
            body = review_of(request)
            review = await self._gateway.review(body, ("mutate",), namespaces, objects=self._readable)
            final = review.final_object
            body = review_of({**request, "object": final})
            validated = await self._gateway.review(body, ("validate",), namespaces, objects=self._readable)
        except ReviewError as error:
            return _Reviewed((), None, f"{found['kind']} {found['metadata'].get('name')}: {error}")
        responses = [one for each in (review, validated) for one in _responses(each, self._policies)]
        responses += _responses_of_rules(validated, self._policies)
        return _Reviewed(responses, final, "")


def _responses(review: DryRun, policies: LoadedPolicies) -> Iterator[PolicyResponse]:
    """Yield what each policy that matches makes of the object."""
    for outcome in review.outcomes:
        hook, verdict = outcome.invocation.webhook, outcome.verdict
        if isinstance(hook.policy, KyvernoClusterPolicy):
            continue
        if isinstance(verdict, Allowed):
            yield PolicyResponse(hook.name, "", "pass", "")
            continue
        message = verdict.message if isinstance(verdict, Denied) else getattr(verdict, "cause", "")
        # Mutating policies do nothing but change the object, or fail to.
        error = f"Policy {hook.name.rpartition('/')[2]} error: "
        is_error = hook.phase == "mutate" or not isinstance(verdict, Denied) or message.startswith(error)
        result = "error" if is_error else "warn" if hook.name in policies.unscored else "fail"
        yield PolicyResponse(hook.name, "", result, message)
    for answer in review.answers:
        for invocation, excluded in answer.evaluation.exclusions:
            if isinstance(invocation.webhook.policy, KyvernoClusterPolicy):
                continue
            is_passed = excluded.is_exception and excluded.condition in policies.passing
            result = "pass" if is_passed else "skip"
            message = f"the matchCondition {excluded.condition} is false"
            if excluded.is_exception:
                message = f"PolicyException {excluded.condition}"
            yield PolicyResponse(invocation.webhook.name, "", result, message)
        for hook in _skipping(answer.evaluation):
            yield PolicyResponse(hook.name, "", "skip", "its bindings or matchConditions exclude the object")


def _skipping(evaluation: Evaluation) -> Iterator[Webhook]:
    """Yield the policies of the API server whose constraints match the object, and that did not decide."""
    request, found = evaluation.request, evaluation.final_object
    decided = {one.invocation.webhook for one in evaluation.outcomes}
    for hook in evaluation.selection.webhooks:
        policy = hook.policy
        if (
            hook not in decided
            and isinstance(hook.client, PolicyRef)
            and hook.client.kind in POLICY_KINDS
            and policy is not None
            and rules_match(hook, request)
            and selectors_match(hook, request, found, evaluation.namespace) is not False
            and not policy.excludes(request)
        ):
            yield hook


def _responses_of_rules(review: DryRun, policies: LoadedPolicies) -> Iterator[PolicyResponse]:
    """Yield what the rules of policies that have rules make of the object, whatever their actions."""
    evaluation = review.answers[-1].evaluation
    policy_input = evaluation.payload.policy_input(evaluation.namespace, None, None, time.time())
    for hook in evaluation.selection.webhooks:
        if isinstance(hook.policy, KyvernoClusterPolicy):
            for each in hook.policy.rule_results(policy_input, Allowance(is_brief=False), {}):
                is_warning = each.status == "fail" and hook.name in policies.unscored
                result = "warn" if is_warning else each.status
                yield PolicyResponse(hook.name, each.rule, result, each.message)


def _is_named(wanted: str, name: str) -> bool:
    """Whether *wanted*, as a row names a policy, is the policy *name*. Kyverno compares no namespaces."""
    return wanted.rpartition("/")[2] == name.rpartition("/")[2]


def _is_of(row: Row, response: PolicyResponse) -> bool:
    rules = ("", row.rule, f"autogen-{row.rule}", f"autogen-cronjob-{row.rule}")
    return _is_named(row.policy, response.policy) and (not row.rule or response.rule in rules)


def _files(paths: Sequence[Path]) -> str:
    return one_of([path.name for path in paths]) if paths else "no file"


def _objects(paths: Sequence[Path]) -> tuple[list[Json], str]:
    """Return the objects in *paths*, each once, and the first problem; the files without one are read."""
    found: dict[tuple[object, ...], Json] = {}
    first = ""
    for document in documents_in(paths):
        for problem in document.problems.errors():
            first = first or f"resources: {problem}"
        if document.content is None:
            continue
        made = _object(document.content)
        if made is None:
            place = document.place
            first = first or f"resources: {place}: found no object with apiVersion, kind and metadata"
            continue
        key = _key(made)
        found.setdefault(key if key[-1] else (id(made),), made)
    return list(found.values()), first


def _object(content: Mapping[str, Any]) -> Json | None:
    """Return the object *content*, with a namespace unless its kind has none; None if it is no object."""
    version, kind = content.get("apiVersion"), content.get("kind")
    if not isinstance(version, str) or not isinstance(kind, str):
        return None
    try:
        made: Json = _with_maps(content)
    except RecursionError:
        return None
    metadata = made.setdefault("metadata", {})
    if not isinstance(metadata, dict):
        return None
    resource = built_in_resource(version.rpartition("/")[0], kind)
    if not metadata.get("namespace") and (resource is None or resource.is_namespaced):
        metadata["namespace"] = DEFAULT_NAMESPACE
    return made


def _with_maps(value: Any) -> Any:  # noqa: ANN401 - any JSON
    """Return a copy of *value* in which the mappings of ``_MAPS`` are not null."""
    if isinstance(value, dict):
        return {key: {} if each is None and key in _MAPS else _with_maps(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_with_maps(each) for each in value]
    return value


def _compared(file: Path, row: Row, final: Json | None) -> tuple[bool, list[str]]:
    """Return whether *file* has what *final* is compared with, and lines about differences.

    Without it the row is skipped, whatever its result, unless it fails on missing objects.
    """
    wanted, problem = _objects([file])
    if problem:
        return True, [f"patchedResources: {problem}"]
    key = None if final is None else _key(final)
    one = next((each for each in wanted if _key(each) == key), None)
    if one is None:
        missing = f"patchedResources: the object after all changes is not in {file.name}"
        return row.fails_on_missing, [missing] if row.fails_on_missing else []
    before, after = without_empty(one), without_empty(final)
    if same(before, after):
        return True, []
    about = f"patchedResources: the object after all changes differs from that in {file.name}"
    return True, [about, *(f"  {line}" for line in changes(before, after))]


def _key(found: Mapping[str, Any]) -> tuple[str, ...]:
    metadata = found["metadata"]
    named = (str(metadata.get(name) or "") for name in ("namespace", "name"))
    return found["apiVersion"], found["kind"], *named


def without_empty(found: Any) -> Any:  # noqa: ANN401 - any JSON
    """Return *found* without null, empty mappings and lists, and labels of generated objects."""
    if isinstance(found, dict):
        items = ((key, without_empty(each)) for key, each in found.items() if not key.startswith(_GENERATED))
        return {key: each for key, each in items if each is not None} or None
    if isinstance(found, list):
        return [each for each in map(without_empty, found) if each is not None] or None
    return found
