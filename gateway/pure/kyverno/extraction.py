"""A ValidatingPolicy of Kyverno about Pods, applied to each Pod template in the object of a request.

Kyverno does so for workloads whose Pod templates it does not know by their kind. Expressions see a Pod made
of a template, and the request as if it were for that Pod. The first template that fails refuses the request,
and so does an object without one.

Source: github.com/kyverno/kyverno v1.19.1 pkg/cel/autogen/extract/{extract,synthesize}.go,
pkg/cel/policies/vpol/engine/engine.go (evaluateExtracted).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gateway.pure.admission_policies.evaluation import POLICY_LIMIT, TooLongError
from gateway.pure.admission_policies.mutating import MAX_BRIEF_BYTES
from gateway.pure.cel.errors import EvaluationError
from gateway.pure.core.conditions import Excluded
from gateway.pure.kyverno.evaluator import COST_EXCEEDED, values_for
from gateway.pure.kyverno.validating import KyvernoValidatingPolicy, KyvernoValidatingRun

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gateway.pure.admission_policies.evaluation import Allowance
    from gateway.pure.admission_policies.validating import Values

    Json = dict[str, Any]
    Path = tuple["Path | None", str]
    """The path before the last step, and that step."""

_KIND: Final = {"group": "", "version": "v1", "kind": "Pod"}
_RESOURCE: Final = {"group": "", "version": "v1", "resource": "pods"}
_OF_PODS: Final = {
    "kind": _KIND,
    "requestKind": _KIND,
    "resource": _RESOURCE,
    "requestResource": _RESOURCE,
}
_TEMPLATE_COST: Final = 150
"""What one template costs beside its expressions."""
_NODE_COST: Final = 25
"""What an object or list costs in which templates are looked for: some microseconds."""
_FIELD_COST: Final = 2
"""What each field or item of it costs."""


class PodTemplatesPolicy(KyvernoValidatingPolicy):
    """What autogen makes of a policy for workloads whose Pod templates it has to look for."""

    @property
    def can_allow_fast(self) -> bool:
        """See ``AdmissionPolicy``."""
        return False


class _Run(KyvernoValidatingRun):
    def _refusal(self) -> str | Excluded:
        allowance, seen = self._allowance, self._seen
        if allowance.is_brief and len(self._request.json) > MAX_BRIEF_BYTES:
            raise TooLongError
        is_deleted = not seen.object
        source, other = (seen.old_object, None) if is_deleted else (seen.object, seen.old_object)
        if not source:
            # So Go writes the type of an object that is absent.
            found = "*unstructured.Unstructured"
            return f"error: error: extraction mode: expected an unstructured object, got {found}"
        has_templates = is_evaluated = False
        excluded: Excluded | None = None
        for path, template, old in pod_templates(source, other, allowance):
            has_templates = True
            allowance.take(_TEMPLATE_COST)
            values = self._values(None, template) if is_deleted else self._values(template, old)
            try:
                refusal = self._refusal_by(values)
            except EvaluationError as error:
                raise EvaluationError(f"pod template at {shown_path(path)}: {error}") from None
            if not isinstance(refusal, Excluded):
                # Kyverno has no budget for all templates; without one, a request could take minutes.
                if not refusal and allowance.cost > POLICY_LIMIT:
                    refusal = f"error: error: {COST_EXCEEDED}"
                if refusal:
                    return f"{refusal} (pod template at {shown_path(path)})"
                is_evaluated = True
            elif excluded is None or (refusal.is_exception and not excluded.is_exception):
                excluded = refusal
        if not has_templates:
            kind = seen.document["kind"]
            version = f"{kind['group']}/{kind['version']}".lstrip("/")
            return f"error: error: extraction mode: no pod template found in {version}/{kind['kind']}"
        return "" if is_evaluated or excluded is None else excluded

    def _values(self, template: Json | None, old: Json | None) -> Values:
        """Return the values of expressions for the Pods of *template*, and of *old*, that before it.

        Other than without extraction, an absent object is null.
        """
        document = self._seen.document
        current, before = self._pod(template), self._pod(old)
        metadata = (current or before or {})["metadata"]
        sub_resource = document.get("subResource")
        of_pod = {
            **_OF_PODS,
            "subResource": sub_resource,
            "requestSubResource": sub_resource,
            "name": metadata["name"],
            "namespace": metadata["namespace"],
        }
        request = {name: value for name, value in document.items() if name not in of_pod}
        request |= {name: value for name, value in of_pod.items() if value}
        request |= {"object": current, "oldObject": before}
        return (current, before, request, *values_for(self._input, self._objects)[3:])

    def _pod(self, template: Json | None) -> Json | None:
        if template is None:
            return None
        metadata = dict(template.get("metadata") or {})
        for field, value in (("name", self._request.name), ("namespace", self._request.namespace)):
            if not isinstance(found := metadata.get(field), str) or not found:
                metadata[field] = value
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


PodTemplatesPolicy.run_type = _Run


def pod_templates(
    document: Json, other: Json | None, allowance: Allowance
) -> Iterator[tuple[Path, Json, Json | None]]:
    """Yield the Pod templates in the spec of *document*, each with its path and that of *other* there.

    Kyverno takes the fields of an object in a random order, here they come by name. There is no template in
    another one.

    Raises:
        TooLongError: the costs exceed *allowance*.
    """
    spec = document.get("spec")
    if not isinstance(spec, dict):
        return
    waiting: list[tuple[Path, Any, Any]] = [((None, "spec"), spec, (other or {}).get("spec"))]
    while waiting:
        path, node, old = waiting.pop()
        allowance.take(_NODE_COST + _FIELD_COST * len(node))
        is_old_template = _is_pod_template(old)
        if _is_pod_template(node):
            yield path, node, old if is_old_template else None
        elif isinstance(node, dict):
            known = old if isinstance(old, dict) and not is_old_template else {}
            waiting += [
                ((path, f".{key}"), node[key], known.get(key))
                for key in sorted(node, reverse=True)
                if isinstance(node[key], (dict, list))
            ]
        else:
            listed = old if isinstance(old, list) else ()
            waiting += [
                ((path, f"[{at}]"), node[at], listed[at] if at < len(listed) else None)
                for at in reversed(range(len(node)))
                if isinstance(node[at], (dict, list))
            ]


def shown_path(path: Path | None) -> str:
    """Return *path* as Kyverno writes it."""
    steps = []
    while path is not None:
        path, step = path
        steps.append(step)
    return "".join(reversed(steps))


def _is_pod_template(value: object) -> bool:
    """Whether *value* looks like a Pod template, whatever it is part of."""
    if not isinstance(value, dict) or not isinstance(value.get("metadata", {}), dict):
        return False
    spec = value.get("spec")
    containers = spec.get("containers") if isinstance(spec, dict) else None
    return (
        isinstance(containers, list)
        and containers != []
        and all(
            isinstance(each, dict)
            and isinstance(name := each.get("name"), str)
            and name != ""
            and isinstance(each.get("image"), str)
            for each in containers
        )
    )
