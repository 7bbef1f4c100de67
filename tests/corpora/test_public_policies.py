"""Public policies of other engines decide as their libraries' own tests say.

The libraries are read from the folder that the environment variable ``POLICY_CORPORA`` names, which has
``kyverno-policies`` (github.com/kyverno/policies) and ``gatekeeper-library``
(github.com/open-policy-agent/gatekeeper-library). Without it these tests are skipped.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from gateway.tools.policy_tests.discovery import read_tests
from gateway.tools.policy_tests.run import run_tests

if TYPE_CHECKING:
    from gateway.tools.policy_tests.results import CaseResult

FOLDER: Final = os.environ.get("POLICY_CORPORA", "")

pytestmark = pytest.mark.skipif(not FOLDER, reason="POLICY_CORPORA does not name the folder of the libraries")

EXPECTED: Final[dict[str, str]] = {}
"""The cases that do not pass, each with the reason: ``FOLDER: CASE`` as regular expressions."""


def results(folder: str, kinds: str) -> list[CaseResult]:
    """Run the tests in *folder* of the libraries whose policies are documents of *kinds*, an expression."""
    tests = read_tests([Path(FOLDER) / folder], [])
    pattern = re.compile(kinds, re.MULTILINE)

    def has_kind(paths: tuple[Path, ...]) -> bool:
        return any(pattern.search(path.read_text(encoding="utf-8")) for path in paths if path.is_file())

    tests.suites = []
    tests.kyverno = [one for one in tests.kyverno if has_kind(one.policies)]
    tests.gatekeeper = [
        one for one in tests.gatekeeper if has_kind(tuple(test.template for test in one.tests))
    ]
    return asyncio.run(run_tests(tests, []))


@pytest.mark.parametrize(
    ("folder", "kinds", "at_least"),
    [
        ("kyverno-policies", r"^kind: (Namespaced)?ValidatingPolicy$", 900),
        ("gatekeeper-library", r"engine: K8sNativeValidation", 5),
    ],
)
def test_each_case_decides_as_its_library_says(folder: str, kinds: str, at_least: int) -> None:
    found = results(folder, kinds)
    wrong = {
        f"{one.file.parent.relative_to(FOLDER)}: {one.name}": one.not_supported or " ".join(one.problems)
        for one in found
        if one.status != "passed"
    }
    unexpected = {
        name: why for name, why in wrong.items() if not any(re.fullmatch(each, name) for each in EXPECTED)
    }
    count = Counter(one.status for one in found)
    assert not unexpected, f"{count}: {unexpected}"
    assert count["passed"] >= at_least
