"""Mutating webhooks that never come to rest, found in live reviews: the state, without clock and I/O.

Three things are looked for:

- *undone*: two webhooks write one field to different values, and each brings back its own: in one review by
  reinvocation, or at one UPDATE of an object after another.
- *own_result*: a webhook changes a field that the request left as it is stored, at one UPDATE of an object
  after another: it does not accept its own result, or that of all webhooks.
- *put_back*: at one UPDATE of an object after another the request changes a field, and a webhook brings back
  what is stored: a client and the webhook undo each other.

Everything is bounded: the objects that are remembered, the fields of each, and what is found. A write that
was refused and is tried again is not counted twice: the version of the stored object has to be another one,
and the request may not ask again to change a field from the same value, as it does if others, such as the
controller that writes the status, have changed the version. A write of an old version is not looked at,
because the API server refuses it.

Source: kubernetes.io, Admission Webhook Good Practices (loops).
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, get_args

import orjson

from admission_gateway_worker.json_patch.diff import same
from gateway.pure.core.conflicts import is_secret
from gateway.pure.core.field_changes import ABSENT, field_changes, general_path, path_text
from gateway.pure.core.review import metadata_of
from gateway.pure.core.stages import changed_payloads, conflicts_of

if TYPE_CHECKING:
    from collections.abc import Generator

    from gateway.pure.core.evaluation import Evaluation
    from gateway.pure.core.field_changes import FieldChange, Path
    from gateway.pure.core.review import AdmissionRequest
    from gateway.pure.core.webhook import Webhook

Kind = Literal["undone", "own_result", "put_back"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
TIMES: Final[dict[Kind, int]] = {"undone": 3, "own_result": 3, "put_back": 5}
"""UPDATEs of one object with the same thing, from which on it is a finding. A client that is told to apply a
wrong value may try again a few times."""
WITHIN_S: Final = 600.0
"""The longest time between two of them. Controllers that write in a loop wait minutes at most."""
MAX_OBJECTS: Final = 1000
"""The one without a change for the longest time goes first. Only UPDATEs that webhooks change are
remembered: webhooks at rest change none."""
MAX_FIELDS: Final = 16
"""Of one object, and of one review."""
MAX_CHARS: Final = 256
"""Of a path, a name or a namespace."""
MAX_FOUND: Final = 100
"""What is found later is counted as one."""
OTHERS: Final = "(others)"


class Dispute(NamedTuple):
    """What is found of one or two webhooks."""

    kind: Kind
    webhook: str
    """Its name. ``OTHERS`` if there are too many."""
    other: str
    """The name of the webhook that undoes it. Empty for other kinds."""
    path: str
    """The field, without keys of elements and without values."""

    def line(self) -> str:
        """Return a line for people."""
        if self.webhook == OTHERS:
            return "further webhooks and fields"
        match self.kind:
            case "undone":
                return f"{self.webhook} and {self.other} undo each other in {self.path}"
            case "own_result":
                return f"{self.webhook} changes {self.path} again at each UPDATE"
        return f"{self.webhook} puts back {self.path}, which a client sets again and again"


@dataclass(slots=True)
class Seen:
    """How often something was found since the start."""

    number: int = 0
    """Reviews."""
    last_at: float = 0.0
    """The time of the last one, as it was given."""
    example: str = ""
    """Resource, namespace and name of the last object. Of a Secret the resource only."""


def concerns(evaluation: Evaluation) -> bool:
    """Whether :meth:`Disputes.note` may find something in *evaluation*, in which the object was changed.

    It takes next to no time.
    """
    request = evaluation.request
    if not evaluation.is_mutating or request.dry_run:
        return False
    if request.operation == "UPDATE":
        return True
    return any(outcome.round and outcome.has_changed for outcome in evaluation.outcomes)


class _Trail:
    """The reviews of one object with the same thing, one after another."""

    __slots__ = ("at", "times", "version")

    def __init__(self) -> None:
        self.times = 0
        self.at = 0.0
        self.version: object = None
        """The resourceVersion of the stored object at the last one."""


_Thing = tuple["Kind", str, str, str]
"""What may be found of one object: the names of the webhooks, and the field."""


class _Object(NamedTuple):
    """What is known of one object."""

    asked: frozenset[bytes]
    """Of the last request: digests of fields that it, and no webhook, changed, with the stored values."""
    trails: dict[_Thing, _Trail]


class Disputes:
    """What is known of the objects of one process."""

    def __init__(self) -> None:
        self.found: dict[Dispute, Seen] = {}
        """At most ``MAX_FOUND``, and one for all others of each kind."""
        self._objects: OrderedDict[tuple[str, ...], _Object] = OrderedDict()

    def note(self, evaluation: Evaluation, now: float) -> Generator[None, None, list[Dispute]]:
        """Note a review that ended at *now*, in seconds, and return what is found; yields between steps."""
        conflicts = conflicts_of(evaluation)
        yield
        left = {one.path for one in conflicts}
        # Who names the other in ``after`` means to overwrite it.
        conflicts = tuple(one for one in conflicts if not one.is_meant)
        pairs = {(one.first.name, one.second.name, one.path) for one in conflicts}
        found: dict[Dispute, None] = {}
        for one in conflicts:
            first, second = sorted((one.first.name, one.second.name))
            if first != second and {(first, second, one.path), (second, first, one.path)} <= pairs:
                found[Dispute("undone", first, second, _general(one.path))] = None
        request = evaluation.request
        name = str(metadata_of(request.old_object).get("name") or "")
        if request.operation == "UPDATE" and name and not _is_of_old_version(request):
            things: dict[_Thing, str] = {}
            for one in conflicts[:MAX_FIELDS]:
                first, second = sorted((one.first.name, one.second.name))
                things["undone", first, second, _kept(one.path)] = _general(one.path)
            yield
            requested = {one.path: one for one in field_changes(request.old_object, request.object)}
            yield
            asked = dict(requested)
            for webhook, change in _changes(evaluation):
                asked.pop(change.path, None)
                kind = None if change.path in left else _kind_of(change, requested.get(change.path))
                if kind is not None and len(things) < MAX_FIELDS:
                    things[kind, webhook.name, "", _kept(change.path)] = _general(change.path)
            yield
            changes = [one for one in asked.values() if _is_stored(one.path, request)]
            digests = frozenset(map(_digest, changes[:MAX_FIELDS]))
            found |= dict.fromkeys(self._repeated(request, name, things, digests, now))
        return [self._count(one, request, name, now) for one in found]

    def _repeated(
        self,
        request: AdmissionRequest,
        name: str,
        things: dict[_Thing, str],
        asked: frozenset[bytes],
        now: float,
    ) -> list[Dispute]:
        """Return those of *things*, of an UPDATE of the object *name*, that have come often enough.

        *things* have their fields without keys of elements. *asked* is as in ``_Object``.
        """
        place = (*request.resource, request.sub_resource, request.namespace, name)
        key = tuple(text[:MAX_CHARS] for text in place)
        known = self._objects.pop(key, _Object(frozenset(), {}))
        is_new = known.asked.isdisjoint(asked)
        version = metadata_of(request.old_object).get("resourceVersion")
        kept: dict[_Thing, _Trail] = {
            thing: trail for thing, trail in known.trails.items() if now - trail.at <= WITHIN_S
        }
        found = []
        for thing, path in things.items():
            trail = kept.get(thing) or _Trail()
            # What a client sets again and again, and a webhook puts back, leaves the object as it is stored.
            if thing[0] == "put_back" or trail.version is None or (is_new and trail.version != version):
                trail.times += 1
            trail.at, trail.version = now, version
            if thing in kept or len(kept) < MAX_FIELDS:
                kept[thing] = trail
            kind, webhook, other, _ = thing
            if trail.times >= TIMES[kind]:
                found.append(Dispute(kind, webhook, other, path))
        if kept:
            self._objects[key] = _Object(asked, kept)
            if len(self._objects) > MAX_OBJECTS:
                self._objects.popitem(last=False)
        return found

    def _count(self, one: Dispute, request: AdmissionRequest, name: str, now: float) -> Dispute:
        if one not in self.found and len(self.found) >= MAX_FOUND:
            one = Dispute(one.kind, OTHERS, "", "")
        seen = self.found.setdefault(one, Seen())
        seen.number += 1
        seen.last_at = now
        place = "" if is_secret(request) else "/".join(filter(None, (request.namespace, name)))[:MAX_CHARS]
        seen.example = f"{request.resource[2]} {place}".rstrip()
        return one


def _kept(path: Path) -> str:
    """Return *path* as it is remembered: the contents of elements without a key are not in it."""
    return path_text(path)[:MAX_CHARS]


def _general(path: Path) -> str:
    return general_path(path)[:MAX_CHARS]


def _is_of_old_version(request: AdmissionRequest) -> bool:
    """Whether the API server refuses *request*, because the stored object is not the one that it changes."""
    written, stored = (
        metadata_of(one).get("resourceVersion") for one in (request.object, request.old_object)
    )
    return bool(written) and written != stored


def _is_stored(path: Path, request: AdmissionRequest) -> bool:
    """Whether the API server stores what *request* wants at *path*, and no value of its own instead."""
    match path:
        case ("metadata", name, *_):
            return name in ("annotations", "labels")
        case ("status", *_):
            return bool(request.sub_resource)
    return True


def _digest(change: FieldChange) -> bytes:
    """Return a digest of a field and its stored value."""
    before = b"" if change.before is ABSENT else orjson.dumps(change.before, option=orjson.OPT_SORT_KEYS)
    return blake2b(repr(change.path).encode() + before, digest_size=8).digest()


def _kind_of(change: FieldChange, requested: FieldChange | None) -> Kind | None:
    """Return what it may be that a webhook made *change*, where the request *requested* a change or none."""
    if requested is None:
        return "own_result"
    if requested.before is ABSENT or change.after is ABSENT:
        return "put_back" if requested.before is change.after else None
    return "put_back" if same(requested.before, change.after) else None


def _changes(evaluation: Evaluation) -> Generator[tuple[Webhook, FieldChange]]:
    """Yield the changes of the object with their webhooks, in order."""
    before: Any = evaluation.request.object
    for index, payload in changed_payloads(evaluation):
        webhook, after = evaluation.outcomes[index].invocation.webhook, payload.object
        for change in field_changes(before, after):
            yield webhook, change
        before = after
