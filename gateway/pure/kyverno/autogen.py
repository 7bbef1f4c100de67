"""Kyverno's autogen: policies about Pods, rewritten for the workloads that make Pods.

What comes in and out is the ``spec`` of a policy as parsed YAML, which its reader has checked. Variants are
Kyverno's, with its mistakes: ``validating_warnings`` and ``mutating_warnings`` name those that can be seen.

In custom workloads Kyverno looks for Pod templates, see ``extraction``: for them a policy is not rewritten.

Source: kyverno/kyverno v1.19.1 pkg/cel/autogen/{data,extraction,match,replacement,support}.go,
pkg/cel/policies/vpol/autogen/autogen.go, pkg/cel/policies/mpol/autogen/autogen.go.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from gateway.pure.openapi.built_in_resources import RESOURCES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    Json = dict[str, Any]

VariantName = Literal["cronjobs", "defaults", "extract"]


class Target(NamedTuple):
    """A resource that a variant is for."""

    group: str
    version: str
    resource: str


class Variant(NamedTuple):
    """A policy as it is for some kinds of workloads."""

    name: VariantName
    spec: Json


EXTRACT: Final = "extract"
"""The variant that is about each Pod template in an object, wherever that is."""
CONTROLLERS: Final[Mapping[str, tuple[VariantName, Target]]] = {
    "cronjobs": ("cronjobs", Target("batch", "v1", "cronjobs")),
    "daemonsets": ("defaults", Target("apps", "v1", "daemonsets")),
    "deployments": ("defaults", Target("apps", "v1", "deployments")),
    "jobs": ("defaults", Target("batch", "v1", "jobs")),
    "replicasets": ("defaults", Target("apps", "v1", "replicasets")),
    "statefulsets": ("defaults", Target("apps", "v1", "statefulsets")),
}
"""The variants of the names that Kyverno has in its code. Policies that name none are for all of these."""
_TEMPLATE: Final[Mapping[VariantName, str]] = {
    "cronjobs": "spec.jobTemplate.spec.template",
    "defaults": "spec.template",
}
"""Where the Pod of a workload is."""
_RESOURCE: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?")
_OF_CORE: Final = RESOURCES[""].keys()
_WITH_TEMPLATE: Final = "replicationcontrollers"
"""The only one of the core group whose spec has a Pod template."""

_POD_PATH: Final = re.compile(r"(object|oldObject)\.(spec|metadata)(?!\.namespace(?![A-Za-z0-9_]))")
"""What is rewritten in validating policies, anywhere in a text."""
_POD_FIELD: Final = re.compile(
    r"\b(object|oldObject|Object)\.(spec|metadata\.labels|metadata\.annotations)", re.ASCII
)
"""What is rewritten in mutating policies."""
_ROOT: Final = re.compile(r"Object[ \t\r\n]*\{")
_GO_SPACE: Final = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)
"""What Go's ``strings.TrimSpace`` removes; Python's ``strip`` removes more."""


def validating_variants(spec: Json) -> list[Variant]:
    """Return the variants of a ValidatingPolicy.

    Kyverno replaces paths in the JSON of the spec. Here they are replaced in each text, which is the same: a
    path consists of letters and dots, which JSON never escapes, and contains none of the quotes between the
    texts. Where the character after a path counts, a backslash counts as the character that it escapes.
    """
    return [
        Variant(
            name,
            {**spec, "matchConstraints": match}
            if name == EXTRACT
            else _rewritten({**spec, "matchConstraints": match}, _in_template(name)),
        )
        for name, match in _matches(spec)
    ]


def mutating_variants(spec: Json) -> list[Variant]:
    """Return the variants of a MutatingPolicy.

    Only matchConditions and ApplyConfigurations are rewritten. There is none for custom workloads, which
    Kyverno does not change.
    """
    return [
        Variant(
            name,
            {
                **spec,
                "matchConstraints": match,
                **_changed(spec, "matchConditions", partial(_with_expression, name)),
                **_changed(spec, "mutations", partial(_with_configuration, name)),
            },
        )
        for name, match in _matches(spec)
        if name != EXTRACT
    ]


def _matches(spec: Json) -> Iterator[tuple[VariantName, Json]]:
    """Yield names and matchConstraints of the variants, by name."""
    if not _is_eligible(spec):
        return
    match = spec["matchConstraints"]
    operations = match["resourceRules"][0].get("operations")
    if not operations:
        # Kyverno's variants of a validating policy match nothing then, and those of a mutating policy panic.
        return
    named = _controllers(spec)
    found: dict[VariantName, set[Target]] = {}
    for each in CONTROLLERS if named is None else named:
        if (resolved := _resolved(each)) is not None:
            found.setdefault(resolved[0], set()).add(resolved[1])
    for name, targets in sorted(found.items()):
        made: Json = {
            "resourceRules": [
                {
                    "apiGroups": [group],
                    "apiVersions": [version],
                    "resources": _listed({each.resource for each in targets if each[:2] == (group, version)}),
                    "operations": operations,
                }
                for group, version in sorted({each[:2] for each in targets})
            ]
        }
        if match.get("namespaceSelector") is not None:
            made["namespaceSelector"] = match["namespaceSelector"]
        yield name, made


def _listed(resources: set[str]) -> list[str]:
    """Return *resources* for a rule, in which the API server wants none beside a star that covers it."""
    return sorted(each for each in resources if each == "*" or "*" not in resources or "/" in each)


def _resolved(controller: str) -> tuple[VariantName, Target] | None:
    """Return the variant and the target that the name of a controller stands for; None if it has none."""
    if known := CONTROLLERS.get(controller):
        return known
    resource, version, group = (*controller.split(".", 2), "", "")[:3]
    if resource and version and group:
        return EXTRACT, Target(group, version, resource)
    if not _RESOURCE.fullmatch(controller):
        return None
    # Kyverno looks the name up in the cluster, where the core group comes first. Here another matches in any
    # group: usually only one has it.
    return EXTRACT, Target("", "v1", controller) if controller in _OF_CORE else Target("*", "*", controller)


def _is_eligible(spec: Json) -> bool:
    """Whether the policy is about all Pods, and nothing but Pods."""
    match = spec.get("matchConstraints") or {}
    selector = match.get("objectSelector") or {}
    rules = match.get("resourceRules") or []
    if selector.get("matchLabels") or selector.get("matchExpressions") or match.get("excludeResourceRules"):
        return False
    if len(rules) != 1 or rules[0].get("resourceNames"):
        return False
    matched = [rules[0].get(each) for each in ("apiGroups", "apiVersions", "resources")]
    return matched == [[""], ["v1"], ["pods"]]


def _controllers(spec: Json) -> Sequence[str] | None:
    """Return the controllers that the policy names. None: it names none, and all are meant."""
    named: Sequence[str] | None = ((spec.get("autogen") or {}).get("podControllers") or {}).get("controllers")
    return named


def _in_template(name: VariantName) -> Callable[[str], str]:
    replaced = rf"\1.{_TEMPLATE[name]}.\2"
    return lambda text: _POD_PATH.sub(replaced, text)


def _rewritten(value: Any, in_template: Callable[[str], str]) -> Any:  # noqa: ANN401 - any JSON
    if isinstance(value, str):
        return in_template(value)
    if isinstance(value, list):
        return [_rewritten(each, in_template) for each in value]
    if isinstance(value, dict):
        # Go reads the new JSON into the old value: labels whose names are replaced keep their old names too.
        return {**value, **{in_template(key): _rewritten(each, in_template) for key, each in value.items()}}
    return value


def _changed(spec: Json, field: str, change: Callable[[Json], Json]) -> Json:
    """Return the list *field* of *spec* after *change* of each item, or nothing if it has none."""
    items = spec.get(field)
    return {field: [change(each) for each in items]} if items else {}


def _with_expression(name: VariantName, item: Json) -> Json:
    expression = item.get("expression")
    return {**item, "expression": _for_template(expression, name)} if expression else item


def _with_configuration(name: VariantName, mutation: Json) -> Json:
    configuration = mutation.get("applyConfiguration")
    return (
        {**mutation, "applyConfiguration": _with_expression(name, configuration)}
        if configuration
        else mutation
    )


def _for_template(expression: str, name: VariantName) -> str:
    """Return an expression of a mutating policy for the Pod template of a workload.

    Braces are counted in texts and comments too.
    """
    template = _TEMPLATE[name]
    expression = _POD_FIELD.sub(rf"\1.{template}.\2", expression)
    text = expression.strip(_GO_SPACE)
    root = _ROOT.match(text)
    if root is None:
        return expression
    end = _closing_brace(text, root.end())
    if end <= root.end():
        return expression
    steps = template.split(".")
    types = (".".join(("Object", *steps[: count + 1])) for count in range(len(steps)))
    opening = "".join(f"{step}: {type_}{{" for step, type_ in zip(steps, types, strict=True))
    return f"Object{{{opening}{text[root.end() : end]}{'}' * (len(steps) + 1)}{text[end + 1 :]}"


def _closing_brace(text: str, start: int) -> int:
    """Return where the brace that is open at *start* is closed; -1 if nowhere."""
    depth = 1
    for at in range(start, len(text)):
        if text[at] == "{":
            depth += 1
        elif text[at] == "}":
            depth -= 1
            if depth == 0:
                return at
    return -1


_STRANGE_FIELD: Final = re.compile(
    r"\b(object|oldObject)\s*+(?:\.\s*+(?:\?\s*+)?|\[\s*+(?:\?\s*+)?[\"'])"
    r"(spec\b|metadata\W{1,6}(?:labels|annotations)\b)(?:[\"']\s*+\])?",
    re.ASCII,
)
"""A field of the Pod in any notation: ``object.?spec``, ``object["spec"]``, ``object.metadata.?labels``.

