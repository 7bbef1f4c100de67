"""Rules in Kyverno's own language: reviews and tests of Kyverno with a worker that stands for Kyverno's."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from gateway.tools.policy_tests.discovery import read_tests
from gateway.tools.policy_tests.engine_worker import command_of
from gateway.tools.policy_tests.run import run_tests
from tests.config.documents import load_documents
from tests.kit import call_command
from tests.kyverno.test_worker_rules import CEL, engines, exception, mutate, policy, validate

if TYPE_CHECKING:
    from gateway.tools.policy_tests.results import CaseResult

Json = dict[str, Any]

WORKER = Path(__file__).parents[1] / "kyverno" / "worker.py"
NO_HOST: Json = {"pattern": {"spec": {"hostNetwork": False}}, "message": "no host network"}
OWNER: Json = {"metadata": {"labels": {"owner": "a"}}}
POLICY = policy(validate(**NO_HOST), mutate("owner", patchStrategicMerge=OWNER))


def pool(*arguments: object) -> Json:
    """The pool of the worker."""
    return {
        "apiVersion": "admission-gateway.io/v1alpha1",
        "kind": "WorkerPool",
        "metadata": {"name": "kyverno"},
        "spec": {"command": [sys.executable, str(WORKER), *map(str, arguments)]},
    }


def pod(name: str, *, host: bool = False) -> Json:
    """A Pod."""
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"hostNetwork": host}}


def configured(folder: Path, *documents: Json) -> Path:
    """Write a configuration with *documents*, which the worker reads too."""
    config = folder / "config"
    config.mkdir()
    (config / "a.yaml").write_text(yaml.safe_dump_all(documents))
    (config / "gateway.yaml").write_text(yaml.safe_dump_all([engines(), pool("--policies", config)]))
    return config


def test_a_review_changes_and_refuses_as_the_rules_say(tmp_path: Path) -> None:
    config = configured(tmp_path, POLICY)
    (tmp_path / "good.yaml").write_text(yaml.safe_dump(pod("good")))
    (tmp_path / "bad.yaml").write_text(yaml.safe_dump(pod("bad", host=True)))
    done = call_command("review", tmp_path / "good.yaml", "--config", config, "--json")
    assert done.returncode == 0, done.stderr
    patch = base64.b64decode(json.loads(done.stdout)["response"]["patch"])
    assert json.loads(patch) == [{"op": "add", "path": "/metadata/labels", "value": {"owner": "a"}}]
    done = call_command("review", tmp_path / "bad.yaml", "--config", config)
    assert done.returncode == 1
    # The text is Kyverno's own: the name of the entry is not written once more.
    assert "  resource was blocked\n  \n  p:\n    r: no host network" in done.stdout
    assert "p/r: " not in done.stdout


def test_an_audited_rule_allows(tmp_path: Path) -> None:
    audited = policy(validate(**NO_HOST), validationFailureAction="Audit")
    warned = policy(validate(**NO_HOST), name="q", validationFailureAction="Audit", emitWarning=True)
    config = configured(tmp_path, audited, warned)
    (tmp_path / "bad.yaml").write_text(yaml.safe_dump(pod("bad", host=True)))
    done = call_command("review", tmp_path / "bad.yaml", "--config", config)
    assert done.returncode == 0
    assert "policy q.r: no host network" in done.stdout + done.stderr


def results(folder: Path, test: Json, config: Path | None, **files: list[Json]) -> list[CaseResult]:
    """Run a test of Kyverno with *files* beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, documents in files.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump_all(documents))
    head: Json = {"apiVersion": "cli.kyverno.io/v1alpha1", "kind": "Test", "metadata": {"name": "t"}}
    listed = ("policies", "resources", "exceptions")
    named: Json = {name: [f"{name}.yaml"] for name in listed if name in files}
    if "variables" in files:
        named["variables"] = "variables.yaml"
    (folder / "kyverno-test.yaml").write_text(yaml.safe_dump(head | named | test))
    configs = [] if config is None else [config]
    return asyncio.run(run_tests(read_tests([folder], configs), [], configs))


def said(folder: Path, test: Json, config: Path | None, **files: list[Json]) -> dict[str, str]:
    """The first problem of each case, the reason, or ``passed``."""
    return {
        one.name: "\n".join(one.problems) or one.not_supported or "passed"
        for one in results(folder, test, config, **files)
    }


