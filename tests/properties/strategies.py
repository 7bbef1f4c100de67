"""Random reviews, webhooks and workers, small enough to collide: few labels, few paths, few namespaces.

A worker's behaviour is a table of conditions on the object that it is shown. It is deterministic, so that a
serial run and a speculating one can be given to agree.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import orjson
from hypothesis import strategies as st

from admission_gateway_worker.json_patch.diff import diff, same
from admission_gateway_worker.json_patch.patch import (
    PatchConflict,
    PatchSyntaxError,
    apply_patch,
    parse_patch,
)
from gateway.pure.core.conditions import (
    NOT_MATCHED,
    AccessCheck,
    AccessDecision,
    ConditionInput,
    ConditionResult,
    Excluded,
    LongEvaluation,
    NotMatched,
    PolicyResult,
    Unresolved,
)
from gateway.pure.core.labels import EVERYTHING, Requirement, Selector
from gateway.pure.core.speculation import ChangeRates
from gateway.pure.core.verdict import (
    ALLOWED,
    NO_DETAILS,
    Allowed,
    Cause,
    Denied,
    Details,
    Failed,
    FailureReason,
)
from gateway.pure.core.webhook import PolicyRef, Rule, WorkerRef
from tests.core.build import ANYTHING, document, resource, webhook

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from gateway.pure.core.conditions import PolicyAnswer
    from gateway.pure.core.exemptions import PolicyException
    from gateway.pure.core.policy import PolicyInput
    from gateway.pure.core.review import AdmissionRequest, Json
    from gateway.pure.core.verdict import Verdict
    from gateway.pure.core.webhook import FailurePolicy, Mode, Phase, ReinvocationPolicy, Webhook

NAMESPACES = {"red": {"team": "a"}, "blue": {"team": "b", "tier": "x"}}

# JSON documents.

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-2, 3)
    | st.sampled_from([0.0, 1.0, 0.5])
    | st.text("ab/~\u00e9", max_size=2)
)
keys = st.text("ab/~0", max_size=2) | st.sampled_from(["metadata", "labels", "spec", "-", "0", "1"])
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=12,
)
objects = st.dictionaries(keys, values, max_size=4)

metadata = st.sampled_from(
    [
        *[{"name": "web", "labels": {"team": team}} for team in "aab"],
        *[{"name": "web", "labels": {"team": "a", "tier": tier}} for tier in "aab"],
        {"name": "web", "labels": {}},
        {"name": "web"},
        {"labels": None},
        {"labels": {"team": 1}},
        None,
    ]
)
specs = st.sampled_from(
    [
        {"replicas": replicas, "containers": [{"name": name, "image": "x:1"} for name in names]}
        for replicas in range(3)
        for names in ("", "c", "cd")
    ]
)
kubernetes_objects = st.builds(
    lambda *parts: dict(zip(("metadata", "spec"), parts, strict=True)), metadata, specs
)

# Conditions about an object.

Condition = tuple[str, Any]
"""A condition about the object: a kind, and its argument."""

conditions = st.sampled_from(
    [
        *[("always", None)] * 3,
        *[("label", about) for about in (("team", "a"), ("team", "b"), ("tier", None), ("tier", "b"))],
        *[("replicas below", about) for about in (1, 2, 3)],
        *[("containers below", about) for about in (1, 2)],
    ]
)


def holds(condition: Condition, shown: Json | None) -> bool:
    kind, about = condition
    if kind == "always":
        return True
    if shown is None:
        return False
    spec: Any = shown.get("spec") or {}
    if kind == "replicas below":
        return isinstance(spec, dict) and bool(spec.get("replicas", 9) < about)
    if kind == "containers below":
        return isinstance(spec, dict) and bool(len(spec.get("containers") or ()) < about)
    metadata: Any = shown.get("metadata")
    held = metadata.get("labels") if isinstance(metadata, dict) else None
    return bool((held.get(about[0]) if isinstance(held, dict) else None) == about[1])


# matchConditions.

DECISIONS = {AccessCheck(b"may"): AccessDecision(allowed=True), AccessCheck(b"may not"): AccessDecision()}
"""Answers of the authorizer."""


@dataclass(frozen=True)
class FakeConditions:
    """Conditions without CEL: about the object, perhaps with a check of the authorizer."""

    condition: Condition
    breaks: Condition | None = None
    """If this holds, the evaluation of the conditions fails."""
    check: AccessCheck | None = None
    takes_long: bool = False

    @property
    def expressions(self) -> Sequence[tuple[str, str]]:
        return ()

    @property
    def needs_authorizer(self) -> bool:
        return self.check is not None

    def evaluate(
        self, condition_input: ConditionInput, decisions: Mapping[AccessCheck, AccessDecision]
    ) -> ConditionResult:
        if self.takes_long:
            return Unresolved(
                evaluation=LongEvaluation(self, lambda: self.decide(condition_input, decisions))
            )
        return self.decide(condition_input, decisions)

    def decide(
        self, condition_input: ConditionInput, decisions: Mapping[AccessCheck, AccessDecision]
    ) -> ConditionResult:
        if self.check is not None and self.check not in decisions:
            return Unresolved((self.check,))
        if not holds(self.condition, condition_input.object):
            return Excluded("holds")
        if self.breaks is not None and holds(self.breaks, condition_input.object):
            return Failed(FailureReason.CONDITION, "no such key: x", 403)
        if self.check is not None and not decisions[self.check].allowed:
            return Excluded("may")
        return None


conditions_of_webhooks = st.builds(
    FakeConditions,
    conditions,
    st.one_of(st.none(), st.none(), conditions),
    st.sampled_from([None, *DECISIONS]),
    st.sampled_from([False, False, True]),
)

# Requests and webhooks.


operations = st.sampled_from(["CREATE"] * 4 + ["UPDATE", "UPDATE", "DELETE", "CONNECT"])
resources = st.sampled_from(["/v1/pods"] * 5 + ["/v1/namespaces", "/v1/nodes"])
namespaces = st.sampled_from(["red"] * 4 + ["blue", "gone", None])
dry_runs = st.sampled_from([False] * 7 + [True])


@st.composite
def requests(draw: st.DrawFn) -> Json:
    """An AdmissionRequest as JSON."""
    operation = draw(operations)
    return document(
        operation=operation,
        resource=resource(draw(resources)),
        namespace=draw(namespaces),
        object=draw(kubernetes_objects) if operation != "DELETE" else None,
        oldObject=draw(kubernetes_objects) if operation in ("UPDATE", "DELETE") else None,
        dryRun=draw(dry_runs),
    )


some_selectors = [
    Selector((requirement,))
    for key in ("team", "tier")
    for requirement in (
        Requirement(key, "In", frozenset("a")),
        Requirement(key, "In", frozenset("b")),
        Requirement(key, "NotIn", frozenset("a")),
        Requirement(key, "Exists"),
        Requirement(key, "DoesNotExist"),
    )
]
selectors = st.sampled_from([EVERYTHING] * 3 * len(some_selectors) + some_selectors)
rules = st.sampled_from(
    [
        *[ANYTHING] * 8,
        Rule(("CREATE", "UPDATE"), ("",), ("v1",), ("pods",)),
        Rule(("*",), ("*",), ("*",), ("*",), "Namespaced"),
    ]
)


pools = st.sampled_from(["pool"] * 5 + ["other"])
failure_policies = st.sampled_from(["Fail", "Ignore", "Ignore", "Ignore"])
side_effects = st.sampled_from(["None"] * 6 + ["NoneOnDryRun", "Some", "Unknown"])
reinvocation_policies: st.SearchStrategy[ReinvocationPolicy] = st.sampled_from(
    ["Never", "IfNeeded", "IfNeeded"]
)
match_conditions = st.one_of(st.none(), st.none(), st.none(), conditions_of_webhooks)
lengths = st.sampled_from([*range(6), *range(3, 6)])


@st.composite
def webhook_lists(draw: st.DrawFn, phase: Phase) -> list[Webhook]:
    """Webhooks in configured order, with different names."""
    return [
        webhook(
            f"w{number}.policies.test",
            phase=phase,
            configuration=f"c{number // 2}",
            client=WorkerRef(draw(pools), f"w{number}"),
            rules=(draw(rules),),
            namespace_selector=draw(selectors),
            object_selector=draw(selectors),
            failure_policy=draw(failure_policies),
            side_effects=draw(side_effects),
            reinvocation_policy=draw(reinvocation_policies) if phase == "mutate" else "Never",
            match_conditions=draw(match_conditions),
        )
        for number in range(draw(lengths))
    ]


# Workers.

words = st.sampled_from(
    [
        (),
        ("careful",),
        ("really", "careful", "really"),
        ("", "bad\nline", "x" * 300),
        ("x" * 256, "x" * 301),
    ]
)
spoken_annotations: st.SearchStrategy[tuple[tuple[str, str], ...]] = st.sampled_from(
    [
        (),
        (("k", "1"), ("condition_input", "2")),
        (("bad/key", "1"), ("k", "2")),
        (("long-" + "k" * 55, "1"), ("long-" + "k" * 56, "2")),
    ]
)

USUAL_PATCHES: list[list[dict[str, Any]]] = [
    [{"op": "add", "path": "/metadata/labels/team", "value": "b"}],
    [{"op": "add", "path": "/metadata/labels/team", "value": "a"}],
    [{"op": "replace", "path": "/metadata/labels", "value": {"tier": "b"}}],
    [{"op": "remove", "path": "/metadata/labels/tier"}],
    [{"op": "remove", "path": "/metadata"}],
    [{"op": "replace", "path": "/metadata", "value": {"labels": {"team": "a"}}}],
    [{"op": "add", "path": "/metadata/labels/team", "value": 1}],
    [{"op": "add", "path": "/metadata/name", "value": "other"}],
    [{"op": "add", "path": "/mark", "value": 1}],
    [{"op": "remove", "path": "/mark"}],
    [{"op": "add", "path": "/spec/containers", "value": []}],
    [{"op": "add", "path": "/spec/containers/-", "value": {"name": "e", "image": "y"}}],
    [{"op": "replace", "path": "/spec/containers/0/image", "value": "x:2"}],
    [{"op": "replace", "path": "/spec/replicas", "value": 3}],
    [{"op": "replace", "path": "/spec/replicas", "value": True}],
    [{"op": "test", "path": "/spec/replicas", "value": 1}, {"op": "add", "path": "/spec/x", "value": 1}],
    [{"op": "replace", "path": "", "value": {"metadata": {"labels": {}}, "spec": {"replicas": 0}}}],
]
ODD_PATCHES = [
    b"[]",
    b"null",
    b"nonsense",
    b"{}",
    b"[null]",
    b'[{"op":"test","path":""}]',
    b'[{"op":"test","path":"/spec/none"}]',
    b'[{"op":"remove","path":"/spec/none"}]',
    b'[{"op":"replace","path":"","value":[]}]',
    b'[{"op":"move","from":"/spec","path":"/metadata/x"}]',
    b'[{"op":"copy","from":"/spec/none","path":"/spec/x"}]',
]

patches = st.sampled_from([b"", *map(orjson.dumps, USUAL_PATCHES * 2), *ODD_PATCHES])


@dataclass(frozen=True)
class Count:
    """A reaction that depends on the object: one replica more, up to three."""

    def __call__(self, shown: Json | None) -> Verdict:
        spec: Any = (shown or {}).get("spec")
        replicas = spec.get("replicas") if isinstance(spec, dict) else None
        if type(replicas) is not int or replicas >= 3:
            return ALLOWED
        return Allowed(orjson.dumps([{"op": "replace", "path": "/spec/replicas", "value": replicas + 1}]))


causes = st.sampled_from(
    [(), (Cause("R", "m", "spec.a"),), (Cause(message="m"), Cause(field="spec.b"), Cause())],
)
patching = st.sampled_from([Allowed(orjson.dumps(operations)) for operations in USUAL_PATCHES])
allowing = st.builds(Allowed, patches, words, spoken_annotations)
denying = st.builds(
    Denied,
    st.sampled_from([400, 403, 404, 599]),
    st.sampled_from(["", "Mine"]),
    st.sampled_from(["", "no", "two\nlines"]),
    causes,
    words,
    spoken_annotations,
    st.sampled_from([NO_DETAILS, NO_DETAILS, Details("web", "apps", "Deployment", "u-2", 30), Details("db")]),
)
failing = st.builds(
    Failed, st.sampled_from(FailureReason), st.sampled_from(["UNAVAILABLE: gone", "no answer"])
)
Reaction = Allowed | Denied | Failed | Count
reactions = st.one_of(*[patching] * 6, *[allowing] * 2, st.just(Count()), denying, failing)


@dataclass(frozen=True)
class Behaviour:
    """A worker: the first condition that holds decides; without one, it allows."""

    table: tuple[tuple[Condition, Reaction], ...]

    def __call__(self, shown: Json | None) -> Verdict:
        for condition, reaction in self.table:
            if holds(condition, shown):
                return reaction(shown) if isinstance(reaction, Count) else reaction
        return ALLOWED


reflexes = st.tuples(conditions, reactions)
behaviours = st.builds(Behaviour, st.one_of(st.tuples(), st.tuples(reflexes), st.tuples(reflexes, reflexes)))


# A complete case.


@dataclass(frozen=True)
class Case:
    """One review with its webhooks, workers and authorizer."""

    phase: Phase
    webhooks: list[Webhook]
    request: Json
    behaviours: list[Behaviour]
    habits: list[tuple[int, int]]
    """By index of the webhook: how many of its changes are cached."""
    modes: Mapping[int, Mode]
    """By index of the webhook; others are enforced."""
    exceptions: tuple[PolicyException, ...] = ()

    def without(self, *modes: Mode) -> Case:
        """The case without the webhooks in these modes."""
        kept = [index for index in range(len(self.webhooks)) if self.modes.get(index) not in modes]
        return replace(
            self,
            webhooks=[self.webhooks[index] for index in kept],
            modes={at: self.modes[index] for at, index in enumerate(kept) if index in self.modes},
        )

    def answer(self, name: str, shown: Json | None) -> Verdict:
        return self.behaviours[int(name[1 : name.index(".")])](shown)

    def memory(self, given: AdmissionRequest) -> ChangeRates:
        memory = ChangeRates()
        for place, changes in self.habits:
            for _ in range(changes if place < len(self.webhooks) else 0):
                memory.note(self.webhooks[place], given, changed=True)
        return memory


habits = st.lists(st.tuples(st.integers(0, 4), st.integers(1, 9)), max_size=3) | st.just(
    [(place, 9) for place in range(5)]
)

other_modes: tuple[Mode, ...] = ("Warn", "Audit", "Shadow")
no_modes: Mapping[int, Mode] = {}
modes = st.just(no_modes) | st.dictionaries(st.integers(0, 4), st.sampled_from(other_modes))

any_request = requests()
lists_of_webhooks: dict[Phase, st.SearchStrategy[list[Webhook]]] = {
    "mutate": webhook_lists("mutate"),
    "validate": webhook_lists("validate"),
}
MOSTLY_MUTATING: tuple[Phase, ...] = ("mutate", "mutate", "mutate", "mutate", "validate")


@st.composite
def cases(draw: st.DrawFn, phases: tuple[Phase, ...] = MOSTLY_MUTATING) -> Case:
    phase = draw(st.sampled_from(phases))
    webhooks = draw(lists_of_webhooks[phase])
    return Case(
        phase,
        webhooks,
        draw(any_request),
        [draw(behaviours) for _ in webhooks],
        draw(habits),
        draw(modes),
    )


# Mutating policies before the webhooks.


@dataclass(frozen=True)
class FakePolicy:
    """A mutating policy without CEL: each invocation reacts like a worker, if its condition holds."""

    name: str
    failure_policy: FailurePolicy
    reinvocation_policy: ReinvocationPolicy
    invocations: tuple[tuple[Condition, Reaction], ...]
    """Of bindings and parameters, which are named by their numbers."""
    check: AccessCheck | None = None
    takes_long: bool = False

    @property
    def expressions(self) -> Sequence[tuple[str, str]]:
        return ()

    can_allow_fast = has_namespace_selectors = False

    def may_match_rules(self, request: AdmissionRequest) -> bool:
        return True

    def excludes(self, request: AdmissionRequest) -> bool:
        return False

    def may_match_namespace(self, labels: Mapping[str, str]) -> bool:
        return True

    def allow_fast(self, policy_input: PolicyInput) -> float | None:
        raise AssertionError("a mutating policy is evaluated")

    def evaluate(
        self, policy_input: PolicyInput, decisions: Mapping[AccessCheck, AccessDecision]
    ) -> PolicyAnswer:
        before, again = policy_input.conditions.object, policy_input.invoked
        if self.takes_long:
            run = partial(self.decide, before, again, decisions)
            return Unresolved(evaluation=LongEvaluation(self, run))
        return self.decide(before, again, decisions)

    def decide(
        self,
        before: Json | None,
        again: Collection[object] | None,
        decisions: Mapping[AccessCheck, AccessDecision],
    ) -> PolicyResult | NotMatched | Unresolved:
        if self.check is not None and self.check not in decisions:
            return Unresolved((self.check,))
        current, errors, invoked = before, [], []
        for number, (condition, reaction) in enumerate(self.invocations):
            if not holds(condition, current) or (again is not None and number not in again):
                continue
            invoked.append(number)
            verdict = reaction(current) if isinstance(reaction, Count) else reaction
            if not isinstance(verdict, Allowed):
                errors.append(f"policy {self.name}: {type(verdict).__name__}")
            elif current is not None:
                try:
                    patched: Any = apply_patch(copy.deepcopy(current), parse_patch(verdict.patch))
                    current = patched if isinstance(patched, dict) else current
                except (PatchConflict, PatchSyntaxError):
                    errors.append(f"policy {self.name}: conflict")
        if not invoked:
            return NOT_MATCHED
        operations = [] if same(before, current) else diff(before, current)
        patch = orjson.dumps(operations) if operations else b""
        allowed = Allowed(patch) if patch else ALLOWED
        verdict = allowed
        if errors and self.failure_policy == "Fail":
            verdict = Denied(403, "Invalid", errors[0], tuple(Cause(message=each) for each in errors))
        elif errors:
            verdict = Failed(FailureReason.POLICY, "; ".join(errors), 500)
        reported = verdict if isinstance(verdict, Denied) else allowed
        repeated = invoked if again is None and self.reinvocation_policy == "IfNeeded" else ()
        return PolicyResult(verdict, reported, 0.0, current if operations else None, patch, repeated)


numbers_of_policies = st.integers(1, 3)
failures_of_policies: st.SearchStrategy[FailurePolicy] = st.sampled_from(["Fail", "Ignore"])
invocations = st.lists(st.tuples(conditions, reactions), min_size=1, max_size=2)
checks = st.sampled_from([None, None, *DECISIONS])
lasting = st.sampled_from([False, False, True])


@st.composite
def policy_lists(draw: st.DrawFn) -> list[Webhook]:
    """Mutating policies in configured order, with different names."""
    found = []
    for number in range(draw(numbers_of_policies)):
        policy = FakePolicy(
            f"p{number}",
            draw(failures_of_policies),
            draw(reinvocation_policies),
            tuple(draw(invocations)),
            draw(checks),
            draw(lasting),
        )
        found.append(
            webhook(
                policy.name,
                configuration=policy.name,
                client=PolicyRef("MutatingAdmissionPolicy", policy),
                rules=(draw(rules),),
                namespace_selector=draw(selectors),
                object_selector=draw(selectors),
                failure_policy=policy.failure_policy,
                reinvocation_policy=policy.reinvocation_policy,
            )
        )
    return found


lists_of_policies = policy_lists()
mutating_cases = cases(("mutate",))
modes_of_many = st.just(no_modes) | st.dictionaries(st.integers(0, 7), st.sampled_from(other_modes))


@st.composite
def cases_with_policies(draw: st.DrawFn) -> Case:
    """Mutating policies, then mutating webhooks."""
    policies, case = draw(lists_of_policies), draw(mutating_cases)
    count = len(policies)
    return replace(
        case,
        webhooks=[*policies, *case.webhooks],
        habits=[(place + count, changes) for place, changes in case.habits],
        modes=draw(modes_of_many),
    )


orders = st.lists(st.integers(0, 7), max_size=24)
"""The index of the open call that ends next; after the last index, the oldest."""

chains = st.sampled_from([[True], [True], [False], [True, False], [False, True, True]])
"""For each verdict in a chain, repeated: whether the worker has evaluated the chain."""


# Patches, valid and broken, against a document.


def pointers(document: object, path: str = "") -> list[str]:
    """Every path in *document*, its own first."""
    found = [path]
    children: list[tuple[str, object]] = []
    if isinstance(document, dict):
        children = [(key.replace("~", "~0").replace("/", "~1"), value) for key, value in document.items()]
    elif isinstance(document, list):
        children = [(str(index), value) for index, value in enumerate(document)]
    for token, value in children:
        found += pointers(value, f"{path}/{token}")
    return found


@st.composite
def patches_against(draw: st.DrawFn, target: object) -> list[dict[str, Any]]:
    """Operations that often apply: most of their paths exist."""
    known = st.sampled_from(pointers(target))
    path = st.one_of(
        known,
        known,
        st.builds(lambda head, tail: f"{head}/{tail}", known, keys),
        st.sampled_from(["/-", "/-1"]),
    )
    operation = st.fixed_dictionaries(
        {"op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test", "merge"]), "path": path},
        optional={"from": path, "value": values},
    )
    return draw(st.lists(operation, max_size=4))
