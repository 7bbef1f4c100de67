"""MutatingAdmissionPolicy and MutatingAdmissionPolicyBinding, with the API server's defaults and checks.

The checks are those of the API server for a new object. The mode of a binding is the gateway's own.

Source: k8s.io/kubernetes pkg/apis/admissionregistration/validation/validation.go, v1/defaults.go; k8s.io/api
admissionregistration types.go; docs/policies.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, get_args

from gateway.base.text import one_of, shown
from gateway.config.kinds.metadata import read_metadata
from gateway.config.kinds.names import configuration_name, dns_1123_subdomain
from gateway.config.kinds.rollout import MODES
from gateway.config.kinds.validating_policy import (
    ALWAYS_TRUE,
    MODE,
    default_not_found,
    read_match_resources,
    read_param_ref,
    read_spec_head,
    spec_json,
)
from gateway.config.kinds.webhook_configuration import REINVOCATION_POLICIES
from gateway.config.yaml.fields import child
from gateway.pure.admission_policies.model import MutatingBinding, MutatingPolicy
from gateway.pure.admission_policies.mutations import Mutation, Mutations, PatchType
from gateway.pure.cel.structs import JSON_PATCH, OBJECT
from gateway.pure.cel.types import Type, list_of

if TYPE_CHECKING:
    from gateway.config.kinds.validating_policy import Expressions
    from gateway.config.yaml.fields import Fields
    from gateway.pure.core.webhook import Mode

PATCH_TYPES: tuple[PatchType, ...] = get_args(PatchType)
MUTATING_OPERATIONS: Final = ("CREATE", "UPDATE", "CONNECT")
_MEMBERS: Final = {"JSONPatch": "jsonPatch", "ApplyConfiguration": "applyConfiguration"}
_RESULTS: Final = {"JSONPatch": list_of(Type(JSON_PATCH)), "ApplyConfiguration": Type(OBJECT)}


def read_mutating_policy(fields: Fields) -> MutatingPolicy:
    """Return the policy behind *fields*; apiVersion and kind are read already."""
    name = read_metadata(fields, configuration_name).name
    spec = fields.required_group("spec")
    fields.finish()
    begin = read_spec_head(spec, _check_operations)
    mutations = tuple(_mutation(each, begin.expressions) for each in spec.mappings("mutations"))
    if not mutations:
        spec.problem("mutations", "is required with at least one entry")
    reinvocation_policy = spec.choice("reinvocationPolicy", REINVOCATION_POLICIES)
    spec.finish()
    rules = Mutations(begin.failure_policy, begin.expressions.variables, mutations, reinvocation_policy)
    return MutatingPolicy(name, begin.match, begin.param_kind, begin.conditions, spec_json(spec), rules)


def read_mutating_binding(fields: Fields) -> MutatingBinding:
    """Return the binding behind *fields*; apiVersion and kind are read already."""
    default = default_not_found(fields)
    metadata = read_metadata(fields, configuration_name)
    mode = _mode(fields, metadata.annotations.get(MODE))
    spec = fields.required_group("spec")
    fields.finish()
    match = spec.mapping("matchResources")
    binding = MutatingBinding(
        metadata.name,
        spec.required_string("policyName", dns_1123_subdomain),
        None if match is None else read_match_resources(match),
        read_param_ref(spec, default),
        spec_json(spec),
        mode,
    )
    if match is not None:
        _check_operations(match)
    spec.finish()
    return binding


def _mode(fields: Fields, text: str | None) -> Mode:
    mode = "Enforce" if text is None else next((one for one in MODES if one == text), None)
    if mode is None:
        path = child(child(fields.at("metadata"), "annotations"), MODE)
        fields.problems.add(path, f"found {shown(text)}, expected {one_of(MODES)}")
    return mode or "Enforce"


def _check_operations(match: Fields) -> None:
    """Check that the rules of *match*, which were read, have no DELETE: nothing can be changed there."""
    for rule in match.mappings("resourceRules"):
        for path, text in rule.indexed_strings("operations"):
            if text == "DELETE":
                rule.problems.add(path, f"found DELETE, expected {one_of((*MUTATING_OPERATIONS, '*'))}")


def _mutation(fields: Fields, expressions: Expressions) -> Mutation:
    patch_type = fields.choice("patchType", PATCH_TYPES)
    is_known = fields.content.get("patchType") in PATCH_TYPES
    expression = None
    for kind, name in _MEMBERS.items():
        member = fields.mapping(name)
        if kind == patch_type and is_known:
            if member is None:
                fields.problem(name, f"is required with patchType {patch_type}")
            else:
                expression = expressions.read(member, "expression", (_RESULTS[kind],), has_structs=True)
        elif member is not None and is_known:
            fields.problem(name, f"is not allowed with patchType {patch_type}")
        if member is not None:
            member.accept("expression")
            member.finish()
    fields.finish()
    # After a problem the result is dropped.
    return Mutation(patch_type, expression or ALWAYS_TRUE)
