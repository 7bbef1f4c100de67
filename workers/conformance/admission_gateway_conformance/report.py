"""Results of the rules as text and as JSON."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from admission_gateway_conformance.run import FAILS, HOLDS, NOT_CHECKED, NOT_SERVED, Result
from admission_gateway_worker.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

CONTRACT: Final = "protos/README.md"
_WIDTH: Final = len(NOT_CHECKED)


class Text:
    """Lines of text, printed as results arrive; rules of a missing method are one line for each group."""

    def __init__(self) -> None:
        self._group = ""
        self._unserved: list[Result] = []
        self._explained: set[str] = set()
        """Methods whose consequence has been printed."""

    def lines(self, result: Result) -> Iterator[str]:
        """Yield the lines to print now."""
        rule = result.rule
        is_more = self._unserved and self._unserved[0].rule.method == rule.method
        if not is_more or rule.group.title != self._group or result.outcome != NOT_SERVED:
            yield from self.rest()
        if rule.group.title != self._group:
            self._group = rule.group.title
            yield self._group
        if result.outcome == NOT_SERVED:
            self._unserved.append(result)
            return
        yield _line(result.outcome, rule.description, result.note)
        if result.violation is not None:
            yield from _details(result)

    def rest(self) -> Iterator[str]:
        """Yield the lines that have not been printed yet."""
        if self._unserved:
            count, rule = len(self._unserved), self._unserved[0].rule
            cost = "" if rule.method in self._explained else f": {self._unserved[0].note}"
            self._explained.add(rule.method)
            yield _line(NOT_SERVED, f"{rule.method}, for {count} rule{'' if count == 1 else 's'}{cost}", "")
            self._unserved.clear()


def summary(target: str, results: Sequence[Result]) -> str:
    """Return the last line."""
    counts = Counter(result.outcome for result in results)
    words = [f"{counts[outcome]} {word}" for outcome, word in _WORDS.items() if counts[outcome]]
    verdict = "violates the contract" if counts[FAILS] else "keeps to the contract, as far as checked"
    return f"{target} {verdict}: {', '.join(words)}"


def as_json(target: str, results: Iterable[Result]) -> dict[str, Any]:
    """Return all results as one JSON object, described in workers/conformance/README.md."""
    results = tuple(results)
    counts = Counter(result.outcome for result in results)
    return {
        "target": target,
        **{_KEYS[outcome]: counts[outcome] for outcome in _KEYS},
        "rules": [_entry(result) for result in results],
    }


_WORDS: Final = {HOLDS: "hold", FAILS: "fail", NOT_SERVED: "not served", NOT_CHECKED: "not checked"}
_KEYS: Final = {HOLDS: "holds", FAILS: "fails", NOT_SERVED: "notServed", NOT_CHECKED: "notChecked"}


def _line(outcome: str, description: str, note: str) -> str:
    separator = ": " if outcome == NOT_CHECKED else ", "
    return f"  {outcome:<{_WIDTH}}  {description}{separator + note if note else ''}"


def _details(result: Result) -> Iterator[str]:
    violation = result.violation
    assert violation is not None
    section = f'"{result.rule.section}" ({result.rule.name})'
    for word, text in (
        ("action", violation.action),
        ("found", violation.found),
        ("expected", violation.expected),
        (CONTRACT, section),
    ):
        yield f"  {'':<{_WIDTH}}    {word}: {printable(text)}"


def _entry(result: Result) -> dict[str, Any]:
    rule, violation = result.rule, result.violation
    entry = {
        "rule": rule.name,
        "group": rule.group.title,
        "description": rule.description,
        "section": rule.section,
        "result": _KEYS[result.outcome],
    }
    if result.note:
        entry["note"] = result.note
    if violation is not None:
        entry |= {"action": violation.action, "found": violation.found, "expected": violation.expected}
    return entry
