"""Suites of ``gator verify``, as they are.

Files that a suite names are read when it runs.

Source: github.com/open-policy-agent/gatekeeper pkg/gator/verify/{suite,assertion,read_suites}.go.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gateway.base.text import described
from gateway.pure.cel.errors import EvaluationError
from gateway.pure.cel.meter import HOOK_LIMIT, start
from gateway.pure.cel.regex import compile_regex

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from gateway.config.yaml.documents import Document
    from gateway.config.yaml.fields import Fields

_GROUP: Final = "test.gatekeeper.sh/"


@dataclass(frozen=True, slots=True)
class Assertion:
    """How many violations there are. All assertions of a case have to hold."""

    violations: int | bool = True
    """The number, or whether there are any."""
    message: str | None = None
    """The regular expression of the messages that count. None: all count."""

    def problem(self, messages: Sequence[str]) -> str:
        """Return what is wrong with the *messages* of the violations; empty if nothing is."""
        count = sum(self.message is None or _matches(self.message, text) for text in messages)
        wanted = self.violations
        if wanted is True or wanted is False:
            expected = "at least one" if wanted else "none"
            is_met = (count > 0) is wanted
        else:
            expected, is_met = str(wanted), count == wanted
        if is_met:
            return ""
        matching = "" if self.message is None else f" whose message matches {self.message!r}"
        return f"violations: found {count}{matching}, expected {expected}"


@dataclass(frozen=True, slots=True)
class GatekeeperCase:
    """One object, and the violations that are expected."""

    name: str
    object: Path
    inventory: tuple[Path, ...]
    assertions: tuple[Assertion, ...]
    is_skipped: bool


@dataclass(frozen=True, slots=True)
class GatekeeperTest:
    """A template with a constraint, and cases for them."""

    name: str
    template: Path
    constraint: Path
    expansion: Path | None
    is_invalid: bool
    """Whether the constraint is expected to contradict the schema of the template."""
    is_skipped: bool
    cases: tuple[GatekeeperCase, ...]


@dataclass(frozen=True, slots=True)
class GatekeeperSuite:
    """The tests of one document."""

    name: str
    file: Path
    document: int
    is_skipped: bool
    tests: tuple[GatekeeperTest, ...]


def is_gatekeeper_suite(content: Mapping[str, object]) -> bool:
    """Whether *content* is a document of ``gator verify``."""
    return content.get("kind") == "Suite" and str(content.get("apiVersion")).startswith(_GROUP)


def read_gatekeeper_suite(document: Document, number: int) -> GatekeeperSuite:
    """Return the suite in *document*, the test *number* of its file, after reporting its problems."""
    fields = document.fields()
    fields.accept("kind", "apiVersion")
    name = fields.group("metadata").optional_string("name") or document.file.stem
    folder = document.file.parent
    is_skipped = fields.boolean("skip")
    tests = tuple(_test(one, folder) for one in fields.mappings("tests"))
    fields.finish_leniently()
    return GatekeeperSuite(name, document.file, number, is_skipped, tests)


def _test(fields: Fields, folder: Path) -> GatekeeperTest:
    expansion = fields.optional_string("expansion")
    test = GatekeeperTest(
        fields.optional_string("name"),
        folder / fields.required_string("template"),
        folder / fields.required_string("constraint"),
        folder / expansion if expansion else None,
        fields.boolean("invalid"),
        fields.boolean("skip"),
        tuple(_case(one, folder) for one in fields.mappings("cases")),
    )
    fields.finish_leniently()
    return test


def _case(fields: Fields, folder: Path) -> GatekeeperCase:
    case = GatekeeperCase(
        fields.optional_string("name"),
        folder / fields.required_string("object"),
        tuple(folder / text for text in fields.strings("inventory")),
        tuple(map(_assertion, fields.mappings("assertions"))),
        fields.boolean("skip"),
    )
    if not case.assertions:
        fields.problem("assertions", "found none, expected at least one")
    fields.finish_leniently()
    return case


def _assertion(fields: Fields) -> Assertion:
    found = fields.content.get("violations")
    # Without quotes, yes and no are booleans of YAML 1.1, but not for Gatekeeper.
    violations: int | bool = found in (None, True, "yes")
    if type(found) is int and found >= 0:
        violations = found
    elif found not in (None, True, False, "yes", "no"):
        fields.problem("violations", f"found {described(found)}, expected a number, yes or no")
    fields.accept("violations")
    message = fields.string("message", None, _pattern_problem)
    fields.finish_leniently()
    return Assertion(violations, message)


def _pattern_problem(text: str) -> str | None:
    start(HOOK_LIMIT)
    try:
        compile_regex(text)
    except EvaluationError as error:
        return str(error)
    return None


def _matches(pattern: str, text: str) -> bool:
    start(HOOK_LIMIT)
    return compile_regex(pattern).search(text) is not None
