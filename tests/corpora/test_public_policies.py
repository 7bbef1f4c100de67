"""Public policies of other engines decide as their libraries' own tests say.

The libraries are read from the folder that the environment variable ``POLICY_CORPORA`` names, which has
``kyverno-policies`` (github.com/kyverno/policies) and ``gatekeeper-library``
(github.com/open-policy-agent/gatekeeper-library). Without it these tests are skipped.
"""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from gateway.tools.policy_tests.discovery import read_tests
from gateway.tools.policy_tests.run import run_tests

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gateway.tools.policy_tests.results import CaseResult

FOLDER: Final = os.environ.get("POLICY_CORPORA", "")

pytestmark = pytest.mark.skipif(not FOLDER, reason="POLICY_CORPORA does not name the folder of the libraries")

KINDS: Final = {
    "kyverno-policies": {
        "ValidatingPolicy": (r"^kind: (Namespaced)?ValidatingPolicy$", 900),
        "MutatingPolicy": (r"^kind: (Namespaced)?MutatingPolicy$", 50),
        "validate.cel": (r"^ +cel:", 1000),
    },
    "gatekeeper-library": {"K8sNativeValidation": (r"engine: K8sNativeValidation$", 5)},
}
"""By folder and kind: what the files of policies have, and how many cases there are at least."""
EXPECTED: Final[dict[str, str]] = {}
"""The cases that do not pass, ``FOLDER: CASE`` as regular expressions, each with the reason."""


def results(folder: str, pattern: str) -> list[CaseResult]:
    """Run the tests in *folder* of the libraries with files of policies in which *pattern* is found."""
    tests = read_tests([Path(FOLDER) / folder], [])

    def has_kind(paths: Iterable[Path]) -> bool:
        texts = (path.read_text(encoding="utf-8") for path in paths if path.is_file())
        return any(re.search(pattern, text, re.MULTILINE) for text in texts)

    tests.kyverno = [
        one
        for one in tests.kyverno
        # Of a part of a library, objects may be missing.
        if has_kind(one.policies) and any(path.is_file() for path in one.resources)
    ]
    tests.gatekeeper = [one for one in tests.gatekeeper if has_kind(test.template for test in one.tests)]
    return asyncio.run(run_tests(tests, []))


def test_each_case_decides_as_its_library_says() -> None:
    used: set[str] = set()
    unexpected: dict[str, object] = {}
    for folder, kinds in KINDS.items():
        for kind, (pattern, at_least) in kinds.items():
            found = results(folder, pattern)
            assert sum(one.status == "passed" for one in found) >= at_least, kind
            for one in found:
                name = f"{one.file.parent.relative_to(FOLDER)}: {one.name}"
                if one.status != "passed":
                    known = {each for each in EXPECTED if re.fullmatch(each, name)}
                    used |= known
                    unexpected |= {} if known else {name: one.not_supported or one.problems}
    assert not unexpected
    assert used == {*EXPECTED}, "these pass"
