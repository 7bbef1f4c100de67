"""What a preview finds: findings with their places, for objects of the input and those that these lead to."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from gateway.pure.workloads.plug_ins import PLUG_INS

if TYPE_CHECKING:
    from gateway.engine.object_review import Json
    from gateway.pure.core.webhook import Mode, Phase
    from gateway.tools.preview.manifests import Manifest, Place

Level = Literal["error", "warning", "note"]
Kind = Literal[
    "denied", "failed", "undecided", "wouldBeDenied", "warned", "changed", "notStable", "conflict", "refused"
]
Result = Literal["allowed", "denied", "undecided"]

WEBHOOK_FAILURE: Final = "webhook-failure"
NOT_STABLE: Final = "mutation-not-stable"
CONFLICT: Final = "mutation-conflict"
UNREADABLE: Final = "unreadable-manifest"
VALIDATION: Final = "kubernetes-validation"
OWN_RULES: Final = {
    WEBHOOK_FAILURE: "A webhook gave no usable answer, or the request could not be decided.",
    NOT_STABLE: "The mutators change the object again when they see their own result.",
    CONFLICT: "Two mutators write one field to different values.",
    UNREADABLE: "A document is no object of Kubernetes, or cannot be read.",
    VALIDATION: "The API server itself refuses the object.",
    **{name: f"The plug-in {name} of the API server refuses the object." for name in PLUG_INS},
}
"""Rules that are no webhooks."""
MAX_CHANGE_LINES: Final = 400
"""Lines of the difference of one object that are kept."""


class ObjectName(NamedTuple):
    """What an object is called."""

    api_version: str
    kind: str
    namespace: str
    name: str
    """The beginning of one that is generated, with ``*``."""

    def __str__(self) -> str:
        """KIND NAMESPACE/NAME."""
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"

    @property
    def group(self) -> str:
        """The group of ``api_version``; empty for Kubernetes' core."""
        return self.api_version.rpartition("/")[0]

    @property
    def group_kind(self) -> str:
        """GROUP/KIND."""
        return f"{self.group}/{self.kind}"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that webhooks say about an object. Texts are as the webhooks wrote them, without secrets."""

    rule: str
    """CONFIGURATION/NAME of the webhook, or one of ``OWN_RULES``."""
    kind: Kind
    level: Level
    webhook: str
    """CONFIGURATION/NAME. Empty if it is about none."""
    phase: Phase
    mode: Mode
    message: str
    place: Place
    code: int = 0
    """HTTP status of a denial or failure."""
    reason: str = ""
    path: str = ""
    """The field that it is about, as the webhook writes it."""

    def fingerprint(self, group_kind: str, written: ObjectName) -> str:
        """Return what stays equal if lines move or the message has other words.

        *group_kind* is that of the object that it is about, and *written* is the object of the input, which
        has a name that does not depend on its content.
        """
        about = (group_kind, written.group_kind, written.namespace, written.name)
        text = "|".join((self.rule, *about, self.path, self.kind, str(self.code)))
        return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:16]


@dataclass(slots=True)
class Reviewed:
    """One object after its review."""

    name: ObjectName
    created_from: ObjectName | None
    """The object from which a controller creates it. None for one of the input."""
    user: str
    before: Json
    """The object as webhooks get it first."""
    is_guess: bool = False
    """Whether the kind of the object from which it is created is not built in: such a Pod is probable."""
    result: Result = "undecided"
    stopped: bool = False
    """Whether the mutating phase rejected it, so that no validating webhook saw it."""
    not_reached: int = 0
    """The validating webhooks that were not called for that."""
    findings: list[Finding] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)
    """Lines of the difference by webhooks, without secrets."""
    changed_by: list[str] = field(default_factory=list)
    """The webhooks that made it, in order."""
    final: Json | None = None
    """The object after all changes. None if it was rejected."""


@dataclass(slots=True)
class Previewed:
    """One object of the input, with all objects that it leads to."""

    manifest: Manifest
    """As in Git."""
    objects: list[Reviewed] = field(default_factory=list)
    """The object itself, then what controllers create."""

    @property
    def result(self) -> Result:
        """The worst result of its objects."""
        results = {one.result for one in self.objects}
        return "denied" if "denied" in results else "undecided" if "undecided" in results else "allowed"

    @property
    def final(self) -> Json | None:
        """The object of the input after all changes. None if it was rejected."""
        return self.objects[0].final if self.objects else None
