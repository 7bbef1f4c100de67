"""Files of new projects, and the names that they accept."""

from __future__ import annotations

import functools
import json
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import fastjsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from deploy.artifacts import sources
from gateway import __version__
from gateway.base.errors import GatewayError
from gateway.config.merge.load import load
from gateway.tools.scaffold import project
from gateway.tools.scaffold.languages import ALIASES, LANGUAGES, Language
from tests.kit import ROOT, load_yaml

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

EVERY = pytest.mark.parametrize("language", LANGUAGES.values(), ids=LANGUAGES)
NAMES = st.from_regex(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True)
CHART_SCHEMA = json.loads((ROOT / "deploy" / "chart" / "values.schema.json").read_text())
WORDS_OF_YAML = ("null", "true", "false", "yes", "no", "on", "off", "y", "n")


@functools.cache
def chart_validator() -> Callable[[object], object]:
    validator: Callable[[object], object] = fastjsonschema.compile(CHART_SCHEMA, use_default=False)
    return validator


def rendered(language: Language, name: str, sdk: Mapping[str, bytes] | None = None) -> dict[str, str]:
    """Return the text of every file of a project, without those of *sdk*."""
    files = project.render(language, name, sdk or {})
    return {path: content.decode() for path, content in files.items() if not path.startswith("sdk/")}


def parsed(files: Mapping[str, str]) -> dict[str, Any]:
    """Parse every file whose format the standard library or PyYAML reads."""
    found: dict[str, Any] = {}
    for path, text in files.items():
        match Path(path).suffix:
            case ".json":
                found[path] = json.loads(text)
            case ".toml":
                found[path] = tomllib.loads(text)
            case ".xml":
                found[path] = ElementTree.fromstring(text)
            case ".yaml":
                found[path] = list(load_yaml(text))
    return found


@EVERY
def test_a_project_has_policy_test_image_configuration_and_steps(language: Language) -> None:
    files = rendered(language, "my-policies")
    common = {".dockerignore", ".gitignore", "Dockerfile", "README.md", "gateway.yaml", "tests/pods.yaml"}
    assert common < files.keys()
    assert "require-team-label" in files[language.policy]
    for line in language.lines("my-policies", has_sdk=False):
        assert f"\n{line}\n" in files["README.md"]
    for path, text in files.items():
        assert text.endswith("\n"), path
        assert not re.search(r"\bNAME\b|\bSDK/|\bVERSION\b|\{\{|\{%| \n", text), path


@EVERY
def test_a_project_has_a_copy_of_the_sdk_or_uses_the_released_one(language: Language) -> None:
    released = rendered(language, "a")
    assert any(__version__ in text for text in released.values())
    assert not [path for path, text in released.items() if "sdk" in text]
    sdk = project.sdk_files(language, ROOT)
    folder = f"sdk/workers/{language.name}"
    files = project.render(language, "a", sdk)
    assert files["sdk/LICENSE"] == (ROOT / "LICENSE").read_bytes()
    assert {path for path in files if path.startswith("sdk/")} == {f"sdk/{path}" for path in sdk}
    copied = rendered(language, "a", sdk)
    assert "`sdk/` is a copy of the SDK" in copied["README.md"]
    assert "COPY sdk sdk/\n" in copied["Dockerfile"]
    # Maven finds it where it was installed.
    named = {path for path, text in copied.items() if folder in text} - {"README.md", "Dockerfile"}
    assert bool(named) is (language.name != "java")


@EVERY
def test_a_copy_of_the_sdk_has_no_tests_and_nothing_that_was_built(language: Language) -> None:
    tracked = {path.relative_to(ROOT).as_posix() for path in sources()}
    copied = project.sdk_files(language, ROOT)
    assert copied.keys() <= tracked
    assert sum(map(len, copied.values())) < 1_500_000
    assert not [path for path in copied if re.search(r"_test\.|/tests?/|Test\.java", path)]


def test_a_folder_that_is_no_clone_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GatewayError, match="has no workers/go; expected a clone of the gateway's repository"):
        project.sdk_files(LANGUAGES["go"], tmp_path)


@EVERY
@given(name=st.one_of(NAMES, st.sampled_from(WORDS_OF_YAML)))
def test_every_accepted_name_gives_files_that_can_be_read(language: Language, name: str) -> None:
    if project.name_problem(name, language):
        return
    found = parsed(rendered(language, name))
    pool, webhooks = found["gateway.yaml"]
    assert pool["metadata"]["name"] == webhooks["metadata"]["name"] == name
    assert all(isinstance(word, str) for word in pool["spec"]["command"])
    assert webhooks["webhooks"][0]["clientConfig"]["worker"]["pool"] == name


