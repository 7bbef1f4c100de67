"""The operator's page about workers of other engines. Its commands for a cluster run in tests/e2e."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import fastjsonschema
import pytest
import yaml

from tests.config.documents import load_documents, problems_of
from tests.docs.pages import DOCS, ROOT, rows, section
from tests.languages.toolchains import missing, named

if TYPE_CHECKING:
    from pathlib import Path

Json = dict[str, Any]
PAGE = (DOCS / "engines.md").read_text()
EXAMPLES = [list(yaml.safe_load_all(text)) for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]
GET = re.findall(r"^cd (workers/\w+)\ngo get (\S+)@(\S+)$", PAGE, re.MULTILINE)


def test_the_chart_accepts_the_values() -> None:
    schema = json.loads((ROOT / "deploy/chart/values.schema.json").read_text())
    validate = fastjsonschema.compile(schema, use_default=False)
    found = [documents[0] for documents in EXAMPLES if "engines" in documents[0]]
    assert len(found) >= 2
    for values in found:
        validate(values)


def test_the_example_without_the_chart_is_a_configuration() -> None:
    (documents,) = (each for each in EXAMPLES if len(each) == 2)
    config = load_documents(*documents)
    assert list(config.pools) == ["gatekeeper"]


def test_the_metrics_exist() -> None:
    documented = (DOCS / "metrics.md").read_text() + (ROOT / "workers" / "README.md").read_text()
    found = list(rows(section(PAGE, "Watch"), 3))
    assert len(found) == 7
    for name, _, _ in found:
        assert f"| {name} |" in documented, name


@pytest.mark.slow
@pytest.mark.parametrize(("folder", "module", "version"), GET)
def test_the_command_for_a_new_version_is_of_the_present_one(
    folder: str, module: str, version: str, tmp_path: Path
) -> None:
    if lacks := missing(named(folder.removeprefix("workers/"))):
        pytest.skip(lacks)
    for name in ("workers/go", "workers/engines", folder):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("target"))
    for command in (["go", "get", f"{module}@{version}"], ["go", "mod", "tidy"]):
        done = subprocess.run(
            command,
            cwd=tmp_path / folder,
            env={**os.environ, "GOFLAGS": "-mod=mod"},
            capture_output=True,
            text=True,
            check=False,
        )
        if "lookup disabled" in done.stderr or "dial tcp" in done.stderr:
            pytest.skip("the Go module proxy is not reached")
        assert done.returncode == 0, done.stderr
    assert (tmp_path / folder / "go.mod").read_text() == (ROOT / folder / "go.mod").read_text()


def rule(**action: Json) -> Json:
    match = {"any": [{"resources": {"kinds": ["Pod"]}}]}
    spec = {"rules": [{"name": "a", "match": match, **action}]}
    return {"apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": {"name": "a"}, "spec": spec}


def of_kind(version: str, kind: str) -> Json:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "a"}, "spec": {}}


REFUSED: dict[str, list[Json]] = {
    "`generate` of Kyverno's rules, GeneratingPolicy": [
        rule(generate={"kind": "Secret"}),
        of_kind("policies.kyverno.io/v1", "GeneratingPolicy"),
    ],
    "CleanupPolicy, ClusterCleanupPolicy, DeletingPolicy": [
        of_kind("kyverno.io/v2", "CleanupPolicy"),
        of_kind("kyverno.io/v2", "ClusterCleanupPolicy"),
        of_kind("policies.kyverno.io/v1", "DeletingPolicy"),
    ],
    "`verifyImages` of Kyverno's rules": [rule(verifyImages={"a": "b"})],
    "`mutate.targets` of Kyverno's rules": [rule(mutate={"targets": []})],
    "ImageValidatingPolicy": [of_kind("policies.kyverno.io/v1", "ImageValidatingPolicy")],
}


def test_what_is_refused_is_refused_with_what_to_use_instead() -> None:
    lines = [line.strip("|").split("|") for line in section(PAGE, "What is refused").splitlines()]
    table = {cells[0].strip(): cells[1].strip() for cells in lines if len(cells) == 2}
    table = {what: instead for what, instead in table.items() if what not in ("what", "---")}
    assert table.keys() - {""} == REFUSED.keys()
    for what, documents in REFUSED.items():
        plain = re.sub(r"\[(.*?)\]\(.*?\)", r"\1", table[what])
        for document in documents:
            messages = " ".join(message for _, message in problems_of(document))
            words = re.findall(r"controller|CronJob|verifies images|HTTPS webhook|worker", plain)
            assert words
            assert all(word in messages for word in words), (what, messages)
