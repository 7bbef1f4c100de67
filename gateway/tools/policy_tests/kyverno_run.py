"""Runs tests of Kyverno: each object as a request of the API server, and what each policy makes of it.

A row passes only if its policy has a result for the object. Kyverno's own command also passes rows for
objects to which the policy does not apply.

Source: github.com/kyverno/kyverno cmd/cli/kubectl-kyverno commands/test/{test,output,command}.go,
processor/{operation,policy_processor}.go, resource/{tidy,labels,resource}.go.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from gateway.base.errors import ReviewError
from gateway.base.text import one_of, shown
from gateway.config.merge.load import documents_in
from gateway.config.yaml.documents import POLICY_KINDS
from gateway.engine.object_review import (
    RequestOptions,
    request_for,
    review_of,
)
from gateway.pure.admission_policies.evaluation import Allowance
from gateway.pure.core.matching import selectors_match
from gateway.pure.core.rules import rules_match
from gateway.pure.core.verdict import Allowed, Denied
from gateway.pure.core.webhook import PolicyRef, WorkerRef
from gateway.pure.kyverno.cluster_policy import KyvernoClusterPolicy
from gateway.tools.offline.gateway import offline_gateway
from gateway.tools.policy_tests.engine_worker import private_worker, rule_statuses
from gateway.tools.policy_tests.kyverno_objects import read_objects
from gateway.tools.policy_tests.kyverno_resources import compared, objects_in
from gateway.tools.policy_tests.kyverno_test import VALUES_VERSION
from gateway.tools.policy_tests.policies import bindings_of, load_policies, policies_in
from gateway.tools.policy_tests.results import CaseResult, is_selected
from gateway.tools.policy_tests.suite import bare_namespace

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from gateway.config.yaml.documents import Document
    from gateway.engine.dry_run import DryRun
    from gateway.engine.object_review import Json
    from gateway.pure.core.evaluation import Evaluation
    from gateway.pure.core.webhook import Webhook
    from gateway.tools.offline.gateway import OfflineGateway
    from gateway.tools.policy_tests.kyverno_objects import KyvernoObjects
    from gateway.tools.policy_tests.kyverno_test import KyvernoTest, ObjectName, Row
    from gateway.tools.policy_tests.policies import LoadedPolicies

_NO_SCHEMA: Final = "there is no schema of "
"""The error of an ApplyConfiguration for a custom resource: its schema is in the cluster."""


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
    again: Sequence[tuple[tuple[str, str], str]] = ()
    """Policies that change their own results, which Kyverno does not test: their names, and a line."""


class _Case(NamedTuple):
    name: str
    row: Row
    resource: ObjectName | None
    """None: all objects of the test."""


async def run_kyverno_tests(
    tests: Sequence[KyvernoTest], filters: Sequence[str], command: Sequence[str] = ()
) -> list[CaseResult]:
    """Return the results of the rows of *tests* that *filters* select: one case for each object of a row.

    *command* starts the worker of Kyverno's own code. Without it, rules in its language are not supported.
    """
    results: list[CaseResult] = []
    for test in tests:
        cases = [one for one in _cases(test) if is_selected(test.name, one.name, filters)]
        if cases:
            results += await _run(test, cases, command)
    return results


def _cases(test: KyvernoTest) -> Iterator[_Case]:
    for row in test.rows:
        what = f"{row.policy} {row.rule}".rstrip()
        operation = f" {row.operation}" if row.operation else ""
        for resource in row.resources or (None,):
            yield _Case(f"{what}{operation} on {resource or 'all'}: {row.result}", row, resource)


async def _run(test: KyvernoTest, cases: Sequence[_Case], command: Sequence[str]) -> list[CaseResult]:
    objects, problem = objects_in(test.resources)
    others, _ = objects_in((*test.target_resources, *test.param_resources))
    readable, wrong = read_objects(test, [*objects, *others])
    documents = list(documents_in((*test.policies, *test.exceptions)))
    with private_worker(command, "kyverno", _for_worker(test, documents, (*objects, *others))) as worker:
        policies = load_policies(
            documents,
            documents_in(test.param_resources),
            bindings_of(test.user, test.file),
            readable.kinds,
            readable.servers,
            worker,
        )
        config = policies.config
        if not any(isinstance(one.client, WorkerRef) for one in config.webhooks):
            config = replace(config, pools={})
        async with offline_gateway(config, uses_cluster=False) as gateway:
            run = _TestRun(test, policies, objects, problem, readable, wrong, gateway)
            return [await run.result(case) for case in cases]


def _for_worker(
    test: KyvernoTest, documents: Sequence[Document], objects: Iterable[Json]
) -> Iterator[Mapping[str, object]]:
    """Yield what the worker of a *test* reads: policies, exceptions, objects, values and the user."""
    for one in (*policies_in(documents), *documents_in(test.others)):
        if one.content is not None:
            yield one.content
    # With values, the worker says of each answer what the rule makes of the object.
    yield {"apiVersion": VALUES_VERSION, "kind": "Values", **(test.inline_values or {})}
    yield from objects


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
        notes = () if reason else tuple(self._notes(case))
        return CaseResult(
            test.file, test.document, test.name, case.name, problems, seconds, reason, notes=notes
        )

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
                is_compared, lines = compared(test.file.parent / row.patched, row, reviewed.final_object)
            for each in responses if is_compared else ():
                if each.result != row.result:
                    rule = f" of {each.rule}" if each.rule else ""
                    message = f": {each.message}" if each.message else ""
                    yield f"result{rule}: found {each.result}, expected {row.result}{message}"
            for line in lines:
                yield line
        if not are_found:
            yield f"result: the policy does not match, expected {row.result}"

    def _notes(self, case: _Case) -> Iterator[str]:
        """Yield a line for each policy of *case* that changes its own result for one of its objects."""
        for one in self._objects:
            if case.resource is None or case.resource.names(one):
                operation = case.row.operation or self._operation(case.row.policy, one)
                known = self._reviewed.get((id(one), operation))
                for names, line in () if known is None else known.again:
                    if any(_is_named(case.row.policy, name) for name in names):
                        yield line

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
            again = [
                ((one.webhook.name, one.webhook.configuration), one.line())
                for one in await self._gateway.changed_again(review, self._readable)
            ]
            final = review.final_object
            body = review_of({**request, "object": final})
            validated = await self._gateway.review(body, ("validate",), namespaces, objects=self._readable)
        except ReviewError as error:
            return _Reviewed((), None, f"{found['kind']} {found['metadata'].get('name')}: {error}")
        responses = [one for each in (review, validated) for one in _responses(each, self._policies)]
        responses += _responses_of_rules(validated, self._policies)
        return _Reviewed(responses, final, "", again)


def _responses(review: DryRun, policies: LoadedPolicies) -> Iterator[PolicyResponse]:
    """Yield what each policy that matches makes of the object."""
    for outcome in review.outcomes:
        hook, verdict = outcome.invocation.webhook, outcome.verdict
        if isinstance(hook.policy, KyvernoClusterPolicy):
            continue
        if isinstance(hook.client, WorkerRef):
            for each in rule_statuses(outcome):
                is_warning = each.status == "fail" and hook.configuration in policies.unscored
                result = "warn" if is_warning else each.status
                yield PolicyResponse(hook.configuration, each.rule, result, each.message)
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
            if isinstance(invocation.webhook.client, WorkerRef):
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