@EVERY
@pytest.mark.parametrize("name", ["a", "null", "x" * 63])
def test_the_gateway_accepts_the_configuration(tmp_path: Path, language: Language, name: str) -> None:
    project.write(tmp_path / name, project.render(language, name, {}))
    config = load([tmp_path / name / "gateway.yaml"])
    assert [webhook.name for webhook in config.validating] == [f"require-team-label.{name}.example.com"]


@EVERY
def test_the_values_for_the_chart_have_the_same_webhooks(language: Language) -> None:
    files = rendered(language, "on")
    (block,) = re.findall(r"^```yaml\n(.*?)^```$", files["README.md"], re.MULTILINE | re.DOTALL)
    values = yaml.safe_load(block)
    chart_validator()(values)
    _, document = load_yaml(files["gateway.yaml"])
    assert values["validatingWebhookConfigurations"] == {"on": document["webhooks"]}
    assert values["workers"]["on"]["image"]["repository"] == "on"


@given(st.text())
def test_a_name_is_accepted_only_if_it_is_a_label_that_begins_with_a_letter(name: str) -> None:
    accepted = project.name_problem(name, LANGUAGES["go"]) is None
    assert not accepted or re.fullmatch(r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?", name)


@pytest.mark.parametrize(
    ("language", "name", "part"),
    [
        ("python", "", 'found "", expected a name of at most 63'),
        ("python", "x" * 64, "expected a name of at most 63"),
        ("go", "My_Policies", 'found "My_Policies", expected a name of at most 63 lower-case letters'),
        ("go", "1st", "with a letter first"),
        ("go", "../x", "expected a name of"),
        ("go", "a\n\x1b[31mb", r'found "a\n\u001b[31mb", expected'),
        ("rust", "deps", 'found the string "deps", which the tools of Rust reserve'),
        ("typescript", "admission-gateway-worker", "which is a name of the gateway"),
    ],
)
def test_a_name_that_cannot_be_used_is_refused(language: str, name: str, part: str) -> None:
    problem = project.name_problem(name, LANGUAGES[language])
    assert problem
    assert part in problem


def test_a_name_that_only_another_language_reserves_is_accepted() -> None:
    assert project.name_problem("deps", LANGUAGES["go"]) is None


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("pyton", '; did you mean "python"?'),
        ("Rust", '; did you mean "rust"?'),
        ("golang", '; did you mean "go"?'),
        ("TS", '; did you mean "typescript"?'),
        ("cobol", ""),
        ("", ""),
    ],
)
def test_an_unknown_language_is_refused_with_what_was_probably_meant(name: str, hint: str) -> None:
    expected = f'found the string "{name}", expected python, go, typescript, rust or java{hint}'
    assert project.language_problem(name) == expected


def test_every_alias_is_of_a_language_and_is_none_itself() -> None:
    assert set(ALIASES.values()) <= LANGUAGES.keys()
    assert not ALIASES.keys() & LANGUAGES.keys()


FILES = {"a.txt": b"1\n", "b/c.txt": b"2\n"}


def tree(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def test_all_files_are_written_into_a_new_or_an_empty_folder(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("new", "empty"):
        project.write(tmp_path / name, FILES)
        assert tree(tmp_path / name) == FILES
    assert {path.name for path in tmp_path.iterdir()} == {"new", "empty"}


@pytest.mark.parametrize("kind", ["folder", "file", "link", "dangling link"])
def test_nothing_that_exists_is_replaced(tmp_path: Path, kind: str) -> None:
    taken = tmp_path / "p"
    match kind:
        case "folder":
            taken.mkdir()
            (taken / "notes").write_text("mine")
        case "file":
            taken.write_text("mine")
        case "link":
            (tmp_path / "other").mkdir()
            taken.symlink_to(tmp_path / "other")
        case _:
            taken.symlink_to(tmp_path / "nothing")
    before = tree(tmp_path)
    with pytest.raises(GatewayError, match=r"p exists and is (not empty|not a folder); expected a name"):
        project.write(taken, FILES)
    assert tree(tmp_path) == before
    assert not list(tmp_path.glob(".new-*"))


def test_a_folder_that_cannot_be_written_is_reported_and_nothing_is_left(tmp_path: Path) -> None:
    with pytest.raises(GatewayError, match="no-such-folder/p cannot be written: No such file"):
        project.write(tmp_path / "no-such-folder" / "p", FILES)
    with pytest.raises(GatewayError, match="cannot be written: File name too long"):
        project.write(tmp_path / "p", {"x" * 300: b""})
    assert list(tmp_path.iterdir()) == []