Spaces are possessive: an author may write thousands, which were to be divided in all ways.
"""
_NAMED: Final = re.compile(
    r"(?:object|oldObject)\.metadata\.(?!labels\b|annotations\b|namespace\b)\w+", re.ASCII
)
"""A field of the metadata that templates do not have."""
_IS_POD: Final = re.compile(
    r"\b(?:object\.kind|oldObject\.kind|request\.(?:kind|requestKind)\.kind)\s*[!=]=\s*[\"']Pod[\"']"
    r"|\brequest\.(?:resource|requestResource)\.resource\s*[!=]=\s*[\"']pods[\"']",
    re.ASCII,
)
_POINTER: Final = re.compile(r"(?<=[\"'])/(?:spec|metadata/(?:labels|annotations))(?:/[^\"'/]*)?")
_METADATA_TYPE: Final = re.compile(r"\bObject\.metadata\s*\{", re.ASCII)


def validating_warnings(spec: Json) -> list[str]:
    """Return what in a ValidatingPolicy hurts its variants, each with the field."""
    return [
        *_strange_controllers(spec, is_mutating=False),
        *(
            f"{field}: {what}"
            for field, text in _expressions(
                spec, ("matchConditions", "variables", "validations", "auditAnnotations")
            )
            for what in (
                *_unchanged(_POD_PATH.sub("", text)),
                *_kinds(text),
                *(
                    f"in the variants {each} is of the Pod template, which lacks it"
                    for each in _found(_NAMED, text)
                ),
            )
        ),
    ]


def mutating_warnings(spec: Json) -> list[str]:
    """Return what in a MutatingPolicy hurts its variants, each with the field."""
    return [
        *_strange_controllers(spec, is_mutating=True),
        *(
            f"{field}: {what}"
            for field, text in _expressions(spec, ("variables",))
            for what in _unchanged(text)
        ),
        *(
            f"{field}: {what}"
            for field, text in _expressions(spec, ("matchConditions",))
            for what in (*_unchanged(_POD_FIELD.sub("", text)), *_kinds(text))
        ),
        *(f"{field}: {what}" for field, what in _of_mutations(spec)),
    ]


def _of_mutations(spec: Json) -> Iterator[tuple[str, str]]:
    for field, text in _expressions(spec, ("mutations",)):
        if field.endswith("jsonPatch.expression"):
            for each in (*_unchanged(text), *_kinds(text)):
                yield field, each
            for pointer in _found(_POINTER, text):
                if not pointer.startswith(("/spec/template", "/spec/jobTemplate")):
                    yield (
                        field,
                        f"{pointer} is not rewritten: it patches the workload itself, not its Pod template",
                    )
            continue
        for each in (*_unchanged(_POD_FIELD.sub("", text)), *_kinds(text)):
            yield field, each
        if _ROOT.match(text.strip(_GO_SPACE)) is None:
            if "Object" in text and _POD_FIELD.search(text):
                yield (
                    field,
                    "the variants fail: only what begins with Object{ is wrapped",
                )
        elif _METADATA_TYPE.search(text):
            yield field, "the variants fail: Kyverno does not rename the type Object.metadata"


def _expressions(spec: Json, fields: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the place and the text of each expression in the lists *fields* of *spec*, if it has variants."""
    if not any(name != EXTRACT for name, _ in _matches(spec)):
        return
    for field in fields:
        for index, item in enumerate(spec.get(field) or []):
            for name in ("expression", "messageExpression", "valueExpression"):
                if item.get(name):
                    yield f"{field}[{index}].{name}", item[name]
            for name in ("applyConfiguration", "jsonPatch"):
                if (item.get(name) or {}).get("expression"):
                    yield f"{field}[{index}].{name}.expression", item[name]["expression"]


