"""The annotation of a policy that is evaluated also on the Pods of workloads."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gateway.config.kinds.metadata import annotated
from gateway.config.kinds.policy_settings import TEMPLATE_MODES, TEMPLATES
from gateway.config.yaml.fields import child
from gateway.pure.admission_policies.templates import why_without_effect

if TYPE_CHECKING:
    from gateway.config.kinds.metadata import Metadata
    from gateway.config.yaml.fields import Fields
    from gateway.pure.admission_policies.model import P


def with_templates(policy: P, fields: Fields, metadata: Metadata) -> P:
    """Return *policy*, which is behind *fields* with *metadata*, with the mode of the annotation, if any.

    An annotation without effect is a warning.
    """
    mode = annotated(fields, metadata, TEMPLATES, TEMPLATE_MODES)
    if mode is None:
        return policy
    if reason := why_without_effect(policy):
        path = child(child(fields.at("metadata"), "annotations"), TEMPLATES)
        fields.problems.warn(path, f"has no effect: {reason}")
    return replace(policy, templates=mode)
