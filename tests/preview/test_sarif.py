"""SARIF of previews: what code scanning must have of a file, and what it would misread."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import jsonschema_rs
import pytest

from gateway.config.merge.load import load
from gateway.tools.forecast.findings import RULES
from gateway.tools.preview.manifests import Place, Unreadable
from gateway.tools.preview.report import Totals
from gateway.tools.preview.sarif import SarifOutput
from tests.kit import ROOT, call_command
from tests.preview.kit import CONFIG_MAP, WEB, configure, deny, of, pods
from tests.preview.sarif_schema import SCHEMA

if TYPE_CHECKING:
    from pathlib import Path

    from tests.faults.kit import StartWorker

pytestmark = pytest.mark.process


_VALIDATOR: Final = jsonschema_rs.validator_for(SCHEMA, validate_formats=True)


def sarif(folder: Path, *arguments: object, status: int = 1, stdin: str | None = None) -> dict[str, Any]:
    """Run the command with ``--sarif``, and return the run in the file, which has all that it must have."""
    file = folder / "preview.sarif"
    done = call_command(
        "preview", *arguments, "--sarif", file, stdin=None if stdin is None else stdin.encode()
    )
    assert done.returncode == status, done.stdout + done.stderr
    document = json.loads(file.read_bytes())
    assert document["$schema"]
    _VALIDATOR.validate(document)
    (run,) = document["runs"]
    check(run)
    found: dict[str, Any] = run
    return found


def check(run: dict[str, Any]) -> None:
    driver = run["tool"]["driver"]
    assert driver["name"]
    assert run["columnKind"] == "unicodeCodePoints"
    ids = [rule["id"] for rule in driver["rules"]]
    assert len(set(ids)) == len(ids)
    for rule in driver["rules"]:
        for text in (rule["shortDescription"], rule["fullDescription"], rule["help"]):
            assert 0 < len(text["text"]) <= 1024
    assert len(run["results"]) <= 5000
    for result in run["results"]:
        assert ids[result["ruleIndex"]] == result["ruleId"]
        assert result["level"] in ("error", "warning", "note")
        assert result["message"]["text"]
        assert result["partialFingerprints"]["primaryLocationLineHash"]
        (location,) = result["locations"]
        uri = location["physicalLocation"]["artifactLocation"]["uri"]
        assert uri
        assert not uri.startswith(("./", "file:"))
        region = location["physicalLocation"]["region"]
        assert set(region) == {"startLine", "startColumn", "endColumn"}
        assert region["startLine"] >= 1
        assert region["endColumn"] > region["startColumn"] >= 1


def fingerprints(run: dict[str, Any]) -> list[str]:
    return [one["partialFingerprints"]["primaryLocationLineHash"] for one in run["results"]]


def test_rules_are_all_webhooks_and_a_clean_run_has_no_results(
    tmp_path: Path, start_worker: StartWorker
) -> None:
    config = configure(
        tmp_path / "c.yaml", start_worker().target, mutate=[{"label": "x"}], validate=[pods(deny()), {}]
    )
    run = sarif(tmp_path, "-", "--config", config, status=0, stdin=CONFIG_MAP)
    assert run["results"] == []
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == [
        "m/h0.m.test",
        "v/h0.v.test",
        "v/h1.v.test",
        "webhook-failure",
        "mutation-not-stable",
        "mutation-conflict",
        "unreadable-manifest",
        "kubernetes-validation",
        *("LimitRanger", "Priority", "RuntimeClass", "ServiceAccount"),
    ]


def test_a_result_is_where_the_field_is_and_its_fingerprint_survives_moved_lines(
    tmp_path: Path, start_worker: StartWorker
) -> None:
    config = configure(
        tmp_path / "c.yaml",
        start_worker().target,
        validate=[pods(deny("see [here](https://a.example) @team\x1b[1m", "spec.containers[0].image"))],
    )
    folder = tmp_path / "a folder"
    folder.mkdir()
    (folder / "web.yaml").write_text(WEB)
    before = sarif(tmp_path, folder, "--config", config)
    (result,) = before["results"]
    assert result["message"]["text"].startswith(
        "see \\[here\\](https://a.example) @team\\\\x1b\\[1m\nPod default/web-"
    )
    location = result["locations"][0]["physicalLocation"]
    assert location["region"] == {"startLine": 16, "startColumn": 11, "endColumn": 16}
    (folder / "web.yaml").write_text(
        f"# x\n\n{WEB.replace('replicas: 2', 'replicas: 7').replace('nginx', 'caddy')}"
    )
    assert fingerprints(sarif(tmp_path, folder, "--config", config)) == fingerprints(before)


def test_files_are_named_from_the_present_folder_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a folder").mkdir()
    (tmp_path / "a folder/é.yaml").touch()
    (tmp_path / "link").symlink_to("a folder")
    monkeypatch.chdir(tmp_path)
    output = SarifOutput(tmp_path / "x", load([ROOT / "gateway/dev.yaml"]))
    for name in ("./a folder/é.yaml", "link/é.yaml", str(tmp_path / "link/é.yaml")):
        output.add_unreadable(Unreadable(Place(name), "no"))
    output.add_unreadable(Unreadable(Place("../b.yaml"), "no"))
    output.end(Totals())
    results = json.loads((tmp_path / "x").read_bytes())["runs"][0]["results"]
    uris = [one["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for one in results]
    assert uris == ["a%20folder/%C3%A9.yaml"] * 3 + ["../b.yaml"]


def test_levels_are_those_of_modes_and_repeated_findings_are_told_apart(
    tmp_path: Path, start_worker: StartWorker
) -> None:
    modes = [deny(f"in {mode}", webhook={"rollout": {"mode": mode}}) for mode in ("Enforce", "Warn", "Audit")]
    config = configure(
        tmp_path / "c.yaml",
        start_worker().target,
        validate=[*modes, {"status": "INTERNAL"}, of({"warnings": ["a", "b"]}, "", "configmaps")],
    )
    (tmp_path / "m.yaml").write_text(f"{CONFIG_MAP}---\n{CONFIG_MAP}---\n- 1\n")
    run = sarif(tmp_path, tmp_path / "m.yaml", "--config", config, status=2)
    levels = [(one["level"], one["message"]["text"].partition("\n")[0]) for one in run["results"]]
    assert ("error", "in Enforce") in levels
    assert ("warning", "in Warn") in levels
    assert ("note", "in Audit") in levels
    assert [one["ruleId"] for one in run["results"] if one["level"] == "error"].count("webhook-failure") == 2
    assert run["results"][-1]["level"] == "note"
    assert [one["ruleId"] for one in run["results"]].count("unreadable-manifest") == 1
    assert len(set(fingerprints(run))) == len(run["results"])


def test_results_beyond_the_bound_are_counted(
    tmp_path: Path, start_worker: StartWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.tools.preview.sarif.MAX_RESULTS", 3)
    config = configure(tmp_path / "c.yaml", start_worker().target, validate=[deny(), {"warnings": ["w"]}])
    (tmp_path / "m.yaml").write_text("---\n".join([CONFIG_MAP] * 5))
    run = sarif(tmp_path, tmp_path / "m.yaml", "--config", config)
    assert [one["level"] for one in run["results"]] == ["error"] * 3
    (note,) = run["invocations"][0]["toolExecutionNotifications"]
    assert note["message"]["text"].startswith("7 further results are left out")


REMOVED = """\
apiVersion: resource.k8s.io/v1beta1
kind: DeviceClass
metadata: {name: a}
"""


def test_a_forecast_has_rules_and_places_in_manifests_and_configuration(
    tmp_path: Path, start_worker: StartWorker
) -> None:
    rule = {"operations": ["*"], "apiGroups": ["policy"], "apiVersions": ["v1beta1"], "resources": ["*"]}
    webhooks = [{}, {"webhook": {"rules": [rule]}}]
    config = configure(tmp_path / "c.yaml", start_worker().target, validate=webhooks)
    (tmp_path / "m.yaml").write_text(f"{CONFIG_MAP}---\n{REMOVED}---\n{REMOVED}")
    run = sarif(tmp_path, tmp_path / "m.yaml", "--config", config, "--kubernetes", "1.38")
    assert {one["id"] for one in run["tool"]["driver"]["rules"]} >= RULES.keys()
    found = [
        (one["ruleId"], place["artifactLocation"]["uri"].rpartition("/")[2], place["region"]["startLine"])
        for one in run["results"]
        for place in [one["locations"][0]["physicalLocation"]]
    ]
    line = next(n for n, text in enumerate(config.read_text().split("\n"), 1) if "v1beta1" in text)
    assert [each[:2] for each in found] == [
        ("forecast-rule", "c.yaml"),
        *[("forecast-removed-api", "m.yaml")] * 2,
    ]
    assert abs(found[0][2] - line) < 5, "the begin of the rule"
    assert [each[2] for each in found[1:]] == [6, 10]
    assert len(set(fingerprints(run))) == 3
    first, second = run["invocations"][0]["toolExecutionNotifications"]
    assert first["message"]["text"].startswith("Kubernetes 1.38: its fields are not known")
    assert "is not decidable: " in second["message"]["text"]


def test_findings_of_a_forecast_beyond_the_bound_are_counted(
    tmp_path: Path, start_worker: StartWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.tools.preview.forecast.MAX_FINDINGS", 4)
    config = configure(tmp_path / "c.yaml", start_worker().target, validate=[of({}, "", "services")])
    (tmp_path / "m.yaml").write_text("---\n".join([REMOVED] * 10))
    junit, markdown = tmp_path / "p.xml", tmp_path / "p.md"
    outputs = "--junit", junit, "--markdown", markdown
    run = sarif(tmp_path, tmp_path / "m.yaml", "--config", config, "--kubernetes", "1.38", *outputs)
    assert len(run["results"]) == 3, "the first one has no place"
    text = run["invocations"][0]["toolExecutionNotifications"][-1]["message"]["text"]
    assert text.startswith("7 further results")
    assert "7 further cases" in junit.read_text()
    assert "### Admission preview: allowed, and Kubernetes 1.38 has errors" in markdown.read_text()
    assert "7 more findings" in markdown.read_text()