def _strange_controllers(spec: Json, *, is_mutating: bool) -> Iterator[str]:
    """Yield what may be otherwise than the author expects about the controllers that the policy names."""
    for index, each in enumerate(_controllers(spec) or () if _is_eligible(spec) else ()):
        variant, target = _resolved(each) or (None, None)
        about = f"autogen.podControllers.controllers[{index}]: {each}"
        if target is None:
            known = ", ".join(CONTROLLERS)
            yield f"{about} has no variant: expected one of {known}, or RESOURCE.VERSION.GROUP"
        elif variant != EXTRACT:
            continue
        elif is_mutating:
            yield f"{about} has no variant: Kyverno does not change the Pod templates of such workloads"
        elif target.group == "" and each != _WITH_TEMPLATE:
            yield f"{about} is refused whatever the object: its spec has no Pod template"
        elif target.group == "*":
            found = "by Kyverno in the one that it finds; RESOURCE.VERSION.GROUP is exact"
            yield f"{about} is matched in all groups, {found}"


def _unchanged(text: str) -> list[str]:
    """Return a warning for each field of the Pod in *text*, which is not rewritten."""
    return [
        f"{each} is not rewritten: in the variants it is of the workload, not of its Pod template"
        for each in _found(_STRANGE_FIELD, text)
    ]


def _kinds(text: str) -> list[str]:
    return [f"in the variants {each} is about the workload" for each in _found(_IS_POD, text)]


def _found(pattern: re.Pattern[str], text: str) -> list[str]:
    """Return what *pattern* matches in *text*, each once."""
    return list(dict.fromkeys(each.group() for each in pattern.finditer(text)))
