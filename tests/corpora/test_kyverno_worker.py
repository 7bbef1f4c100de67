"""Policies of Kyverno's library in its own language decide in Kyverno's worker as the library's tests say.

The library is read from the folder that ``POLICY_CORPORA`` names, and ``KYVERNO_WORKER`` names the program of
``workers/kyverno``. Without both these tests are skipped. They take some minutes: each test there has
a worker of its own.
"""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
import yaml

from gateway.tools.policy_tests.discovery import read_tests
from gateway.tools.policy_tests.run import run_tests

if TYPE_CHECKING:
    from gateway.tools.policy_tests.kyverno_test import KyvernoTest

FOLDER: Final = os.environ.get("POLICY_CORPORA", "")
WORKER: Final = os.environ.get("KYVERNO_WORKER", "")

pytestmark = [
    pytest.mark.skipif(not FOLDER, reason="POLICY_CORPORA does not name the folder of the libraries"),
    pytest.mark.skipif(not WORKER, reason="KYVERNO_WORKER does not name the worker"),
]

AT_LEAST: Final = 1500
"""Cases that pass."""
_OLD: Final = re.compile(r"^kind: (Cluster)?Policy$", re.MULTILINE)
_CEL: Final = re.compile(r"^ +cel:", re.MULTILINE)
EXPECTED: Final = {
    "kubevirt/add-services/.*: .*": "its rules create objects",
    "other/create-default-pdb/.*: .*": "its rule creates objects",
    r"other/memory-requests-equal-limits/.* on hello: pass": (
        "the CronJob is of batch/v1beta1, for which there is no rule: Kyverno passes rows without a result"
    ),
    r"other/require-emptydir-requests-limits/.* on skip-pod: skip": (
        "no element of the object is for the rule, which then has no result: Kyverno passes rows without one"
    ),
}
"""The cases that may not pass, ``FOLDER: CASE`` as regular expressions, each with the reason."""


def _is_old(test: KyvernoTest) -> bool:
    """Whether *test* has policies in Kyverno's own language, and all its files: some of a part may lack."""
    if not all(path.is_file() for path in (*test.policies, *test.resources)):
        return False
    texts = [path.read_text(encoding="utf-8") for path in test.policies]
    return any(_OLD.search(text) and not _CEL.search(text) for text in texts)


@pytest.mark.timeout(1800)
def test_each_row_decides_as_the_library_says(tmp_path: Path) -> None:
    version = {"apiVersion": "admission-gateway.io/v1alpha1"}
    documents = [
        {
            **version,
            "kind": "GatewayConfiguration",
            "policies": {"engines": {"kyverno": {"pool": "kyverno"}}},
        },
        {**version, "kind": "WorkerPool", "metadata": {"name": "kyverno"}, "spec": {"command": [WORKER]}},
    ]
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump_all(documents))
    folder = Path(FOLDER) / "kyverno-policies"
    tests = read_tests([folder], [])
    tests.kyverno = [one for one in tests.kyverno if _is_old(one)]
    tests.gatekeeper, tests.suites = [], []
    results = asyncio.run(run_tests(tests, [], [config]))
    unexpected = {}
    for one in results:
        name = f"{one.file.parent.relative_to(folder)}: {one.name}"
        if one.status != "passed" and not any(re.fullmatch(each, name) for each in EXPECTED):
            unexpected[name] = one.not_supported or one.problems
    assert not unexpected
    assert sum(one.status == "passed" for one in results) >= AT_LEAST
