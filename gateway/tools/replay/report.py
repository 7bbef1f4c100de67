"""The report of a replay: differences in groups, with examples. Its size does not depend on the input.

Reviews are added in the order of the input, so equal inputs give equal reports. Times are the exception, and
are part of a report only where they are wanted.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from admission_gateway_worker.text import printable
from gateway.observe.decisions.record import REJECTIONS
from gateway.tools.offline.changes import changes
from gateway.tools.replay.about_request import SOCKET, ReportRedactor, as_secret, kind_of, name_of
from gateway.tools.replay.comparison import KINDS, Difference, differences
from gateway.tools.replay.results import UnusableResultError

if TYPE_CHECKING:
    from gateway.pure.core.review import Json
    from gateway.tools.replay.cases import Case, Found
    from gateway.tools.replay.results import Result

MAX_GROUPS: Final = 2000
"""Further groups are counted as one for each kind of difference."""
MAX_EXAMPLES: Final = 3
MAX_NOTES: Final = 200
"""Further conflicts of webhooks are counted as one."""
OTHER_CONFLICTS: Final = "webhooks overwrite each other in other fields"
_TEXT_CHARS: Final = 600
_MAX_LINES: Final = 40
_BOUNDS_MS: Final = (0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 30_000)
OTHERS: Final = ("(others)", "", "")

TITLES: Final = {
    "newlyDenied": "newly denied",
    "newlyAllowed": "newly allowed",
    "otherMessage": "other message",
    "otherObject": "other object",
    "failures": "failures",
    "changedAgain": "changed again",
}


@dataclass
class Group:
    """Differences of one kind, webhook, namespace and kind of object."""

    count: int = 0
    examples: list[Json] = field(default_factory=list)


class Times:
    """How long calls of one webhook took, as counts within bounds."""

    def __init__(self) -> None:
        self._counts = [0] * (len(_BOUNDS_MS) + 1)

    def add(self, milliseconds: float) -> None:
        """Count one call."""
        self._counts[next((n for n, bound in enumerate(_BOUNDS_MS) if milliseconds <= bound), -1)] += 1

    def percentile(self, share: float) -> float | None:
        """Return the bound that *share* of the calls did not exceed; None without calls."""
        wanted, seen = share * sum(self._counts), 0
        for bound, count in zip((*_BOUNDS_MS, _BOUNDS_MS[-1]), self._counts, strict=True):
            seen += count
            if count and seen >= wanted:
                return bound
        return None


class Report:
    """What differs, of all reviews so far."""

    def __init__(self) -> None:
        self.replayed = 0
        self.equal = 0
        self.by_kind: Counter[str] = Counter(dict.fromkeys(KINDS, 0))
        """Reviews by kind of difference; one review may have several."""
        self.notes: Counter[str] = Counter()
        """Reviews by what their source does not have."""
        self.groups: dict[str, dict[tuple[str, str, str], Group]] = {kind: {} for kind in KINDS}
        self.stopped = ""
        """Why the replay ended early. Empty if it did not."""
        self._times: dict[str, tuple[Times, Times]] = {}

    def add(self, case: Case, before: Result, after: Result) -> list[Difference]:
        """Add one review with its two results, and return their differences.

        Webhooks that change their own results are no differences, and are counted beside them.

        Raises:
            UnusableResultError: the recorded answer is damaged.
        """
        found = differences(before, after)
        self.replayed += 1
        self.equal += not found
        self.notes.update(case.notes)
        again = [Difference("changedAgain", name, "", line) for name, line in after.again]
        self.by_kind.update({one.kind for one in (*found, *again)})
        for one in (*found, *again):
            self._add(case, one, before, after)
        self.notes.update(
            f"{one.name}, in the mode {one.mode}, would refuse the request"
            for one in after.webhooks
            if one.mode != "Enforce" and one.outcome in REJECTIONS
        )
        for line in after.conflicts:
            # Paths may have texts of objects in them, such as keys of annotations.
            is_room = line in self.notes or len(self.notes) < MAX_NOTES
            self.notes[line if is_room else OTHER_CONFLICTS] += 1
        for index, result in enumerate((before, after)):
            for webhook in result.webhooks:
                if webhook.milliseconds:
                    times = self._times.get(webhook.name)
                    if times is None and len(self._times) < MAX_GROUPS:
                        times = self._times[webhook.name] = Times(), Times()
                    if times is not None:
                        times[index].add(webhook.milliseconds)
        return found

    def _add(self, case: Case, difference: Difference, before: Result, after: Result) -> None:
        groups = self.groups[difference.kind]
        request: Any = case.request
        key = difference.webhook, str(request.get("namespace") or ""), kind_of(request)
        key = tuple(printable(part, 200) for part in key)  # type: ignore[assignment]
        if key not in groups and sum(map(len, self.groups.values())) >= MAX_GROUPS:
            key = OTHERS
        group = groups.setdefault(key, Group())
        group.count += 1
        if len(group.examples) < MAX_EXAMPLES:
            group.examples.append(_example(case, difference, before, after))

    def document(self, found: Found, about: Json, *, with_times: bool) -> Json:
        """Return the JSON of the report. *about* has what it is about; *with_times* adds latencies."""
        return {
            "apiVersion": "admission-gateway.io/v1alpha1",
            "kind": "ReplayReport",
            **about,
            "replayed": self.replayed,
            "equal": self.equal,
            **{kind: self.by_kind[kind] for kind in KINDS},
            "leftOut": sum(found.left_out.values()),
            "stopped": self.stopped,
            "differences": [
                {
                    "difference": kind,
                    "webhook": key[0],
                    "namespace": key[1],
                    "kind": key[2],
                    "count": group.count,
                    "examples": group.examples,
                }
                for kind in KINDS
                for key, group in sorted(
                    self.groups[kind].items(), key=lambda item: (item[0] == OTHERS, -item[1].count, item[0])
                )
            ],
            "leftOutByReason": _by_count(found.left_out),
            "notes": _by_count(self.notes),
            "problems": [printable(text, _TEXT_CHARS) for text in found.problems],
            "latency": [_latency(name, *times) for name, times in sorted(self._times.items())]
            if with_times
            else [],
        }


def _latency(name: str, *times: Times) -> Json:
    found: Json = {"webhook": printable(name, 200)}
    for side, one in zip(("before", "after"), times, strict=True):
        for percent in (50, 99):
            found[f"{side}{percent}Milliseconds"] = one.percentile(percent / 100)
    return found


def _by_count(counts: Counter[str]) -> list[Json]:
    found = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [
        {"reason": printable(reason, _TEXT_CHARS), "reviews": number} for reason, number in found if number
    ]


def _example(case: Case, difference: Difference, before: Result, after: Result) -> Json:
    request: Any = case.request
    objects = [request.get("object"), request.get("oldObject")]
    finals: list[object] = []
    if difference.kind == "otherObject":
        finals = [before.final_object(), after.final_object()]
    redactor: ReportRedactor | None = None if case.is_redacted else ReportRedactor()
    if redactor is not None:
        try:
            for one in (*objects, *finals):
                redactor.learn(as_secret(one, request))
            finals = [redactor.redacted(as_secret(one, request)) for one in finals]
        except RecursionError as error:
            raise UnusableResultError from error

    def text(value: str) -> str:
        shown = SOCKET.sub("the worker's socket", value if redactor is None else redactor.message(value))
        return printable(shown, _TEXT_CHARS)

    user = request.get("userInfo")
    example: Json = {
        "uid": text(str(request.get("uid") or "")),
        "name": text(name_of(request)),
        "operation": text(str(request.get("operation") or "")),
        "user": text(str(user.get("username") or "")) if isinstance(user, dict) else "",
        "before": [text(line) for line in difference.before.split("\n")[:_MAX_LINES]],
        "after": [text(line) for line in difference.after.split("\n")[:_MAX_LINES]],
    }
    lines = list(changes(*finals)) if finals else []
    kept = [printable(line, _TEXT_CHARS) for line in lines[:_MAX_LINES]]
    example["changes"] = [*kept, "…"] if len(lines) > _MAX_LINES else kept
    return example
