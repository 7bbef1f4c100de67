"""Levels and versions, and the labels of a namespace that choose them.

Source: k8s.io/pod-security-admission api/helpers.go, api/constants.go.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from admission_gateway_worker.policies.builtin import FieldError, invalid_value

if TYPE_CHECKING:
    from collections.abc import Mapping

PRIVILEGED: Final = "privileged"
BASELINE: Final = "baseline"
RESTRICTED: Final = "restricted"
LEVELS: Final = (PRIVILEGED, BASELINE, RESTRICTED)
"""From the least to the most restrictive."""

LATEST: Final = "latest"
PREFIX: Final = "pod-security.kubernetes.io/"
MODES: Final = ("enforce", "audit", "warn")

_VERSION: Final = re.compile(r"v1\.(0|[1-9][0-9]*)")
_MAX_INT: Final = (1 << 63) - 1


class LevelVersion(NamedTuple):
    """A level at a version."""

    level: str
    minor: int | None
    """None for ``latest``."""

    def __str__(self) -> str:
        return f"{self.level}:{self.version}"

    @property
    def version(self) -> str:
        """``latest`` or ``v1.N``."""
        return LATEST if self.minor is None else f"v1.{self.minor}"


class Policy(NamedTuple):
    """What holds in a namespace."""

    enforce: LevelVersion
    audit: LevelVersion
    warn: LevelVersion

    @property
    def is_privileged(self) -> bool:
        """Whether nothing is checked."""
        return all(each.level == PRIVILEGED for each in self)

    def is_equivalent(self, other: Policy) -> bool:
        """Whether both check the same."""
        return all(
            one == another or one.level == another.level == PRIVILEGED
            for one, another in zip(self, other, strict=True)
        )


class _Found:
    """The values of labels, with the problems so far."""

    def __init__(self, labels: Mapping[str, str]) -> None:
        self.labels = labels
        self.errors: list[FieldError] = []

    def of(self, mode: str, default: LevelVersion, invalid_level: str) -> LevelVersion:
        level, minor = default
        if (text := self.labels.get(PREFIX + mode)) is not None:
            level = text
            if text not in LEVELS:
                level = invalid_level
                self._note(mode, text, f"must be one of {', '.join(LEVELS)}")
        if (text := self.labels.get(f"{PREFIX}{mode}-version")) is not None:
            try:
                minor = parse_version(text)
            except ValueError as error:
                minor = None
                self._note(f"{mode}-version", text, str(error))
        return LevelVersion(level, minor)

    def _note(self, label: str, value: str, problem: str) -> None:
        self.errors.append(invalid_value(f"metadata.labels[{PREFIX}{label}]", value, problem))


def parse_version(text: str) -> int | None:
    """Return the minor of a version; None for ``latest``.

    Raises:
        ValueError: *text* is neither.
    """
    if text == LATEST:
        return None
    match = _VERSION.fullmatch(text)
    if match is None or (minor := int(match[1])) > _MAX_INT:
        raise ValueError('must be "latest" or "v1.x"')
    return minor


def policy_of(namespace: Mapping[str, Any], defaults: Policy) -> tuple[Policy, tuple[FieldError, ...]]:
    """Return the policy that the labels of *namespace* choose, and the problems of labels.

    An invalid level means ``restricted`` for enforce, else ``privileged``; an invalid version ``latest``.
    Without a level for warn, a stricter level for enforce holds for it too.
    """
    labels = (namespace.get("metadata") or {}).get("labels")
    if not labels:
        return defaults, ()
    found = _Found(labels)
    enforce = found.of("enforce", defaults.enforce, RESTRICTED)
    audit = found.of("audit", defaults.audit, PRIVILEGED)
    warn = found.of("warn", defaults.warn, PRIVILEGED)
    if (
        PREFIX + "warn" not in labels
        and labels.get(PREFIX + "enforce") in LEVELS
        and is_stricter(enforce, warn)
    ):
        minor = warn.minor if PREFIX + "warn-version" in labels else enforce.minor
        warn = LevelVersion(enforce.level, minor)
    return Policy(enforce, audit, warn), tuple(found.errors)


def is_stricter(one: LevelVersion, other: LevelVersion) -> bool:
    """Whether the level of *one* is more restrictive, whatever the versions."""
    return LEVELS.index(one.level) > LEVELS.index(other.level)
