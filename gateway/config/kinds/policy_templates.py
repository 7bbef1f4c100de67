"""The annotations of an admission policy about help, and about its evaluation on the Pods of workloads."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gateway.config.kinds.help_text import help_of
from gateway.config.kinds.metadata import annotated
from gateway.config.kinds.policy_settings import TEMPLATE_MODES, TEMPLATES
from gateway.config.yaml.fields import child
from gateway.pure.admission_policies.templates import why_without_effect

if TYPE_CHECKING:
    from gateway.config.kinds.metadata import Metadata
    from gateway.config.yaml.fields import Fields
    from gateway.pure.admission_policies.model import P


def with_annotations(policy: P, fields: Fields, metadata: Metadata) -> P:
    """Return *policy*, which is behind *fields* with *metadata*, with its help and its mode for templates.

    An annotation about templates without effect is a warning.
    """
    policy = replace(policy, help=help_of(fields.content, fields.path, fields.problems))
    mode = annotated(fields, metadata, TEMPLATES, TEMPLATE_MODES)
    if mode is None:
        return policy
    if reason := why_without_effect(policy):
        path = child(child(fields.at("metadata"), "annotations"), TEMPLATES)
        fields.problems.warn(path, f"has no effect: {reason}")
    return replace(policy, templates=mode)
