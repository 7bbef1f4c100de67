"""Evaluates a pod against a level and version."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from admission_gateway_worker.policies.pod_security.registry import checks_of

if TYPE_CHECKING:
    from admission_gateway_worker.policies.pod_security.levels import LevelVersion
    from admission_gateway_worker.policies.pod_security.parameters import Settings
    from admission_gateway_worker.policies.pod_security.pod import Pod, Violation


class Result(NamedTuple):
    """The violations of a pod; it is allowed if there are none."""

    violations: list[Violation]
    exempt: list[str]
    """Ids of controls with fewer violations by an exemption."""

    @property
    def reason(self) -> str:
        """The reasons, for a summary of several pods."""
        return ", ".join(reason for reason, _ in self.violations)

    @property
    def detail(self) -> str:
        """The reasons with their details."""
        return ", ".join(f"{reason} ({detail})" for reason, detail in self.violations)


def evaluate(policy: LevelVersion, pod: Pod, settings: Settings, namespace: str) -> Result:
    """Return the violations of *policy* by *pod*, in upstream's order."""
    violations: list[Violation] = []
    exempt: list[str] = []
    controls = settings.controls
    for name, check in checks_of(policy):
        violation = check(pod)
        if violation is None:
            continue
        if name in controls:
            reduced = settings.reduced(name, pod, namespace)
            remaining = None if reduced is None else check(reduced)
            if remaining != violation:
                exempt.append(name)
            if remaining is None:
                continue
            violation = remaining
        violations.append(violation)
    return Result(violations, exempt)
