"""The chart's files that are made from others, and its rights. ``tests/e2e/test_chart.py`` renders it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from deploy.chart_values import CHART, SCHEMA, SET_BY_THE_CHART, VALUES, Value, leaves, outputs, read_values
from deploy.monitoring import ROOT
from gateway import __version__
from gateway.config.merge.custom_resource import PLURALS
from gateway.server.rollout.store import PLURALS as OF_PLANS
from tests.docs.pages import DOCS, rows, section

if TYPE_CHECKING:
    from pathlib import Path

DOCUMENT = yaml.safe_load((CHART / "Chart.yaml").read_text())
PAGE = (DOCS / "configuration.md").read_text()
TEMPLATES = {file: file.read_text() for file in sorted((CHART / "templates").iterdir())}
SCENARIOS = sorted((CHART / "ci").iterdir())


def values() -> tuple[Value, ...]:
    return read_values(VALUES.read_text())


@pytest.mark.parametrize("file", outputs(), ids=lambda file: str(file.relative_to(ROOT)))
def test_the_file_is_up_to_date_with_its_sources(file: Path) -> None:
    assert file.read_text() == outputs()[file], "run: make manifests"


def test_every_value_is_described() -> None:
    assert [value.path for value in leaves(values()) if not value.description] == []


def test_a_mapping_without_comments_is_one_value() -> None:
    text = "# A\na:\n  # B\n  # and more\n  b: 1\n# C\nc:\n  d: {e: 2}\n"
    group, single = read_values(text)
    assert group == Value("a", {"b": 1}, "A", (Value("a.b", 1, "B and more"),))
    assert single == Value("c", {"d": {"e": 2}}, "C")


def test_every_mapping_of_the_chart_s_own_refuses_unknown_values() -> None:
    schema = json.loads(SCHEMA.read_text())

    def check(path: str, value: Value, found: dict[str, Any]) -> None:
        if value.group:
            assert found["additionalProperties"] is (path == "global")
            assert set(found["properties"]) == {one.path.rpartition(".")[2] for one in value.group}
            for one in value.group:
                check(one.path, one, found["properties"][one.path.rpartition(".")[2]])

    assert schema["additionalProperties"] is False
    assert set(schema["properties"]) == {one.path for one in values()} | {"enabled"}
    for one in values():
        check(one.path, one, schema["properties"][one.path])


def test_the_templates_use_every_value_and_no_other() -> None:
    text = "".join(TEMPLATES.values())
    names = {value.path.partition(".")[0] for value in values()}
    used = set(re.findall(r"\.Values\.(\w+)", text)) | {"startupProbe", "readinessProbe", "livenessProbe"}
    assert used == names
    last = {value.path.rpartition(".")[2] for value in leaves(values())}
    assert [name for name in last if not re.search(rf"\b{name}\b", text)] == []


def test_no_template_reads_the_cluster_or_makes_something_at_random() -> None:
    names = "lookup|rand[A-Z]\\w+|uuidv4|now|gen[A-Z]\\w+|derivePassword|htpasswd|bcrypt|env|getHostByName"
    forbidden = rf"(?<![.$])\b({names})\b"
    for file, text in TEMPLATES.items():
        for action in re.findall(r"{{.*?}}", text, re.DOTALL):
            code = re.sub(r"/\*.*?\*/|\"(?:\\.|[^\"\\])*\"", "", action, flags=re.DOTALL)
            assert not re.search(forbidden, code), (file.name, action)


def test_the_chart_is_that_of_this_version() -> None:
    assert DOCUMENT["version"] == DOCUMENT["appVersion"] == __version__
    annotated = yaml.safe_load(DOCUMENT["annotations"]["artifacthub.io/crds"])
    assert {(one["kind"], one["name"].partition(".")[0]) for one in annotated} == set(
        {**PLURALS, **OF_PLANS}.items()
    )


def test_every_scenario_says_what_it_is_for() -> None:
    assert len(SCENARIOS) >= 8
    for file in SCENARIOS:
        assert file.name.endswith("-values.yaml")
        assert file.read_text().startswith("# ")


def test_the_schema_of_the_configuration_has_the_types_of_the_documentation() -> None:
    def kind(path: str) -> Any:
        found = json.loads(SCHEMA.read_text())["properties"]["configuration"]
        for step in path.split("."):
            found = found["properties"][step.removesuffix("[]")]
            found = found["items"] if step.endswith("[]") else found
        return found.get("type", found.get("enum"))

    found = {path: type_ for path, type_, _, _ in rows(section(PAGE, "GatewayConfiguration"), 4)}
    for name, type_ in found.items():
        path = name.strip("`")
        if SET_BY_THE_CHART.match(path):
            continue
        word = type_.split()[0].rstrip(",")
        known = {"list": "array", "map": "object", "mapping": "object"}
        expected = known.get(word, word if word in {"integer", "number", "boolean"} else None)
        if expected:
            assert kind(path) == expected, path
        else:
            assert kind(path) == "string" or isinstance(kind(path), list), path
