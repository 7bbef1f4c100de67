"""The result of ``migrate prove``: how many reviews both sides answer alike, and groups of those that differ.

It takes the place of the report of a replay (``gateway.tools.replay.run``). Its size does not depend on the
number of reviews.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from admission_gateway_worker.text import printable
from gateway.tools.migrating.comparison import differences
from gateway.tools.replay.about_request import SOCKET, ReportRedactor, as_secret, kind_of, name_of
from gateway.tools.replay.results import UnusableResultError
from gateway.tools.replay.run import MAX_FAILING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gateway.pure.core.review import Json
    from gateway.tools.migrating.comparison import Difference
    from gateway.tools.replay.cases import Case, Found
    from gateway.tools.replay.results import Result

MAX_GROUPS: Final = 200
"""Further differences are counted, and have no example."""
_NUMBER: Final = re.compile(r"\d+")
_CHARS: Final = 600
_LINES: Final = 40

Key = tuple[object, ...]


@dataclass
class Group:
    """Reviews whose answers differ in the same way."""

    case: Case
    """The first one."""
    found: list[Difference]
    old: Result
    new: Result
    redactor: ReportRedactor | None
    """Knows the secret values of the case. None if they were replaced when it was recorded."""
    count: int = 0

    def text(self, value: str) -> str:
        """Return *value* without secrets."""
        return value if self.redactor is None else self.redactor.message(value)

    def plain(self, document: object) -> Any:  # noqa: ANN401
        """Return the object *document* without secrets."""
        if self.redactor is None:
            return document
        return self.redactor.redacted(as_secret(document, self.case.request))


@dataclass
class Proof:
    """What came of all reviews so far. *is_exact*: texts are compared as they are."""

    is_exact: bool
    compared: int = 0
    equal: int = 0
    undecided: int = 0
    """Reviews in which a webhook of a side failed."""
    failures: Counter[str] = field(default_factory=Counter)
    """Reviews by what failed."""
    groups: dict[Key, Group] = field(default_factory=dict)
    others: int = 0
    """Reviews that differ in a way beyond the groups that are kept."""
    notes: Counter[str] = field(default_factory=Counter)
    """Reviews by what their source does not have."""
    stopped: str = ""
    """Why it ended early. Empty if it did not."""
    _failing: int = 0
    """Undecided reviews in a row."""

    @property
    def different(self) -> int:
        """The number of reviews that differ."""
        return self.compared - self.equal - self.undecided

    def add(self, case: Case, before: Result, after: Result) -> None:
        """Compare the answers to *case*: *before* of the old engine, *after* of the new configuration.

        Raises:
            UnusableResultError: an object of them cannot be used.
        """
        failed = [
            f"{side}: {one.name}: {SOCKET.sub('its socket', one.message)}"
            for side, result in (("old", before), ("new", after))
            for one in result.failures
        ]
        found = [] if failed else differences(before, after, is_exact=self.is_exact)
        self.compared += 1
        self.notes.update(case.notes)
        self._failing = self._failing + 1 if failed else 0
        if failed:
            self.undecided += 1
            self.failures.update({printable(text, _CHARS) for text in failed[:_LINES]})
            if self._failing >= MAX_FAILING:
                self.stopped = f"{MAX_FAILING} reviews in a row had a webhook that failed"
        elif found:
            self._add(case, found, before, after)
        else:
            self.equal += 1

    def _add(self, case: Case, found: list[Difference], before: Result, after: Result) -> None:
        key = _key(case, found)
        group = self.groups.get(key)
        if group is None:
            if len(self.groups) >= MAX_GROUPS:
                self.others += 1
                return
            redactor = None if case.is_redacted else _redactor(case, before, after)
            group = self.groups[key] = Group(case, found, before, after, redactor)
        group.count += 1

    def ordered(self) -> list[Group]:
        """Return the groups, the largest first."""
        return sorted(self.groups.values(), key=lambda one: -one.count)

    def status(self, found: Found, left_out: Sequence[str]) -> int:
        """Return the exit status: 0 equal, 1 different, 3 not known.

        *left_out* are webhooks that were not called.
        """
        if self.different:
            return 1
        is_unknown = self.undecided or self.stopped or not self.compared or found.unanswered or left_out
        return 3 if is_unknown else 0

    def document(self, found: Found, about: Json, files: Sequence[str]) -> Json:
        """Return the JSON of the report.

        Args:
            found: What the source of reviews has besides those that were compared.
            about: What the report is about.
            files: The name of the case in the test that was written, by group; empty if none was.
        """
        return {
            "apiVersion": "admission-gateway.io/v1alpha1",
            "kind": "MigrationProof",
            **about,
            "exact": self.is_exact,
            "compared": self.compared,
            "equal": self.equal,
            "different": self.different,
            "undecided": self.undecided,
            "notCompared": sum(found.left_out.values()),
            "stopped": self.stopped,
            "differences": [
                {**_group(group), **({"case": files[index]} if files else {})}
                for index, group in enumerate(self.ordered())
            ],
            "furtherDifferences": self.others,
            "failures": _by_count(self.failures),
            "notComparedByReason": _by_count(found.left_out),
            "notes": _by_count(self.notes),
            "problems": [printable(text, _CHARS) for text in found.problems],
        }


def _redactor(case: Case, *results: Result) -> ReportRedactor:
    request: Any = case.request
    redactor = ReportRedactor()
    finals = [one.final_object() for one in results if one.allowed and one.has_changed]
    try:
        for one in (request.get("object"), request.get("oldObject"), *finals):
            redactor.learn(as_secret(one, request))
        redactor.learn(request)
    except RecursionError as error:
        raise UnusableResultError from error
    return redactor


def _key(case: Case, found: list[Difference]) -> Key:
    """Return what equal differences have alike: names and numbers of the object do not count."""
    request: Any = case.request
    names = [re.escape(one) for one in (str(request.get("namespace") or ""), name_of(request)) if one]
    named = re.compile(rf"(?<![\w.-])(?:{'|'.join(names)})(?![\w.-])") if names else None

    def shape(text: str) -> str:
        return _NUMBER.sub("0", text if named is None else named.sub("NAME", text))

    texts = tuple(
        (one.kind, one.webhooks, tuple(map(shape, one.old)), tuple(map(shape, one.new))) for one in found
    )
    return kind_of(request), str(request.get("operation")), texts


def _group(group: Group) -> Json:
    request: Any = group.case.request
    user = request.get("userInfo")

    def texts(lines: Sequence[str]) -> list[str]:
        return [printable(group.text(line), _CHARS) for line in lines[:_LINES]]

    return {
        "count": group.count,
        "kind": printable(kind_of(request), 200),
        "operation": printable(str(request.get("operation") or ""), 20),
        "example": {
            "uid": printable(str(request.get("uid") or ""), 100),
            "namespace": printable(str(request.get("namespace") or ""), 300),
            "name": printable(name_of(request), 300),
            "user": printable(str(user.get("username") or ""), 300) if isinstance(user, dict) else "",
        },
        "found": [
            {
                "difference": one.kind,
                "webhooks": [printable(name, 300) for name in one.webhooks],
                "old": texts(one.old),
                "new": texts(one.new),
            }
            for one in group.found
        ],
    }


def _by_count(counts: Counter[str]) -> list[Json]:
    found = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [{"reason": printable(reason, _CHARS), "reviews": number} for reason, number in found if number]
