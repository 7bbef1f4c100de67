"""Policies on the Pods of workloads: evaluated at the workload, on the Pod that its controller would create.

The Pod has labels, annotations, finalizers and spec of the template, and the namespace of the workload. It
has no name yet: ``generateName`` begins with the name of the workload, without what a controller appends. Its
owner is the controller: for a Deployment a ReplicaSet, for a CronJob a Job, by the name of the workload.

Nothing creates Pods of a PodTemplate, so it is not a workload.

Source: k8s.io/kubernetes pkg/controller/controller_utils.go (GetPodFromTemplate, getPodsPrefix);
k8s.io/pod-security-admission admission/admission.go (DefaultPodSpecExtractor).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from admission_gateway_worker.json_patch.diff import same
from gateway.base.text import shown
from gateway.pure.admission_policies.bindings import included
from gateway.pure.admission_policies.model import (
    MutatingBinding,
    MutatingPolicy,
    ValidatingBinding,
    ValidatingPolicy,
)
from gateway.pure.admission_policies.mutating import MutatingPolicyInForce
from gateway.pure.admission_policies.params import NO_PARAMS
from gateway.pure.admission_policies.policy import ValidatingPolicyInForce
from gateway.pure.core.conditions import NOT_MATCHED, ConditionInput
from gateway.pure.core.labels import EVERYTHING
from gateway.pure.core.matching import object_matches
from gateway.pure.core.policy import PolicyInput, Workload
from gateway.pure.core.review import V1, checked, labels_of, metadata_of
from gateway.pure.core.verdict import Details
from gateway.pure.core.webhook import PolicyRef, PolicyRollout, Rollout, Rule
from gateway.pure.core.workload import TEMPLATES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gateway.pure.admission_policies.in_force import PolicyInForce
    from gateway.pure.admission_policies.model import TemplateMode
    from gateway.pure.admission_policies.params import FixedParams
    from gateway.pure.core.conditions import AccessCheck, AccessDecision, PolicyAnswer
    from gateway.pure.core.review import AdmissionRequest, Json
    from gateway.pure.core.webhook import Mode, Webhook


class _Kind(NamedTuple):
    """A kind of workloads."""

    name: str
    path: tuple[str, ...]
    """Of the pod template."""
    owner: tuple[str, str]
    """apiVersion and kind of what creates the Pods."""


_CREATED_BY: Final = {"CronJob": ("batch/v1", "Job"), "Deployment": ("apps/v1", "ReplicaSet")}
"""Workloads whose Pods another object creates."""
_KINDS: Final[Mapping[tuple[str, str], _Kind]] = {
    (group, f"{kind.lower()}s"): _Kind(
        kind, path, _CREATED_BY.get(kind, (f"{group}/v1" if group else "v1", kind))
    )
    for (group, kind), path in TEMPLATES.items()
}
"""By group and resource."""
RULES: Final = tuple(
    Rule(
        ("CREATE", "UPDATE"),
        (group,),
        ("v1",),
        tuple(resource for of, resource in _KINDS if of == group),
        "Namespaced",
    )
    for group in dict.fromkeys(group for group, _ in _KINDS)
)
"""The requests at which templates are reviewed."""
_COPIED: Final = ("labels", "annotations", "finalizers")
_MAX_NAME_CHARS: Final = 253
_WEAKNESS: Final[Sequence[Mode]] = ("Enforce", "Warn", "Audit", "Shadow")
_POD_KIND: Final = {"group": "", "version": "v1", "kind": "Pod"}
_PODS: Final = {"group": "", "version": "v1", "resource": "pods"}
_OF_POD: Final[Json] = {
    "kind": _POD_KIND,
    "resource": _PODS,
    "requestKind": _POD_KIND,
    "requestResource": _PODS,
    "operation": "CREATE",
    "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
}
_ANY_POD: Final = checked(V1, {**_OF_POD, "uid": "-", "namespace": "-", "object": {}}, b"")


def as_webhooks_on_templates(
    policy: ValidatingPolicy | MutatingPolicy,
    bindings: Sequence[ValidatingBinding | MutatingBinding],
    params: FixedParams = NO_PARAMS,
    refusal: str = "",
) -> Iterator[Webhook]:
    """Yield *policy* with its *bindings*, which are of its kind, as entries for the Pods of workloads.

    They are of the validating phase: no policy changes a template. None, unless its annotation asks for them
    and it can have an effect. One that refuses workloads is as far in force as the binding; others do not
    follow its plan, and have the mode of its first stage. For *params* and *refusal* see ``PolicyInForce``.
    """
    mode = policy.templates
    if mode is None or why_without_effect(policy):
        return
    by_mode: dict[Mode, list[Any]] = {}
    groups: list[tuple[PolicyRollout, list[Any]]] = []
    for binding in bindings:
        if binding.rollout is not None:
            groups.append((binding.rollout, [binding]))
        else:
            of_mode: Mode = binding.mode if isinstance(binding, MutatingBinding) else "Enforce"
            by_mode.setdefault(of_mode, []).append(binding)
    groups += ((PolicyRollout(Rollout(each)), found) for each, found in by_mode.items())
    for rollout, bound in groups:
        in_force: PolicyInForce[Any, Any]
        if isinstance(policy, MutatingPolicy):
            in_force = MutatingPolicyInForce(policy, bound, params, refusal)
        else:
            # They are about objects that are created.
            rules = replace(policy.rules, audit_annotations=())
            rules.build()
            in_force = ValidatingPolicyInForce(replace(policy, rules=rules), bound, params, refusal)
        # This entry is validating. The plan of a MutatingPolicy is about its patches, and promotes no denial.
        is_of_phase = rollout.plan is None or not isinstance(policy, MutatingPolicy)
        of_template: Mode = "Warn" if mode == "Warn" else "Enforce"
        weaker = max((rollout.rollout.mode, of_template), key=_WEAKNESS.index)
        follows = mode == "Deny" and is_of_phase
        chosen = rollout if follows else PolicyRollout(Rollout(weaker))
        entry = _entry(TemplatePolicy(in_force, mode), chosen)
        yield entry if follows else replace(entry, document="")


def _entry(policy: TemplatePolicy, rollout: PolicyRollout) -> Webhook:
    bound = policy.bound
    entry = rollout.applied_to(bound.as_entry("validate"))
    return replace(
        entry,
        client=PolicyRef(bound.kind, policy, bound.reads, bound.objects.unlisted, is_on_templates=True),
        rules=RULES,
        object_selector=EVERYTHING,
        match_policy="Equivalent",
        # The registration of an entry that refuses nothing does not either.
        failure_policy=entry.failure_policy if entry.may_reject else "Ignore",
    )


def why_without_effect(policy: ValidatingPolicy | MutatingPolicy) -> str:
    """Return why *policy* refuses the Pods of no template; empty if it may refuse some."""
    if not included(policy.match, _ANY_POD):
        return "spec.matchConstraints does not match the creation of Pods that have no name yet"
    if isinstance(policy, ValidatingPolicy) and not policy.rules.validations:
        return "spec has no validations"
    return ""


class TemplatePolicy:
    """A policy on the Pods of workloads: an ``AdmissionPolicy`` of requests for these."""

    can_allow_fast = False

    def __init__(self, bound: PolicyInForce[Any, Any], mode: TemplateMode) -> None:
        """*bound* is the policy on Pods."""
        self.bound = bound
        self._mode = mode
        self._may_match_pods = bound.may_match_rules(_ANY_POD)

    @property
    def expressions(self) -> Sequence[tuple[str, str]]:
        """See ``AdmissionPolicy``."""
        return (*self.bound.expressions, ("applies-to-templates", self._mode))

    @property
    def has_namespace_selectors(self) -> bool:
        """See ``AdmissionPolicy``."""
        return self.bound.has_namespace_selectors

    def may_match_rules(self, request: AdmissionRequest) -> bool:
        """See ``AdmissionPolicy``."""
        del request
        return self._may_match_pods

    def excludes(self, request: AdmissionRequest) -> bool:
        """Whether *request* has no template, leaves it as it is, or has one whose labels are not selected."""
        changed = _changed_template(request, request.object, request.old_object)
        return changed is None or not self._selects(changed[1])

    def _selects(self, document: Json | None) -> bool:
        """Whether the objectSelector matches *document*, a Pod or a template."""
        match = self.bound.policy.match
        return match.object_selector.is_empty or object_matches(match, (labels_of(document),))

    def may_match_namespace(self, labels: Mapping[str, str]) -> bool:
        """See ``AdmissionPolicy``."""
        return self.bound.may_match_namespace(labels)

    def allow_fast(self, policy_input: PolicyInput) -> float | None:
        """See ``AdmissionPolicy``."""
        raise AssertionError("the policy cannot allow requests fast")

    def evaluate(
        self, policy_input: PolicyInput, decisions: Mapping[AccessCheck, AccessDecision]
    ) -> PolicyAnswer:
        """Return the decision on the Pod, or the tasks that it needs first; see ``AdmissionPolicy``."""
        of_pod = _input_for_pod(policy_input)
        if of_pod is None or not self._selects(of_pod.conditions.object):
            return NOT_MATCHED
        conditions = policy_input.conditions
        of_pod.found_params = policy_input.found_params
        of_pod.answers = policy_input.answers
        of_pod.conditions.brief_steps = conditions.brief_steps
        answer = self.bound.evaluate(of_pod, decisions)
        conditions.brief_steps = of_pod.conditions.brief_steps
        return answer


class _PodInput(PolicyInput):
    __slots__ = ("workload",)

    def __init__(
        self,
        conditions: ConditionInput,
        request: AdmissionRequest,
        of_workload: PolicyInput,
        workload: Workload,
    ) -> None:
        known = of_workload
        super().__init__(conditions, request, known.namespace, known.params, known.schemas, now=known.now)
        self.workload = workload


def _input_for_pod(policy_input: PolicyInput) -> PolicyInput | None:
    """Return the input for the Pod of the workload of *policy_input*, the same for all policies.

    None if there is no template, or the request leaves it as it is.
    """
    try:
        return policy_input.of_template
    except AttributeError:
        found = policy_input.of_template = _made_input(policy_input)
    return found


def _made_input(policy_input: PolicyInput) -> PolicyInput | None:
    request, seen = policy_input.request, policy_input.conditions
    changed = _changed_template(request, seen.object, seen.old_object)
    if changed is None:
        return None
    kind, template = changed
    metadata = metadata_of(seen.object)
    pod = _pod(kind, template, metadata, request.namespace)
    document: Json = {"uid": request.uid, **_OF_POD, "namespace": request.namespace, "object": pod}
    document |= {name: seen.document[name] for name in ("userInfo", "dryRun") if name in seen.document}
    # Nobody gets this request: of its JSON only the size counts, which that of the workload's exceeds.
    of_pod = checked(request.api_version, document, request.json)
    conditions = ConditionInput(document, pod, None)
    conditions.has_go_types = of_pod.has_go_types = seen.has_go_types
    group, _, resource = request.request_resource
    name = _name_in(metadata)
    workload = Workload(f"{kind.name} {shown(name)}", Details(name or "Unknown", group, resource))
    return _PodInput(conditions, of_pod, policy_input, workload)


def _changed_template(
    request: AdmissionRequest, current: Json | None, old: Json | None
) -> tuple[_Kind, Json] | None:
    """Return the kind of the workload that *request* writes, and its template.

    None if it has none that is an object, or is an update that leaves it as it is.
    """
    group, _, resource = request.resource
    kind = _KINDS.get((group, resource))
    template = None if kind is None else _template(kind, current)
    if kind is None or template is None:
        return None
    if request.operation == "UPDATE":
        try:
            if same(template, _template(kind, old)):
                return None
        except RecursionError:
            # Too deep to be compared: perhaps changed.
            pass
    return kind, template


def _template(kind: _Kind, document: Json | None) -> Json | None:
    found: object = document
    for name in kind.path:
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else None


def _pod(kind: _Kind, template: Json, owner: Mapping[str, object], namespace: str) -> Json:
    of_template = metadata_of(template)
    metadata: Json = {each: of_template[each] for each in _COPIED if of_template.get(each)}
    name = _name_in(owner)
    if name:
        metadata["generateName"] = name if name.endswith("-") else pod_prefix(name)
    api_version, owner_kind = kind.owner
    uid = owner.get("uid")
    controller: Json = {
        "apiVersion": api_version,
        "kind": owner_kind,
        "name": name,
        "uid": uid if isinstance(uid, str) else "",
        "controller": True,
        "blockOwnerDeletion": True,
    }
    metadata |= {"namespace": namespace, "ownerReferences": [controller]}
    spec = template.get("spec")
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": spec if isinstance(spec, dict) else {},
    }


def pod_prefix(name: str) -> str:
    """Return what the names of the Pods of a workload *name* begin with."""
    # A controller appends no dash to the longest name.
    return name if len(name) >= _MAX_NAME_CHARS else f"{name}-"


def _name_in(metadata: Mapping[str, object]) -> str:
    """Return the name in *metadata*, or the beginning of the one that the API server will make up."""
    name = metadata.get("name") or metadata.get("generateName")
    return name if isinstance(name, str) else ""
