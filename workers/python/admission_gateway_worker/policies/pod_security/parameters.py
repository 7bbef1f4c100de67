"""The parameters of the policy: those of upstream's PodSecurityConfiguration, and exemptions of one control.

Source: k8s.io/pod-security-admission admission/api/v1 types.go and defaults.go, admission/api/validation.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import translate
from typing import TYPE_CHECKING, Any, Final

from admission_gateway_worker.policies.pod_security.levels import (
    LATEST,
    LEVELS,
    MODES,
    PRIVILEGED,
    LevelVersion,
    Policy,
    parse_version,
)
from admission_gateway_worker.policies.pod_security.registry import CONTROLS

if TYPE_CHECKING:
    from admission_gateway_worker.policies.pod_security.pod import Container, Pod

_MAX_IMAGE: Final = 1024
"""Characters of the name of an image that is exempt: each pattern is tried on it. Runtimes accept fewer."""
_LABEL: Final = "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"


def _texts(description: str, **others: Any) -> dict[str, Any]:  # noqa: ANN401
    return {
        "type": "array",
        "items": {"type": "string", "minLength": 1, **others},
        "uniqueItems": True,
        "description": description,
    }


def _defaults() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for mode, effect in zip(MODES, ("denies Pods", "adds audit annotations", "warns users"), strict=True):
        found[mode] = {
            "enum": list(LEVELS),
            "default": PRIVILEGED,
            "description": f"Level of the mode that {effect}.",
        }
        found[f"{mode}-version"] = {
            "type": "string",
            "pattern": r"^(latest|v1\.(0|[1-9][0-9]{0,17}))$",
            "default": LATEST,
            "description": f"Version of the level of `{mode}`: `latest`, or `v1.N`.",
        }
    return found


_EXEMPT_CONTROL: Final = {
    "type": "object",
    "properties": {
        "control": {
            "enum": [control.id for control in CONTROLS],
            "description": "The control, by upstream's id. `capabilities_baseline` and "
            "`capabilities_restricted` are two controls.",
        },
        "images": {
            **_texts(
                "Images, with `*` and `?`, as they stand in the container. Without them, all. A longer "
                f"name than {_MAX_IMAGE} characters matches none."
            ),
            "minItems": 1,
        },
        "containers": {**_texts("Names of containers. Without them, all."), "minItems": 1},
        "namespaces": {**_texts("Names of namespaces. Without them, all."), "minItems": 1},
    },
    "required": ["control"],
    "additionalProperties": False,
}

SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "defaults": {
            "type": "object",
            "properties": _defaults(),
            "additionalProperties": False,
            "description": "What holds in namespaces without labels for it.",
        },
        "exemptions": {
            "type": "object",
            "properties": {
                "usernames": _texts("Users whose Pods and workloads are not checked."),
                "namespaces": _texts("Namespaces that are not checked.", pattern=f"^{_LABEL}$"),
                "runtimeClasses": _texts(
                    "Values of `runtimeClassName` of Pods that are not checked.",
                    pattern=rf"^{_LABEL}(\.{_LABEL})*$",
                    maxLength=253,
                ),
                "controls": {
                    "type": "array",
                    "items": _EXEMPT_CONTROL,
                    "description": "Exemptions of one control. A container is exempt if its image and its "
                    "name match; fields of the Pod itself, such as volumes, are if all its containers are.",
                },
            },
            "additionalProperties": False,
            "description": "What is not checked.",
        },
    },
    "additionalProperties": False,
}


@dataclass(frozen=True)
class Exemption:
    """Containers that one control does not check."""

    images: re.Pattern[str] | None
    """None for all images."""
    containers: frozenset[str]
    """Empty for all names."""
    namespaces: frozenset[str]
    """Empty for all namespaces."""

    def covers(self, container: Container) -> bool:
        """Whether *container* is exempt, in a namespace of ``namespaces``."""
        name, _, fields = container
        if self.containers and name not in self.containers:
            return False
        if self.images is None:
            return True
        image = fields.get("image") or ""
        return len(image) <= _MAX_IMAGE and self.images.match(image) is not None

    @property
    def is_whole(self) -> bool:
        """Whether it covers any container."""
        return self.images is None and not self.containers


@dataclass(frozen=True)
class Settings:
    """The parameters, as the policy uses them."""

    defaults: Policy
    usernames: frozenset[str]
    namespaces: frozenset[str]
    runtime_classes: frozenset[str]
    controls: dict[str, tuple[Exemption, ...]]
    """By id of the control."""

    def reduced(self, control: str, pod: Pod, namespace: str) -> Pod | None:
        """Return what *control* checks of *pod*: all or some of its containers; None if it is exempt."""
        found = [
            each
            for each in self.controls.get(control, ())
            if not each.namespaces or namespace in each.namespaces
        ]
        reduced = pod.without(lambda container: any(each.covers(container) for each in found))
        if reduced.containers:
            return reduced
        return None if pod.containers or any(each.is_whole for each in found) else pod


def prepare(parameters: dict[str, Any]) -> Settings:
    """Return the settings that *parameters*, which match ``SCHEMA``, describe.

    Raises:
        ValueError: a version is malformed.
    """
    defaults = parameters.get("defaults") or {}
    exemptions = parameters.get("exemptions") or {}
    controls: dict[str, tuple[Exemption, ...]] = {}
    for entry in exemptions.get("controls") or ():
        images = entry.get("images") or ()
        exemption = Exemption(
            re.compile("|".join(map(translate, images))) if images else None,
            frozenset(entry.get("containers") or ()),
            frozenset(entry.get("namespaces") or ()),
        )
        controls[entry["control"]] = (*controls.get(entry["control"], ()), exemption)
    return Settings(
        Policy(
            *(
                LevelVersion(
                    defaults.get(mode, PRIVILEGED), parse_version(defaults.get(f"{mode}-version", LATEST))
                )
                for mode in MODES
            )
        ),
        frozenset(exemptions.get("usernames") or ()),
        frozenset(exemptions.get("namespaces") or ()),
        frozenset(exemptions.get("runtimeClasses") or ()),
        controls,
    )
