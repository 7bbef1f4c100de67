"""JUnit of previews: as GitLab and as others read it."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

from tests.kit import call_command
from tests.preview.kit import CONFIG_MAP, WEB, configure, deny, of, pods

if TYPE_CHECKING:
    from collections.abc import Set
    from pathlib import Path

    from tests.faults.kit import StartWorker

pytestmark = pytest.mark.process


class Element(NamedTuple):
    """What an element of JUnit's XML may have, as systems of continuous integration read it."""

    required: Set[str] = frozenset()
    optional: Set[str] = frozenset()
    children: tuple[str, ...] = ()
    """In this order, any number of each."""


ELEMENTS: Final = {
    "testsuites": Element(children=("testsuite",)),
    "testsuite": Element({"name", "tests"}, {"failures", "errors", "skipped"}, ("testcase",)),
    "testcase": Element(
        {"classname", "name"}, {"file", "line"}, ("skipped", "error", "failure", "system-out")
    ),
    "skipped": Element({"message"}),
    "error": Element({"message"}),
    "failure": Element({"message"}),
    "system-out": Element(),
}


def check(element: ET.Element) -> None:
    """Find what readers would refuse, or would read otherwise, in *element* and below it."""
    allowed = ELEMENTS[element.tag]
    assert allowed.required <= set(element.keys()) <= allowed.required | allowed.optional, element.tag
    order = [allowed.children.index(child.tag) for child in element]
    assert order == sorted(order)
    if element.tag == "testcase":
        # A case has one result.
        assert sum(child.tag != "system-out" for child in element) <= 1
    for child in element:
        check(child)


def junit(folder: Path, *arguments: object, status: int = 1) -> ET.Element:
    file = folder / "preview.xml"
    done = call_command("preview", *arguments, "--junit", file)
    assert done.returncode == status, done.stdout + done.stderr
    found = ET.fromstring(file.read_bytes())
    check(found)
    keys = [(one.get("classname"), one.get("name")) for one in found.iter("testcase")]
    assert len(set(keys)) == len(keys)
    for suite in found:
        assert suite.get("tests") == str(len(suite))
        for tag, count in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
            assert suite.get(count, "0") == str(len(list(suite.iter(tag))))
    return found


def test_each_object_and_each_webhook_that_denies_it_is_a_case(
    tmp_path: Path, start_worker: StartWorker
) -> None:
    denials = [deny("a\x00\n]]> <b>"), pods(deny("b", "spec.containers[0].image"))]
    config = configure(
        tmp_path / "c.yaml",
        start_worker().target,
        validate=[
            *(of(one, "", "pods") for one in denials),
            {"warnings": ["w"]},
            pods({"status": "INTERNAL"}),
        ],
    )
    (tmp_path / "web.yaml").write_text(f"{WEB}---\n{CONFIG_MAP}---\n- 1\n")
    found = junit(tmp_path, tmp_path / "web.yaml", "--config", config, status=2)
    (suite,) = found
    assert suite.get("name") == str(tmp_path / "web.yaml")
    cases = {str(one.get("name")): one for one in suite}
    failed = [name for name, one in cases.items() if len(one) and one[0].tag == "failure"]
    pod = next(name for name in failed if name.endswith("h1.v.test"))
    assert pod.startswith("Pod default/web-")
    assert len(failed) == 2
    assert cases[pod].get("line") == "16"
    assert cases[pod].get("file") == suite.get("name")
    assert str(cases[pod][0].text).startswith(f"{tmp_path / 'web.yaml'}:16:11: error: b")
    assert cases[pod][0].get("message") == cases[pod][0].text
    assert "a\\x00\n]]> <b>" in str(cases[failed[0]][0].text)
    assert [one.tag for one in cases[f"document at line {WEB.count(chr(10)) + 6}"]] == ["error"]
    assert [name for name in cases if name.endswith("h3.v.test")]
    assert [one.tag for one in cases["ConfigMap default/c"]] == ["system-out"]
    assert "Deployment default/web" in cases


def test_denials_with_one_name_are_one_case(tmp_path: Path, start_worker: StartWorker) -> None:
    causes = [{"field": f"data.{name}", "message": name} for name in "ab"]
    config = configure(
        tmp_path / "c.yaml", start_worker().target, validate=[{"deny": {"message": "no", "causes": causes}}]
    )
    (tmp_path / "c.yml").write_text(f"{CONFIG_MAP}---\n{CONFIG_MAP}")
    (case,) = junit(tmp_path, tmp_path / "c.yml", "--config", config).iter("testcase")
    assert len(str(case[0].text).split("\n")) == 4


def test_cases_beyond_the_bound_are_counted(
    tmp_path: Path, start_worker: StartWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.tools.preview.junit.MAX_CASES", 2)
    config = configure(tmp_path / "c.yaml", start_worker().target, validate=[deny(when="x")])
    (tmp_path / "m").mkdir()
    for number in range(8):
        label = ", labels: {x: y}" if number % 2 else ""
        (tmp_path / f"m/{number}.yml").write_text(CONFIG_MAP.replace("c}", f"c{number}{label}}}"))
    found = junit(tmp_path, tmp_path / "m", "--config", config)
    assert len(list(found.iter("failure"))) == 2
    assert found[-1][0].get("name") == "4 further cases"
