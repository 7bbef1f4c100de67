"""What a replay learns for exceptions: requests in groups, by what exceptions can match, and their outcomes.

A million reviews of a cluster are thousands of groups: of one workload, user and set of images. Their number
is bounded, and further groups are counted, so that nothing is written for a part of them.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from zlib import crc32

from admission_gateway_worker.text import printable
from gateway.config.kinds.policy_exception import IMAGES, KIND, OWNER
from gateway.observe.decisions.record import FAILURES
from gateway.observe.recording.redaction import MARK_PREFIX
from gateway.pure.core.exemptions import GENERATED_FROM_CHARS
from gateway.pure.core.workload import Owner, images_of, owners_of
from gateway.tools.replay.about_request import SOCKET, ReportRedactor, as_secret
from gateway.tools.replay.objects import OPTIONS
from gateway.tools.replay.results import UnusableResultError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gateway.pure.core.review import Json
    from gateway.tools.replay.cases import Case
    from gateway.tools.replay.comparison import Difference
    from gateway.tools.replay.report import Report
    from gateway.tools.replay.results import Result

MAX_GROUPS: Final = 100_000
MAX_ENTRIES: Final = 64
"""Of each list in ``match``."""
OWNER_LABELS: Final = ("owner", "team")
_MAX_CHARS: Final = 512
"""Of each entry in ``match``."""
_MAX_IMAGES_CHARS: Final = 2048
"""Of all images of a group, which is kept in memory."""
_MESSAGE_CHARS: Final = 160
_MAX_MESSAGES: Final = 2000
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z")
_MARK: Final = re.compile(rf"{MARK_PREFIX}[0-9a-f]{{16}}")
"""What recordings have in place of a secret value. No request has such a name, user or image."""
ABSENT, ALLOWED, DENIED, NEWLY_DENIED, FAILED = range(5)
"""What became of a review by the new configuration. ABSENT: it was not replayed."""


class Facts(NamedTuple):
    """What exceptions can match of a request. An empty text or tuple: it is not known, or cannot be named."""

    namespace: str
    kind: str
    """``KIND`` or ``KIND.GROUP``."""
    user: str
    owner: str
    """``KIND/NAME`` or ``KIND.GROUP/NAME`` of the object at the top; with ``*`` if names are generated."""
    images: tuple[str, ...]
    """Repositories, sorted."""


class Signature(NamedTuple):
    """What the webhooks of a review did, by name."""

    allowed: tuple[str, ...]
    rejecting: tuple[str, ...]
    is_newly_denied: bool


@dataclass(slots=True)
class Group:
    """Reviews with equal facts and an equal signature."""

    count: int = 0
    first: str = ""
    last: str = ""
    uid: str = ""


@dataclass
class Denials:
    """The groups of all passes of a replay."""

    groups: dict[tuple[Facts, Signature], Group] = field(default_factory=dict)
    owners: dict[str, str] = field(default_factory=dict)
    """Who is responsible for a namespace, by a label that it has."""
    messages: dict[tuple[str, str, str], str] = field(default_factory=dict)
    """An example of what a webhook says, by its name, namespace and kind."""
    others: int = 0
    """Reviews of groups beyond the greatest number."""
    failing: Counter[str] = field(default_factory=Counter)
    """By webhook: newly denied reviews for which it failed, so that it is not known what it would decide."""
    owner_labels: tuple[str, ...] = OWNER_LABELS
    _signatures: dict[Signature, Signature] = field(default_factory=dict)

    def add(self, case: Case, after: Result, *, is_newly_denied: bool) -> None:
        """Add one review with its answer by the new configuration."""
        rejecting = tuple(dict.fromkeys(one.key[2] for one in after.webhooks if one.rejects))
        allowed = tuple(
            dict.fromkeys(
                one.key[2] for one in after.webhooks if one.outcome not in _NOT_CALLED and not one.rejects
            )
        )
        if not rejecting and not allowed:
            return
        signature = Signature(allowed, rejecting, is_newly_denied)
        # Thousands of groups share the names of all webhooks.
        key = facts_of(case.request, after), self._signatures.setdefault(signature, signature)
        group = self.groups.get(key)
        if group is None:
            if len(self.groups) >= MAX_GROUPS:
                self.others += 1
                return
            group = self.groups[key] = Group(uid=printable(case.request.get("uid") or "", 64))
        group.count += 1
        if _TIME.fullmatch(case.time):
            group.first = min(group.first or case.time, case.time)
            group.last = max(group.last, case.time)
        if is_newly_denied:
            self.failing.update({one.key[2] for one in after.failures if one.rejects})
            self._note(case, key[0], after)

    def _note(self, case: Case, facts: Facts, after: Result) -> None:
        if case.namespace is not None and facts.namespace not in self.owners:
            texts = (case.namespace.labels.get(label) for label in self.owner_labels)
            owner = next((text for text in texts if isinstance(text, str) and text.strip()), "")
            if owner and len(owner) <= 253 and owner.isprintable():
                self.owners[facts.namespace] = owner
        for one in after.webhooks:
            key = one.key[2], facts.namespace, facts.kind
            if one.rejects and key not in self.messages and len(self.messages) < _MAX_MESSAGES:
                self.messages[key] = _without_secrets(one.message, case)


_NOT_CALLED: Final = frozenset({"Excluded", "Exempted", "NotCalled"})


def _without_secrets(message: str, case: Case) -> str:
    if not case.is_redacted:
        redactor = ReportRedactor()
        try:
            for name in ("object", "oldObject"):
                redactor.learn(as_secret(case.request.get(name), case.request))
        except RecursionError as error:
            raise UnusableResultError from error
        message = redactor.message(message)
    return printable(SOCKET.sub("the worker's socket", message), _MESSAGE_CHARS)


def facts_of(request: Any, after: Result | None = None) -> Facts:  # noqa: ANN401
    """Return what exceptions can match of *request*. *after* has the object as webhooks changed it."""
    kind = request.get("requestKind") or request.get("kind") or {}
    group, name = (str(kind.get(member) or "") for member in ("group", "kind"))
    states = [one for one in (request.get("object"), request.get("oldObject")) if isinstance(one, dict)]
    user = request.get("userInfo")
    username = user.get("username") if isinstance(user, dict) else None
    # Sources of plain objects have no user. An exception for the one of the replay would cover nothing.
    has_user = username != OPTIONS.user
    user_name = _named(username) if has_user else ""
    namespace = request.get("namespace")
    of_kind = f"{name}.{group}" if group else name
    final = after.final_object() if after is not None and after.has_changed else None
    return Facts(
        namespace if isinstance(namespace, str) else "",
        # Without its user, the request would be covered whoever sends it.
        of_kind if KIND.fullmatch(of_kind) and bool(user_name) == has_user else "",
        user_name,
        _owner(request, Owner(group, name, _own_name(request)), states, is_by_name=not has_user),
        _images(group, name, [*states, final] if isinstance(final, dict) else states),
    )


def _named(text: object) -> str:
    """Return *text* if an exception can name it, and nothing else with it; else an empty text."""
    if not isinstance(text, str) or not 0 < len(text) <= _MAX_CHARS or not text.isprintable():
        return ""
    return "" if "*" in text or _MARK.search(text) else text


def _own_name(request: Any) -> str:  # noqa: ANN401
    """Return the name of the object of *request*, or the beginning of names that are generated with ``*``.

    As exceptions see it: a request has the name of its object, but for those of a deleted collection.
    """
    found = request.get("name") or _metadata(request, "oldObject").get("name")
    if not found and request.get("operation") == "CREATE":
        beginning = _named(_metadata(request, "object").get("generateName"))
        return f"{beginning[:GENERATED_FROM_CHARS]}*" if beginning else ""
    return _named(found)


def _metadata(request: Any, member: str) -> Any:  # noqa: ANN401
    found = (request.get(member) or {}).get("metadata")
    return found if isinstance(found, dict) else {}


def _owner(request: Any, own: Owner, states: list[Json], *, is_by_name: bool) -> str:  # noqa: ANN401
    """Return the top owner of all *states* if it is the same for all, else the object itself.

    *is_by_name*: the object itself, since ``names`` are matched where no users are known.
    """
    tops = {owners[-1] for owners in map(owners_of, states) if owners}
    is_owned = not is_by_name and len(tops) == 1 and all(map(owners_of, states))
    owner = tops.pop() if is_owned else own
    text = str(owner)
    is_right = bool(_named(text.removesuffix("*"))) and len(text) <= _MAX_CHARS
    return text if owner.name and is_right and re.fullmatch(OWNER, text) else ""


def _images(group: str, kind: str, states: Iterable[Json]) -> tuple[str, ...]:
    found = [images_of(group, kind, state) for state in states]
    known = [one for one in found if one is not None]
    repositories = sorted(frozenset().union(*known)) if known and len(known) == len(found) else []
    is_right = len(repositories) <= MAX_ENTRIES and sum(map(len, repositories)) <= _MAX_IMAGES_CHARS
    is_right = is_right and all(_named(one) and re.fullmatch(IMAGES, one) for one in repositories)
    return tuple(repositories) if is_right else ()


class Observer:
    """Takes the results of one pass: adds them to a report, and what exceptions need to *denials*.

    *before* is the first pass. The passes after it are compared with it, review by review.
    """

    def __init__(self, report: Report, denials: Denials, before: Observer | None = None) -> None:
        self.report = report
        self.denials = denials
        self.statuses = bytearray()
        """What became of each review of the source, by number."""
        self.marks = array("I")
        """A checksum of the uid of each."""
        self._before = before
        self.left = 0
        """Reviews that the first pass found newly denied, and that still are."""
        self.changed: list[str] = []
        """Examples of reviews whose decision changed although they were not newly denied."""
        self.changes = 0
        self.notes = report.notes

    @property
    def stopped(self) -> str:
        """See ``run.Results``."""
        return self.report.stopped

    @stopped.setter
    def stopped(self, why: str) -> None:
        self.report.stopped = why

    def add(self, case: Case, before: Result, after: Result) -> list[Difference]:
        """Add one review; see ``run.Results``."""
        found = self.report.add(case, before, after)
        status = NEWLY_DENIED if any(one.kind == "newlyDenied" for one in found) else _status(after)
        missing = case.number + 1 - len(self.statuses)
        self.statuses.extend(bytes(max(0, missing)))
        self.marks.extend([0] * max(0, missing))
        self.statuses[case.number] = status
        mark = crc32(str(case.request.get("uid")).encode(errors="replace"))
        self.marks[case.number] = mark
        if self._before is None:
            self.denials.add(case, after, is_newly_denied=status == NEWLY_DENIED)
        else:
            self._compare(case, after, status, mark)
        return found

    def _compare(self, case: Case, after: Result, status: int, mark: int) -> None:
        assert self._before is not None
        known = case.number < len(self._before.statuses)
        first = self._before.statuses[case.number] if known else ABSENT
        if first == NEWLY_DENIED:
            if status == NEWLY_DENIED:
                self.left += 1
                self.denials.add(case, after, is_newly_denied=True)
            elif status == ALLOWED:
                return
        elif first == ABSENT and status == ALLOWED:
            return  # what an exception covers needs no labels of its namespace
        if first != status or (known and first and self._before.marks[case.number] != mark):
            self.changes += 1
            if len(self.changed) < 3:
                self.changed.append(printable(case.request.get("uid") or "(no uid)", 64))

    def changed_since(self) -> str:
        """Return what differs from the first pass although no exception is meant for it; empty if nothing."""
        assert self._before is not None
        first = self._before.statuses
        missing = sum(
            status != ABSENT and (number >= len(self.statuses) or self.statuses[number] == ABSENT)
            for number, status in enumerate(first)
        )
        if missing:
            return f"{missing:,} reviews of the first pass were not replayed again: the source changed"
        if self.changes:
            return (
                f"with the exceptions, the decision on {self.changes:,} reviews changed that were not newly "
                f"denied, such as {', '.join(self.changed)}: the exceptions cover more than they should, or "
                "the answers of policies differ from run to run"
            )
        return ""


def _status(after: Result) -> int:
    if after.allowed:
        return ALLOWED
    rejecting = after.rejecting
    return FAILED if rejecting is not None and rejecting.outcome in FAILURES else DENIED
