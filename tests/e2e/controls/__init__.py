"""A library of controls as ValidatingAdmissionPolicies, each with objects that it allows and denies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.e2e.controls import containers, pods, resources, workloads

if TYPE_CHECKING:
    from tests.e2e.controls.control import Control

CONTROLS: Final[tuple[Control, ...]] = (
    *containers.CONTROLS,
    *pods.CONTROLS,
    *workloads.CONTROLS,
    *resources.CONTROLS,
)
