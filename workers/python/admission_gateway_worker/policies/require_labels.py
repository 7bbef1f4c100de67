"""``require-labels``: objects and templates of pods have labels and annotations, with values of a pattern."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from admission_gateway_worker.pods import pod_spec_of
from admission_gateway_worker.policies.definition import Definition, Replaced
from admission_gateway_worker.policies.workloads import PODS_AND_TEMPLATES, deny_new
from admission_gateway_worker.review import Cause

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from admission_gateway_worker import Review


_TEMPLATES: Final = ("template", "jobTemplate")


class _Required(NamedTuple):
    """One required label or annotation."""

    field: str
    """``labels`` or ``annotations``."""
    key: str
    pattern: str
    expression: Any
    """The compiled pattern. None for any value that is not empty."""


class _Parameters(NamedTuple):
    required: tuple[_Required, ...]
    of_templates: bool


def _prepare(parameters: Mapping[str, Any]) -> _Parameters:
    """Raises ValueError if a pattern is not a regular expression, or nothing is required."""
    import re2  # evaluates in linear time, whatever the pattern and the value

    options = re2.Options()
    # The error says what is wrong.
    options.log_errors = False
    required = []
    for field in ("labels", "annotations"):
        for key, pattern in (parameters.get(field) or {}).items():
            try:
                expression = re2.compile(pattern, options) if pattern else None
            except re2.error as error:
                reason = error.args[0].decode("utf-8", "replace")
                raise ValueError(
                    f"{field}[{key}]: {pattern!r} is not a regular expression: {reason}"
                ) from None
            required.append(_Required(field, key, pattern, expression))
    if not required:
        raise ValueError("labels and annotations are missing, expected one of them")
    return _Parameters(tuple(required), parameters.get("templates", True))


def require_labels(review: Review) -> None:
    """Deny objects without the required labels and annotations.

    Without templates, objects that a controller makes are left out, too: it copies their labels from a
    template.
    """
    found = review.object
    if review.operation not in ("CREATE", "UPDATE") or review.sub_resource or not isinstance(found, dict):
        return
    metadata = found.get("metadata") or {}
    if metadata.get("deletionTimestamp"):
        return  # such updates only remove finalizers
    parameters: _Parameters = review.parameters
    owners = metadata.get("ownerReferences") or ()
    if parameters.of_templates or not any(each.get("controller") is True for each in owners):
        deny_new(review, lambda each: _problems(review.kind, each, parameters))


def _problems(kind: Mapping[str, str], found: dict[str, Any], parameters: _Parameters) -> Iterator[Cause]:
    yield from _missing(found, (), parameters.required)
    pod = pod_spec_of(kind, found) if parameters.of_templates else None
    if pod is None:
        return
    *keys, _ = pod.path.split(".")
    # The templates on the way to the pod spec: a CronJob has one of Jobs, and that one of Pods.
    for length, key in enumerate(keys, 1):
        found = found[key]
        if key in _TEMPLATES:
            yield from _missing(found, keys[:length], parameters.required)


def _missing(
    found: Mapping[str, Any], keys: Sequence[str], required: tuple[_Required, ...]
) -> Iterator[Cause]:
    metadata = found.get("metadata") or {}
    for each in required:
        field = ".".join((*keys, "metadata", f"{each.field}[{each.key}]"))
        value = (metadata.get(each.field) or {}).get(each.key)
        if not value:
            yield Cause(f"the {each.field[:-1]} is missing: add it", field, "FieldValueRequired")
        elif each.expression is not None and not each.expression.fullmatch(value):
            yield Cause(f'"{value}" does not match {each.pattern}', field, "FieldValueInvalid")


def _patterns(what: str) -> dict[str, Any]:
    return {
        "type": "object",
        "minProperties": 1,
        "additionalProperties": {"type": "string"},
        "description": f"Required {what}: the key, and a regular expression (RE2) for the whole value. An "
        "empty expression is for any value that is not empty.",
    }


DEFINITIONS = (
    Definition(
        name="require-labels",
        summary="Objects and pod templates have the required labels and annotations.",
        function=require_labels,
        rules=PODS_AND_TEMPLATES,
        users_see="metadata.labels[team]: the label is missing: add it",
        topic="metadata and ownership",
        replaces=(
            Replaced("Kyverno", "require-labels", "also for templates of Pods"),
            Replaced("Kyverno", "require-annotations", "also for templates of Pods"),
            Replaced(
                "Gatekeeper",
                "K8sRequiredLabels",
                "the expression is for the whole value; no message of your own",
            ),
            Replaced(
                "Gatekeeper",
                "K8sRequiredAnnotations",
                "the expression is for the whole value; no message of your own",
            ),
        ),
        parameters={
            "type": "object",
            "minProperties": 1,
            "additionalProperties": False,
            "properties": {
                "labels": _patterns("labels"),
                "annotations": _patterns("annotations"),
                "templates": {
                    "type": "boolean",
                    "default": True,
                    "description": "Whether templates of Pods and Jobs need them, too. If not, objects "
                    "that a controller makes from a template need none.",
                },
            },
        },
        prepare=_prepare,
        notes="- With `templates: false` an object with a `controller` among its `ownerReferences` needs no "
        "labels. Users can write such a reference; `owner-references-permission-enforcement` checks "
        "references that block the deletion of their owner only.\n",
        example={"labels": {"team": "[a-z][a-z0-9-]*", "app.kubernetes.io/name": ""}},
    ),
)
