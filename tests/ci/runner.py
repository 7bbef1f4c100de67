"""Runs the steps of ``deploy/ci`` as the runners of GitHub and GitLab do.

Only what the two files use is known: a step with anything else is an error.

Source: docs.github.com "Metadata syntax", "Expressions", "Workflow commands"; GitLab "CI/CD components",
"CI/CD inputs".
"""

from __future__ import annotations

import os
import re
import subprocess
from typing import TYPE_CHECKING, Any, Final

import yaml

from tests.kit import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

FOLDER: Final = ROOT / "deploy" / "ci"
ACTION: Final = FOLDER / "github" / "action.yml"
COMPONENT: Final = FOLDER / "gitlab" / "templates" / "preview.yml"
WITHIN_S: Final = 300
"""A bound for a stuck step, not an expectation."""
_EXPRESSION: Final = re.compile(r"\$\{\{ *(.*?) *\}\}")
_COMPARISON: Final = re.compile(r"([\w.-]+) (==|!=) '(.*?)'")
_INPUT: Final = re.compile(r"\$\[\[ inputs\.([\w-]+) \]\]")


class Run:
    """A run of the action in the folder *workspace*, and what came of it."""

    def __init__(
        self, workspace: Path, temporary: Path, environment: Mapping[str, str], event: Mapping[str, str]
    ) -> None:
        self._workspace = workspace
        self._temporary = temporary
        self._environment = dict(environment)
        self._values = {"github.action_path": str(ACTION.parent), "github.token": "job", **event}
        self.outputs: dict[str, str] = {}
        self.log = ""
        self.status = 0

    @property
    def summary(self) -> str:
        """The summary of the run, as Markdown."""
        return (self._temporary / "summary").read_text()

    def __call__(self, inputs: Mapping[str, str]) -> Run:
        """Run the steps with *inputs*, until one fails."""
        action = yaml.safe_load(ACTION.read_text())
        unknown = inputs.keys() - action["inputs"].keys()
        assert not unknown, unknown
        for name, declared in action["inputs"].items():
            # GitHub does not enforce `required`.
            self._values[f"inputs.{name}"] = inputs.get(name, self._text(declared.get("default", "")))
        assert action["runs"]["using"] == "composite"
        for step in action["runs"]["steps"]:
            assert step.keys() <= {"id", "if", "shell", "env", "run"}, step
            if not self.status and self._holds(step.get("if")):
                self._step(step)
        for name, declared in action["outputs"].items():
            self.outputs[name] = self._text(declared["value"])
        return self

    def _text(self, text: str) -> str:
        return _EXPRESSION.sub(lambda found: self._values.get(found[1], ""), text)

    def _holds(self, condition: str | None) -> bool:
        if condition is None:
            return True
        found = _EXPRESSION.fullmatch(condition)
        assert found, condition
        parts = [_COMPARISON.fullmatch(part) for part in found[1].split(" && ")]
        assert all(parts), condition
        return all((self._values.get(part[1], "") == part[3]) == (part[2] == "==") for part in parts if part)

    def _step(self, step: dict[str, Any]) -> None:
        assert step["shell"] == "bash"
        script = self._temporary / "script.sh"
        script.write_text(self._text(step["run"]))
        output = self._temporary / "output"
        output.write_text("")
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", script],
            cwd=self._workspace,
            env={
                **self._environment,
                **{name: self._text(value) for name, value in step.get("env", {}).items()},
                "GITHUB_WORKSPACE": str(self._workspace),
                "GITHUB_OUTPUT": str(output),
                "GITHUB_STEP_SUMMARY": str(self._temporary / "summary"),
                "RUNNER_TEMP": str(self._temporary),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )
        self.log += done.stdout
        self.status = done.returncode
        for line in output.read_text().splitlines():
            name, _, value = line.partition("=")
            self._values[f"steps.{step.get('id')}.outputs.{name}"] = value


def environment(*folders: Path) -> dict[str, str]:
    """Return the variables of a step: a PATH that begins with *folders*, and little else."""
    path = os.pathsep.join([*map(str, folders), "/usr/local/bin", "/usr/bin", "/bin"])
    return {"PATH": path, "HOME": os.environ.get("HOME", "/"), "LANG": "C.UTF-8"}


def component(inputs: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    """Return the name and the content of the job of the GitLab component with *inputs*."""
    text = COMPONENT.read_text()
    head, _, body = text.partition("\n---\n")
    declared = yaml.safe_load(head)["spec"]["inputs"]
    assert inputs.keys() <= declared.keys(), inputs
    missing = [name for name, each in declared.items() if "default" not in each and name not in inputs]
    assert not missing, missing
    values = {name: inputs.get(name, each.get("default", "")) for name, each in declared.items()}
    ((name, job),) = yaml.safe_load(_INPUT.sub(lambda found: values[found[1]], body)).items()
    return name, job
