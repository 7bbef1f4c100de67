"""A ConstraintTemplate of Gatekeeper: its fields, and its expressions compiled once for all constraints.

Source: github.com/open-policy-agent/frameworks constraint/pkg/apis/templates, pkg/client/{client,crds};
github.com/open-policy-agent/gatekeeper pkg/drivers/k8scel/schema/schema.go.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import orjson

from gateway.base.text import did_you_mean, one_of, shown
from gateway.config.kinds.matching import FAILURE_POLICIES, report_twice
from gateway.config.kinds.metadata import read_metadata
from gateway.config.kinds.names import dns_1123_subdomain
from gateway.config.kinds.policy_spec import ALWAYS_TRUE, MAX_EXPRESSIONS, Expressions
from gateway.config.loaders.part import MadeEntries, Part
from gateway.config.yaml.fields import MAX_PROBLEMS, Fields
from gateway.pure.admission_policies.validating import Rules, Validation
from gateway.pure.cel.compile import Condition
from gateway.pure.cel.dialects import GATEKEEPER
from gateway.pure.cel.types import BOOL, STRING
from gateway.pure.core.review import OPERATIONS
from gateway.pure.gatekeeper import registration
from gateway.pure.gatekeeper.matching import ANY
from gateway.pure.gatekeeper.schema import Schema, SchemaError
from gateway.pure.gatekeeper.variables import VARIABLES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gateway.config.yaml.documents import Document

KIND: Final = "ConstraintTemplate"
VERSIONS: Final = ("v1", "v1beta1", "v1alpha1")
ENGINE: Final = "K8sNativeValidation"
_TARGET: Final = "admission.k8s.gatekeeper.sh"
_RESERVED: Final = "gatekeeper_internal_"
_REGO: Final = "Rego"
_NO_CODE: Final = f"has no code of the engines {ENGINE} and {_REGO}"


@dataclass(frozen=True, slots=True, eq=False)
class Template(Part):
    """One template."""

    document: Document
    kind: str
    id: str
    constraint_kind: str
    """The kind of its constraints. Empty after a problem with it."""
    schema: Schema | None
    """That of ``spec.parameters``. None if the constraints have no parameters."""
    operations: tuple[str, ...]
    conditions: tuple[Condition, ...]
    rules: Rules
    source: bytes
    """JSON of the fields that make the decision, with sorted keys."""
    code_path: str
    is_rego: bool
    """Whether it has Rego only, which a worker evaluates."""
    made: MadeEntries = field(default_factory=MadeEntries)

    @property
    def provides(self) -> str:
        """See ``Part``."""
        return self.constraint_kind


def read_template(document: Document, fields: Fields, version: str) -> Template:
    """Return the template behind *fields*; apiVersion, of *version*, and kind are read already."""
    metadata = read_metadata(fields, dns_1123_subdomain)
    fields.accept("status")
    spec = fields.required_group("spec")
    fields.finish()
    crd = spec.required_group("crd").required_group("spec")
    names = crd.required_group("names")
    kind = names.required_string("kind")
    if kind and metadata.name and metadata.name != kind.lower():
        fields.problems.add(
            fields.group("metadata").at("name"),
            f"found {shown(metadata.name)}, expected {shown(kind.lower())}, the kind in lower case",
        )
    schema = _schema(crd, is_legacy=version != "v1")
    targets = spec.mappings("targets")
    if len(targets) != 1:
        spec.problem("targets", f"found {len(targets)} targets, expected one")
    target = targets[0] if targets else Fields({}, spec.at("targets"), fields.problems)
    operations = _operations(target)
    source = _source(target)
    is_rego = source is None and _has_rego(target)
    if source is None and not is_rego and targets:
        target.problem("code", f"the template {shown(metadata.name)} {_NO_CODE}")
    conditions, rules = _rules(source or Fields({}, target.at("code"), target.problems))
    content = {"operations": target.content.get("operations"), "code": target.content.get("code")}
    return Template(
        document,
        KIND,
        metadata.name,
        kind,
        schema,
        operations,
        conditions,
        rules,
        _json(content),
        target.at("code"),
        is_rego,
    )


def _json(content: object) -> bytes:
    try:
        return orjson.dumps(content, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        return repr(content).encode()


def _schema(crd: Fields, *, is_legacy: bool) -> Schema | None:
    """Return the schema in *crd*; *is_legacy* is the default of ``legacySchema``. None if there is none."""
    validation = crd.mapping("validation")
    if validation is not None and validation.has("legacySchema"):
        is_legacy = validation.boolean("legacySchema")
    content = None if validation is None else validation.mapping("openAPIV3Schema")
    if content is None:
        # Gatekeeper takes everything where no schema is required.
        return Schema({}, is_legacy=True) if is_legacy else None
    try:
        return Schema(content.content, is_legacy=is_legacy)
    except SchemaError as error:
        crd.problems.add(f"{content.path}{error.path}", str(error))
        return None


def _operations(target: Fields) -> tuple[str, ...]:
    name = target.string("target", _TARGET)
    if name != _TARGET:
        target.problem("target", f"found {shown(name)}, expected {_TARGET}")
    found = []
    for path, text in target.indexed_strings("operations"):
        if text not in (*OPERATIONS, ANY):
            target.problems.add(path, f"found {shown(text)}, expected {one_of((*OPERATIONS, ANY))}")
        found.append(text)
    if ANY in found and len(found) > 1:
        target.problem("operations", f"found {ANY} beside others, expected it alone")
    return tuple(dict.fromkeys(found)) or registration.OPERATIONS


def _source(target: Fields) -> Fields | None:
    """Return the source in CEL; None without one."""
    for code in target.mappings("code"):
        if code.required_string("engine") == ENGINE:
            return code.required_group("source")
    return None


def _has_rego(target: Fields) -> bool:
    is_given = bool(target.optional_string("rego"))
    target.strings("libs")
    return is_given or any(code.string("engine", "") == _REGO for code in target.mappings("code"))


def _rules(source: Fields) -> tuple[tuple[Condition, ...], Rules]:
    # In variables, and only there, `params` is the constraint.
    with_params = Expressions(has_params=True, dialect=GATEKEEPER)
    for name, expression in VARIABLES.items():
        with_params.declare(name, expression)
    for one, name in _named(source, "variables"):
        if name in VARIABLES:
            one.problem("name", f"found {name}, which is reserved for the variable that every template has")
        text = one.required_string("expression")
        with_params.declare(name, with_params.compiled(one, "expression", text))
    code = Expressions(has_params=False, dialect=GATEKEEPER, known=with_params)
    conditions = []
    found = _named(source, "matchCondition")
    report_twice(found, "name")
    for one, name in found:
        text = one.required_string("expression")
        compiled = code.compiled(one, "expression", text, (BOOL,))
        if compiled is not None:
            conditions.append(Condition(name, compiled))
    validations = []
    for one in _bounded(source, "validations"):
        text, message = one.required_string("expression"), one.optional_string("messageExpression")
        compiled = code.compiled(one, "expression", text, (BOOL,))
        of_message = code.compiled(one, "messageExpression", message, (STRING,))
        plain = one.optional_string("message")
        validations.append(Validation(compiled or ALWAYS_TRUE, plain, of_message, ""))
        warn_of_unknown(one, ("expression", "message", "messageExpression"))
    policy = source.choice("failurePolicy", FAILURE_POLICIES, "Fail")
    source.boolean("generateVAP")
    known = ("validations", "failurePolicy", "matchCondition", "variables", "generateVAP")
    warn_of_unknown(source, known)
    rules = Rules(policy, code.variables, tuple(validations), ())
    rules.build()
    return tuple(conditions), rules


def _named(source: Fields, field: str) -> list[tuple[Fields, str]]:
    """Return the entries of *field*, each with its name."""
    found = []
    for one in _bounded(source, field):
        name = one.required_string("name")
        if name.startswith(_RESERVED):
            one.problem("name", f"found {shown(name)}, expected a name that does not begin with {_RESERVED}")
        warn_of_unknown(one, ("name", "expression"))
        found.append((one, name))
    return found


def _bounded(source: Fields, field: str) -> Iterator[Fields]:
    found = source.mappings(field)
    if len(found) > MAX_EXPRESSIONS:
        source.problem(field, f"found {len(found)} entries, expected at most {MAX_EXPRESSIONS}")
    yield from found[:MAX_EXPRESSIONS]


def warn_of_unknown(source: Fields, known: tuple[str, ...], effect: str = "Gatekeeper ignores") -> None:
    """Warn of each field of *source* that is not *known*; *effect* says what becomes of it."""
    for name in source.content:
        if len(source.problems.questionable) >= MAX_PROBLEMS:
            return
        if name not in known:
            hint = did_you_mean(str(name), known)
            source.problems.warn(source.at(str(name)), f"unknown field, which {effect}{hint}")
