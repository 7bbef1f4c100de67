"""Applies a registration, without the policies that API servers have in force."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

    from gateway.config.kinds.kubernetes_settings import KubernetesSettings
    from gateway.config.merge.model import Config
    from gateway.pure.admission_policies.placing import Named
    from gateway.tools.registration.plan import Plan, RegistrationOptions

FIELD_MANAGER: Final = "admission-gateway"


def apply_unmoved(
    config: Config,
    options: RegistrationOptions,
    made: Plan,
    target: KubernetesSettings,
    parsed: argparse.Namespace,
) -> tuple[Plan, str]:
    """Apply *made*, the plan for *config*, or one without the policies that API servers have in force.

    What is to be left out is announced by an annotation first, and then read again. The gateway that returns
    a policy does the same in the opposite order: it takes the seal away, and then reads the annotation. So
    whatever the order of their requests, one of both sees the other.
    """
    from gateway.engine.moved import among, without
    from gateway.server.kubernetes.placed_objects import UNREGISTERED, annotation_of, read_moved
    from gateway.tools.registration.plan import plan

    installation = config.gateway.policies.installation
    if installation is None:
        return made, _apply(made, target, parsed)

    def planned(rules: Config, left_out: Iterable[Named]) -> Plan:
        text = annotation_of(sorted(left_out), installation)
        return plan(rules, replace(options, annotations=(*options.annotations, (UNREGISTERED, text))))

    found, announced = asyncio.run(read_moved(target, installation))
    moved = among(config.webhooks, found)
    if moved.keys() - announced:
        _apply(planned(config, moved), target, parsed)
        still, _ = asyncio.run(read_moved(target, installation))
        moved = {key: digest for key, digest in still.items() if moved.get(key) == digest}
    if moved:
        rest = replace(
            config, mutating=without(config.mutating, moved), validating=without(config.validating, moved)
        )
        made = planned(rest, moved)
    return made, _apply(made, target, parsed)


def _apply(made: Plan, target: KubernetesSettings, parsed: argparse.Namespace) -> str:
    from gateway.server.kubernetes.apply import apply

    # An absent list removes entries too, and an empty list would count as a change each time.
    documents = [
        {key: value for key, value in document.items() if key != "webhooks" or value}
        for document in made.documents
    ]
    applying = apply(
        target,
        documents,
        field_manager=FIELD_MANAGER,
        force=parsed.force_conflicts,
        creates=not parsed.if_registered,
    )
    lines = asyncio.run(applying)
    return "".join(f"{line}\n" for line in lines)
