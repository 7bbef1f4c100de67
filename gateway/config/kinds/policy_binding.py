"""What the specs of the bindings of validating and mutating policies have in common.

Source: k8s.io/kubernetes pkg/apis/admissionregistration/validation/validation.go, v1/defaults.go; k8s.io/api
admissionregistration types.go.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, get_args

from gateway.config.kinds.declare import Choice, Declared, Group, Text, declare, optional, required
from gateway.config.kinds.metadata import LabelSelector
from gateway.config.kinds.names import SUBDOMAIN, SUBDOMAIN_LENGTH, dns_1123_subdomain
from gateway.config.kinds.policy_matching import PATH_SEGMENT, MatchEntry, path_segment
from gateway.config.kinds.validation import Rule
from gateway.config.yaml.documents import ADMISSION_GROUP
from gateway.config.yaml.fields import Fields
from gateway.pure.admission_policies.model import MatchResources, NotFoundAction, ParamRef

if TYPE_CHECKING:
    from gateway.pure.core.labels import Selector

_NOT_FOUND_ACTIONS: tuple[NotFoundAction, ...] = get_args(NotFoundAction)
_V1ALPHA1: Final = f"{ADMISSION_GROUP}/v1alpha1"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParamRefEntry(Declared):
    """``paramRef``."""

    RULES = (
        Rule(
            "(has(self.name) && self.name != '') != has(self.selector)",
            "expected one of name and selector",
            about=("name", "selector"),
            holds_with=(),
            holds_surely=lambda content: bool(content.get("name")) != (content.get("selector") is not None),
        ),
    )
    name: str = declare(
        Text(check=path_segment, minLength=1, maxLength=SUBDOMAIN_LENGTH, pattern=PATH_SEGMENT),
        "Name of the object",
        default="",
    )
    namespace: str = declare(
        Text(maxLength=SUBDOMAIN_LENGTH), "Its namespace. Absent: that of the request", default=""
    )
    selector: Selector | None = optional(LabelSelector(), "Labels of the objects. Empty: all")
    not_found: NotFoundAction = required(
        Choice(_NOT_FOUND_ACTIONS),
        "Whether the binding is skipped without parameters (Allow) or fails (Deny)",
        name="parameterNotFoundAction",
    )

    @property
    def param_ref(self) -> ParamRef:
        """The parameters themselves."""
        return ParamRef(self.name, self.namespace, self.selector, self.not_found)


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingSpec(Declared):
    """What the specs of both kinds of bindings have."""

    policy_name: str = required(
        Text(check=dns_1123_subdomain, minLength=1, maxLength=SUBDOMAIN_LENGTH, pattern=f"^{SUBDOMAIN}$"),
        "Name of the policy",
    )
    param_ref: ParamRefEntry | None = optional(
        Group(ParamRefEntry), "The parameters: exactly one of `name` and `selector`"
    )
    match_resources: MatchEntry | None = optional(Group(MatchEntry), "Requests, in addition to the policy's")

    @property
    def match(self) -> MatchResources | None:
        """None if all requests of the policy match."""
        return None if self.match_resources is None else self.match_resources.resources

    @property
    def parameters(self) -> ParamRef | None:
        """None if it has none."""
        ref = self.param_ref
        return None if ref is None else ref.param_ref


def binding_source(fields: Fields) -> Fields:
    """Return the spec of the binding behind *fields*, with the default that ``v1alpha1`` alone has."""
    spec = fields.required_group("spec")
    ref = spec.content.get("paramRef")
    if fields.content.get("apiVersion") != _V1ALPHA1 or not isinstance(ref, dict):
        return spec
    ref = {"parameterNotFoundAction": "Deny", **{key: one for key, one in ref.items() if one is not None}}
    return Fields({**spec.content, "paramRef": ref}, spec.path, spec.problems)
