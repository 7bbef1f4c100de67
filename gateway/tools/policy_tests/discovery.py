"""Finds the files with test cases: PolicyTests of the gateway, tests of Kyverno, suites of Gatekeeper."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from gateway.base.errors import ConfigError, Problem
from gateway.base.files import SUFFIXES, UnusableFileError, read_file
from gateway.config.yaml.documents import POLICY_TEST, not_utf_8, read_documents, unreadable
from gateway.tools.policy_tests.gatekeeper_suite import is_gatekeeper_suite, read_gatekeeper_suite
from gateway.tools.policy_tests.kyverno_test import is_kyverno_test, read_kyverno_test
from gateway.tools.policy_tests.suite import read_suite

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from gateway.config.yaml.documents import Document
    from gateway.tools.policy_tests.gatekeeper_suite import GatekeeperSuite
    from gateway.tools.policy_tests.kyverno_test import KyvernoTest
    from gateway.tools.policy_tests.suite import Suite

KYVERNO_FILE: Final = "kyverno-test.yaml"
"""The name by which ``kyverno test`` finds its files in folders."""
_SUITE_GROUP: Final = b"test.gatekeeper.sh/"


@dataclass(slots=True)
class FoundTests:
    """The tests of all formats, in the order of their files."""

    suites: list[Suite] = field(default_factory=list)
    kyverno: list[KyvernoTest] = field(default_factory=list)
    gatekeeper: list[GatekeeperSuite] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)
    """The files, in their order."""
    warnings: list[Problem] = field(default_factory=list)

    def named_files(self) -> Iterator[Path]:
        """Yield the files and folders that the tests name, whose change can change the results."""
        for suite in self.suites:
            yield from (*suite.config, *suite.objects.files)
            yield from (file for case in suite.cases for file in case.objects.files)
        for test in self.kyverno:
            yield from (
                *test.policies,
                *test.resources,
                *test.exceptions,
                *test.param_resources,
                *((test.context,) if test.context is not None else ()),
                *test.cluster_resources,
                *(file for entry in test.entries for file in entry.files),
                *test.others,
            )
            yield from (test.file.parent / row.patched for row in test.rows if row.patched)
        for gatekeeper in self.gatekeeper:
            for one in gatekeeper.tests:
                yield from (one.template, one.constraint)
                if one.expansion is not None:
                    yield one.expansion
                yield from (file for case in one.cases for file in (case.object, *case.inventory))


def read_tests(
    paths: Sequence[Path], config: Sequence[Path], default_config: Sequence[Path] = ()
) -> FoundTests:
    """Return the tests in the files *paths*, and in folders among them with their subfolders, by file name.

    Documents of other kinds are left out. *config* replaces the configuration that PolicyTests name;
    *default_config* is that of those that name none.

    Raises:
        ConfigError: all problems of all tests, or there is no test.
    """
    problems: list[Problem] = []
    found = FoundTests()
    for file in dict.fromkeys(one for path in paths for one in _files(path)):
        number = 0
        for document in _documents(file, is_named=file in paths):
            if not _read(document, number, (config, default_config), found):
                continue
            number += 1
            problems += document.problems.errors()
            found.warnings += document.problems.warnings()
        if number:
            found.files.append(file)
    if not found.files:
        shown_paths = ", ".join(map(str, paths))
        message = f"found no document of the kind {POLICY_TEST}, no {KYVERNO_FILE} and no suite of Gatekeeper"
        problems.append(Problem("", "", f"{message} in {shown_paths}"))
    if problems:
        raise ConfigError(problems)
    return found


def _read(
    document: Document, number: int, configs: tuple[Sequence[Path], Sequence[Path]], found: FoundTests
) -> bool:
    """Read *document*, the test *number* of its file; return whether it is one, or has problems."""
    if document.content is None:
        return bool(document.problems.found)
    if document.content.get("kind") == POLICY_TEST:
        found.suites.append(read_suite(document, number, *map(tuple, configs)))
    elif is_kyverno_test(document.content):
        found.kyverno.append(read_kyverno_test(document, number))
    elif is_gatekeeper_suite(document.content):
        found.gatekeeper.append(read_gatekeeper_suite(document, number))
    elif document.file.name == KYVERNO_FILE and "kind" not in document.content:
        message = "is required, expected Test, with the apiVersion cli.kyverno.io/v1alpha1"
        document.problems.add("kind", message)
    else:
        return False
    return True


def _files(path: Path) -> Iterator[Path]:
    if path.is_dir():
        yield from sorted(one for one in path.rglob("*") if one.suffix in SUFFIXES and one.is_file())
    else:
        yield path


def _documents(file: Path, *, is_named: bool) -> Iterable[Document]:
    """Return the documents of *file*; none of one that is found in a folder and has no test."""
    try:
        content = read_file(file)
        has_test = POLICY_TEST.encode() in content or _SUITE_GROUP in content
        if not is_named and not has_test and file.name != KYVERNO_FILE:
            return ()
        return list(read_documents(file, content.decode("utf-8-sig")))
    except UnusableFileError as error:
        return [unreadable(file, str(error))]
    except UnicodeDecodeError as error:
        return [not_utf_8(file, error)]
