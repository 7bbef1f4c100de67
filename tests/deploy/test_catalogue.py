"""The catalogue of ready-made policies: its pages, and the command that prints configurations."""

from __future__ import annotations

import inspect
import json
import re
import sys
from typing import TYPE_CHECKING

import fastjsonschema
import pytest
import yaml

from admission_gateway_worker.policies import definitions
from admission_gateway_worker.policies.definition import TOPICS
from deploy import catalogue
from gateway.tools.cli import main

if TYPE_CHECKING:
    from pathlib import Path

    from admission_gateway_worker.policies.definition import Definition

DEFINITIONS = definitions()
each_policy = pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda each: each.name)


def command(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int | str | None, str, str]:
    """Return exit status, standard output and standard error of a command."""
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    return stopped.value.code, *capsys.readouterr()


def test_the_pages_are_those_of_the_definitions() -> None:
    outputs = catalogue.outputs()
    assert {path.name for path in catalogue.PAGES.glob("*.md")} == {path.name for path in outputs}
    for path, content in outputs.items():
        assert path.read_text() == content, f"make catalogue writes another {path.name}"


def test_every_policy_has_a_measured_cost_and_every_topic_a_policy() -> None:
    assert catalogue.read_costs().keys() >= {each.name for each in DEFINITIONS}
    assert {each.topic for each in DEFINITIONS} == set(TOPICS)


@each_policy
def test_a_definition_is_complete(definition: Definition) -> None:
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", definition.name)
    assert definition.summary.endswith(".")
    assert definition.users_see
    assert definition.rights or not definition.needs_cluster
    assert definition.topic in TOPICS
    names = [(each.engine, each.name) for each in definition.replaces]
    assert len(names) == len(set(names)) > 0
    for name, field in (definition.parameters.get("properties") or {}).items():
        assert field.get("description"), f"{name} has no description"


@each_policy
def test_the_example_matches_the_schema(definition: Definition) -> None:
    fastjsonschema.validate(dict(definition.parameters), dict(definition.example), use_default=False)
    definition.prepare(dict(definition.example))


@each_policy
def test_the_printed_configuration_is_valid(
    definition: Definition, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    status, printed, _ = command(capsys, "policies", "show", definition.name)
    assert status == 0
    file = tmp_path / "policy.yaml"
    file.write_text(printed)
    assert command(capsys, "check", "--config", str(file))[0] == 0


@each_policy
def test_comments_of_the_printed_configuration_say_what_the_policy_needs(
    definition: Definition, capsys: pytest.CaptureFixture[str]
) -> None:
    _, printed, _ = command(capsys, "policies", "show", definition.name)
    comments = "".join(line[1:] for line in printed.splitlines() if line.startswith("#"))
    module = sys.modules[definition.function.__module__]
    uses_namespace = re.search(r"namespace_object|annotations_of_namespace", inspect.getsource(module))
    assert ("Needs the Namespaces of requests: " in comments) == bool(uses_namespace)
    assert ("access of the worker to the API server" in comments) == bool(definition.rights)
    assert definition.rights in comments


def test_the_list_names_all_policies(capsys: pytest.CaptureFixture[str]) -> None:
    status, text, _ = command(capsys, "policies")
    assert status == 0
    listed = [line.split()[0] for line in text.splitlines() if line.startswith("  ")]
    assert listed == [each.name for topic in TOPICS for each in DEFINITIONS if each.topic == topic]
    _, text, _ = command(capsys, "policies", "--json")
    assert [each["name"] for each in json.loads(text)] == [each.name for each in DEFINITIONS]


def test_several_policies_share_a_pool(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    names = [each.name for each in DEFINITIONS]
    status, printed, _ = command(capsys, "policies", "show", *names, names[0])
    assert status == 0
    kinds = [each["kind"] for each in yaml.safe_load_all(printed)]
    assert kinds.count("WorkerPool") == 1
    assert len(kinds) == 1 + len(names)
    file = tmp_path / "policies.yaml"
    file.write_text(printed)
    assert command(capsys, "check", "--config", str(file))[0] == 0


def test_an_unknown_policy_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    status, printed, error = command(capsys, "policies", "show", "pod-security", "nope")
    message = 'admission-gateway: there is no policy "nope"; "admission-gateway policies" lists them\n'
    assert (status, printed, error) == (1, "", message)
