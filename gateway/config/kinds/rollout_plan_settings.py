"""``rolloutPlans`` of a GatewayConfiguration: where the states of rollout plans are kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gateway.base.text import shown
from gateway.config.kinds.declare import Declared, File, Text, declare, optional
from gateway.config.kinds.policy_settings import check_installation
from gateway.config.kinds.validation import exactly_one

if TYPE_CHECKING:
    from pathlib import Path

    from gateway.config.yaml.fields import Fields

DEFAULT_INSTALLATION: Final = "admission-gateway/admission-gateway"
"""That of commands that are not told one."""


def _read_folder(source: Fields, name: str) -> Path | None:
    text = source.string(name, None, lambda text: "contains a NUL character" if "\0" in text else None)
    if text is None or "\0" in text:
        return None
    path = source.folder / text
    if not (path.is_dir() or (path.parent.is_dir() and not path.exists())):
        source.problem(
            name, f"found {shown(str(path))}, expected a folder, or a new one in a folder that exists"
        )
    return path


@dataclass(frozen=True, slots=True)
class RolloutPlanSettings(Declared):
    """The store that all processes of a gateway share."""

    RULES = (exactly_one("installation", "folder"),)
    installation: str | None = optional(
        Text("NAMESPACE/NAME", check=check_installation),
        "In the cluster: namespace of the gateway, and a prefix of the names of objects. Needs `kubernetes`",
    )
    folder: Path | None = declare(
        File(_read_folder),
        "Without a cluster: a folder that the processes of one host share. It is made, for its owner alone, "
        "in a folder that exists",
        default=None,
    )