def rows(*found: Json) -> Json:
    return {"results": [{"policy": "p", "kind": "Pod", **one} for one in found]}


@pytest.fixture(name="config")
def _config(tmp_path: Path) -> Path:
    return configured(tmp_path)


def test_rows_of_rules_of_the_worker_pass_or_fail(tmp_path: Path, config: Path) -> None:
    test = rows(
        {"rule": "r", "resources": ["good"], "result": "pass"},
        {"rule": "r", "resources": ["bad"], "result": "fail"},
        {"rule": "r", "resources": ["bad"], "result": "skip"},
        {"rule": "no", "resources": ["bad"], "result": "fail"},
    )
    files: dict[str, list[Json]] = {"policies": [POLICY], "resources": [pod("good"), pod("bad", host=True)]}
    wrong = "result of r: found fail, expected skip: \n\nresource was blocked\n\np:\n  r: no host network\n"
    assert said(tmp_path / "test", test, config, **files) == {
        "p r on good: pass": "passed",
        "p r on bad: fail": "passed",
        "p r on bad: skip": wrong,
        "p no on bad: fail": "result: the policy does not match, expected fail",
    }


def test_rows_of_changes_compare_the_object(tmp_path: Path, config: Path) -> None:
    labelled = pod("a")
    labelled["metadata"]["labels"] = {"owner": "a"}
    row = {"rule": "owner", "resources": ["a"], "result": "pass"}
    files: dict[str, list[Json]] = {
        "policies": [POLICY],
        "resources": [pod("a")],
        "patched": [labelled],
        "other": [pod("a")],
    }
    for patched, expected in (("patched", True), ("other", False)):
        test = rows({**row, "patchedResources": f"{patched}.yaml"})
        (text,) = said(tmp_path / patched, test, config, **files).values()
        assert (text == "passed") == expected, text
        assert expected or text.startswith("patchedResources: the object after all changes differs")


def test_a_rule_is_evaluated_once_however_the_rules_after_it_change_the_object(
    tmp_path: Path, config: Path
) -> None:
    labels = [{"metadata": {"labels": {name: "x"}}} for name in ("a", "b", "c")]
    rules = [mutate(name, patchStrategicMerge=one) for name, one in zip("abc", labels, strict=True)]
    changing = policy(*rules)
    test = rows(*({"rule": name, "resources": ["a"], "result": "pass"} for name in ("a", "b", "c")))
    found = said(tmp_path / "test", test, config, policies=[changing], resources=[pod("a")])
    assert list(found.values()) == ["passed"] * 3


def test_the_roles_of_the_user_are_the_workers(tmp_path: Path, config: Path) -> None:
    block = {"resources": {"kinds": ["Pod"]}, "clusterRoles": ["r"]}
    named = policy(validate(match={"any": [block]}, **NO_HOST))
    user = {"apiVersion": "cli.kyverno.io/v1alpha1", "kind": "UserInfo", "clusterRoles": ["r"]}
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "user.yaml").write_text(yaml.safe_dump(user))
    test = {"userinfo": "user.yaml", **rows({"rule": "r", "resources": ["good"], "result": "pass"})}
    found = said(tmp_path / "test", test, config, policies=[named], resources=[pod("good")])
    assert list(found.values()) == ["passed"]


def test_rules_that_autogen_made_are_named_by_the_worker(tmp_path: Path, config: Path) -> None:
    template = {"spec": {"hostNetwork": True}}
    workload = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "spec": {"template": template},
    }
    test = rows(
        {"rule": "r", "resources": ["d"], "result": "fail"},
        {"rule": "autogen-r", "resources": ["d"], "result": "fail"},
    )
    found = said(tmp_path / "test", test, config, policies=[POLICY], resources=[workload])
    assert set(found.values()) == {"passed"}
    assert len(found) == 2


def test_the_worker_has_exceptions_and_values(tmp_path: Path, config: Path) -> None:
    test = rows({"rule": "r", "resources": ["bad"], "result": "skip"})
    files: dict[str, list[Json]] = {"policies": [POLICY], "resources": [pod("bad", host=True)]}
    found = said(tmp_path / "exception", test, config, exceptions=[exception("r")], **files)
    assert list(found.values()) == ["passed"]
    values: Json = {"policies": [{"name": "p", "rules": [{"name": "r", "values": {"status": "skip"}}]}]}
    document = {"apiVersion": "cli.kyverno.io/v1alpha1", "kind": "Values", **values}
    found = said(tmp_path / "file", test, config, variables=[document], **files)
    assert list(found.values()) == ["passed"]
    found = said(tmp_path / "inline", {"values": values, **test}, config, **files)
    assert list(found.values()) == ["passed"]


