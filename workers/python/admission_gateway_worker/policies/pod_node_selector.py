"""PodNodeSelector: the node selector of a namespace is part of that of its pods.

The namespace has it in the annotation ``scheduler.alpha.kubernetes.io/node-selector``. The parameters are the
``podNodeSelectorPluginConfig`` of the API server's configuration file.

Source: kubernetes plugin/pkg/admission/podnodeselector; k8s.io/apimachinery pkg/labels labels.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from admission_gateway_worker.policies.builtin import (
    LABEL_KEY,
    LABEL_VALUE,
    annotations_of_namespace,
    failed,
    forbidden,
    is_for,
    quoted,
    rule,
)
from admission_gateway_worker.policies.definition import Definition, Replaced

if TYPE_CHECKING:
    from admission_gateway_worker import Review

ANNOTATION: Final = "scheduler.alpha.kubernetes.io/node-selector"
_RULES: Final = (rule("pods", "CREATE"),)
_DEFAULT: Final = "clusterDefaultNodeSelector"

Selectors = dict[str, dict[str, str]]


def pod_node_selector(review: Review) -> None:
    """Merge the namespace's node selector into that of the pod, then check it."""
    if is_for(review, _RULES):
        selector = _of_namespace(review)
        spec = review.object.setdefault("spec", {})
        _check_conflict(review, selector)
        if selector:
            spec["nodeSelector"] = {**selector, **(spec.get("nodeSelector") or {})}
        _check_allowed(review)


def check_node_selector(review: Review) -> None:
    """Check the node selector of the pod."""
    if is_for(review, _RULES):
        _check_conflict(review, _of_namespace(review))
        _check_allowed(review)


def _of_namespace(review: Review) -> dict[str, str]:
    text = annotations_of_namespace(review).get(ANNOTATION)
    if text is None:
        selectors: Selectors = review.parameters
        return selectors.get(_DEFAULT, {})
    try:
        return parse_selector(text)
    except ValueError as error:
        raise failed(str(error)) from error


def _of_pod(review: Review) -> dict[str, str]:
    found: dict[str, str] = (review.object.get("spec") or {}).get("nodeSelector") or {}
    return found


def _check_conflict(review: Review, selector: dict[str, str]) -> None:
    if any(_of_pod(review).get(key, value) != value for key, value in selector.items()):
        raise _forbidden(review, "pod node label selector conflicts with its namespace node label selector")


def _check_allowed(review: Review) -> None:
    allowed = review.parameters.get(review.namespace)
    if allowed and not _of_pod(review).items() <= allowed.items():
        raise _forbidden(review, "pod node label selector labels conflict with its namespace whitelist")


def _forbidden(review: Review, text: str) -> Exception:
    return forbidden(review, text, name=(review.object.get("metadata") or {}).get("name", ""))


def parse_selector(text: str) -> dict[str, str]:
    """Return the labels of a selector such as ``env=test, disk=ssd``.

    Raises:
        ValueError: it is not a list of ``KEY=VALUE``.
    """
    labels = {}
    for part in text.split(",") if text else ():
        pair = part.split("=")
        if len(pair) != 2:
            raise ValueError(f"invalid selector: [{' '.join(pair)}]")
        key, value = (each.strip() for each in pair)
        if not LABEL_KEY.fullmatch(key):
            raise ValueError(f"invalid selector: {quoted(key)} is not a label key")
        if not LABEL_VALUE.fullmatch(value):
            raise ValueError(f"invalid selector: {quoted(value)} is not a label value")
        labels[key] = value
    return labels


def prepare(parameters: dict[str, Any]) -> Selectors:
    """Return the selectors as labels, by namespace.

    Raises:
        ValueError: one is not a selector.
    """
    return {name: parse_selector(text) for name, text in parameters.items()}


_PARAMETERS: Final = {
    "type": "object",
    "properties": {
        _DEFAULT: {
            "type": "string",
            "description": f"Selector for namespaces without the annotation {ANNOTATION}, such as "
            '"disk=ssd, env=test".',
        }
    },
    "additionalProperties": {
        "type": "string",
        "description": "By name of a namespace: the labels that node selectors of its pods may have.",
    },
}
_EXAMPLE: Final = {_DEFAULT: "pool=general", "builds": "pool=general, disk=ssd"}

DEFINITIONS = (
    Definition(
        "pod-node-selector",
        "Adds the node selector of the namespace to its pods and denies pods that contradict it "
        "(PodNodeSelector).",
        pod_node_selector,
        rules=_RULES,
        users_see='pods "web" is forbidden: pod node label selector conflicts with its namespace node label '
        "selector",
        topic="scheduling",
        replaces=(Replaced("Kubernetes", "PodNodeSelector"),),
        mutating=True,
        parameters=_PARAMETERS,
        prepare=prepare,
        example=_EXAMPLE,
        needs_namespace=True,
    ),
    Definition(
        "pod-node-selector-validate",
        "Denies pods whose node selector contradicts that of the namespace after all changes.",
        check_node_selector,
        rules=_RULES,
        users_see='pods "web" is forbidden: pod node label selector labels conflict with its '
        "namespace whitelist",
        topic="scheduling",
        replaces=(Replaced("Kubernetes", "PodNodeSelector"),),
        parameters=_PARAMETERS,
        prepare=prepare,
        example=_EXAMPLE,
        needs_namespace=True,
    ),
)
