"""The validating policies as CEL expressions, for engines that evaluate CEL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from loadtest.policies import LABELS

if TYPE_CHECKING:
    from collections.abc import Mapping

_EACH: Final = "object.spec.containers.all(c, {})"
EXPRESSIONS: Final[Mapping[str, str]] = {
    "deny-privileged": _EACH.format(
        "!has(c.securityContext) || !has(c.securityContext.privileged) || !c.securityContext.privileged"
    ),
    "deny-latest": _EACH.format("!c.image.endsWith(':latest')"),
    "require-limits": _EACH.format(
        "has(c.resources) && has(c.resources.limits)"
        " && 'cpu' in c.resources.limits && 'memory' in c.resources.limits"
    ),
} | {
    f"require-{label}": f"has(object.metadata.labels) && '{label}' in object.metadata.labels"
    for label in LABELS
}
"""By name of the policy."""