def test_rules_in_cel_beside_them_stay_in_the_gateway(tmp_path: Path, config: Path) -> None:
    mixed = policy(validate("c", **CEL), validate(**NO_HOST))
    test = rows(
        {"rule": "c", "resources": ["good"], "result": "fail"},
        {"rule": "r", "resources": ["good"], "result": "pass"},
    )
    found = said(tmp_path / "test", test, config, policies=[mixed], resources=[pod("good")])
    assert set(found.values()) == {"passed"}


def test_failures_of_policies_without_score_are_warnings(tmp_path: Path, config: Path) -> None:
    unscored = policy(validate(**NO_HOST))
    unscored["metadata"]["annotations"] = {"policies.kyverno.io/scored": "false"}
    test = rows({"rule": "r", "resources": ["bad"], "result": "warn"})
    found = said(tmp_path / "test", test, config, policies=[unscored], resources=[pod("bad", host=True)])
    assert list(found.values()) == ["passed"]


def test_without_a_worker_such_rows_are_not_supported(tmp_path: Path) -> None:
    test = rows({"rule": "r", "resources": ["good"], "result": "pass"})
    for name, config in (("none", None), ("others", configured(tmp_path))):
        if config is not None:
            (config / "gateway.yaml").write_text(yaml.safe_dump(pool()))
        found = said(tmp_path / name, test, config, policies=[POLICY], resources=[pod("good")])
        (reason,) = found.values()
        assert "name its pool in policies.engines.kyverno of the GatewayConfiguration" in reason
        assert "WorkerPool, such as command: [kyverno, --policies, policies]: " in reason
        assert reason.endswith(
            "give --config with such a pool and policies.engines.kyverno"
            if config is None
            else "the configuration of --config has no policies.engines.kyverno"
        )


def test_a_pool_without_a_command_is_named(tmp_path: Path) -> None:
    test = rows({"rule": "r", "resources": ["good"], "result": "pass"})
    config = configured(tmp_path)
    remote = {**pool(), "spec": {"target": "127.0.0.1:1"}}
    (config / "gateway.yaml").write_text(yaml.safe_dump_all([engines(), remote]))
    (reason,) = said(tmp_path / "test", test, config, policies=[POLICY], resources=[pod("good")]).values()
    assert reason.endswith("the pool kyverno, which policies.engines.kyverno names, has none")


def test_a_worker_that_fails_is_an_error_of_the_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.tools.offline.gateway.OWN_READY_WITHIN_S", 0.0)
    config = configured(tmp_path)
    script = tmp_path / "empty.py"
    script.write_text(
        "import sys\nfrom admission_gateway_worker import PolicyServer\n"
        "i = sys.argv.index('--policies')\ndel sys.argv[i:i + 2]\nPolicyServer().main()\n"
    )
    worker = pool()
    worker["spec"]["command"][1] = str(script)
    (config / "gateway.yaml").write_text(yaml.safe_dump_all([engines(), worker]))
    test = rows({"rule": "r", "resources": ["good"], "result": "pass"})
    (text,) = said(tmp_path / "test", test, config, policies=[POLICY], resources=[pod("good")]).values()
    assert text.startswith("result of r: found error, expected pass: ")


@pytest.mark.parametrize(
    ("arguments", "left"),
    [
        (["--policies", "a", "--cluster", "--policies=b", "-policies", "c", "--x", "1"], ["--x", "1"]),
        (["--policies"], []),
        ([], []),
    ],
)
def test_the_private_worker_has_no_other_policies(arguments: list[str], left: list[str]) -> None:
    config = load_documents(engines(), pool(*arguments))
    assert command_of(config, "kyverno") == (sys.executable, str(WORKER), *left)
    assert command_of(config, "kubewarden") == ()


def test_the_command_runs_them(tmp_path: Path, config: Path) -> None:
    test = rows({"rule": "r", "resources": ["good"], "result": "pass"})
    results(tmp_path / "test", test, config, policies=[POLICY], resources=[pod("good")])
    done = call_command("test", tmp_path / "test", "--config", config)
    assert done.returncode == 0, done.stdout
