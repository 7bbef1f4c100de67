"""``--help`` of every command, a call without a command, and errors that name what was probably meant."""

from __future__ import annotations

import argparse
import json
import shlex
from typing import TYPE_CHECKING

import pytest

from gateway.tools.cli import build_parser
from gateway.tools.cli.parser import Parser
from tests.docs.pages import ROOT
from tests.kit import call_command
from tests.migrating.test_migrate import KYVERNO
from tests.replay.kit import policy, recording, review

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

POD = """\
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop}
spec: {containers: [{name: web, image: "nginx:1"}]}
"""
SUITE = """\
apiVersion: admission-gateway.io/v1alpha1
kind: PolicyTest
config: [../config]
cases:
  - name: labels of a pod
    object: {apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop}}
    expect: {allowed: true}
"""
OF_KYVERNO = """\
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: names}
spec:
  validationFailureAction: Enforce
  rules:
    - name: names
      match: {any: [{resources: {kinds: [Pod]}}]}
      validate: {message: no name, pattern: {metadata: {name: "?*"}}}
"""
NOT_RUN = {
    "audit": "reads a cluster",
    "check --config config --cluster": "reads a cluster",
    "conformance": "takes a worker's time; tests/conformance runs it",
    "decisions": "asks a gateway",
    "import --output config": "reads a cluster",
    "manifests --config config --service policies/gateway --apply": "writes to a cluster",
    "migrate --output migration": "reads a cluster",
    "migrate prove": "needs the old engine",
    "rollback --state state": "needs a gateway's history",
    "rollout pause": "needs a plan",
    "rollout resume": "needs a plan",
    "rollout approve": "needs a plan",
    "rollout skip": "needs a plan",
    "rollout rollback": "needs a plan",
    "rollout forget": "needs a plan",
    "rollout status": "reads a cluster",
    "serve": "does not end; tests/process runs it",
    "status": "asks a gateway",
    "sync": "reads a cluster",
    "watchdog": "watches a cluster",
}
"""Beginnings of examples, and why a test only parses them."""
RUN_ANYWAY = {"rollout status --folder plans"}


def parsers(parser: argparse.ArgumentParser | None = None) -> Iterator[Parser]:
    """Yield the parser of the program, and those of all commands."""
    parser = build_parser() if parser is None else parser
    assert isinstance(parser, Parser)
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for one in action.choices.values():
                yield from parsers(one)


ALL = {one.prog: one for one in parsers()}
COMMANDS = {prog: one.about for prog, one in ALL.items() if prog != "admission-gateway"}
EXAMPLES = [example for about in COMMANDS.values() if about for _, example in about.examples]


@pytest.mark.parametrize("prog", ALL)
def test_help_fits_80_columns(prog: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert not [line for line in ALL[prog].format_help().splitlines() if len(line) > 80]


@pytest.mark.parametrize("prog", COMMANDS)
def test_a_command_has_two_examples_of_its_own_and_a_page(prog: str) -> None:
    about = COMMANDS[prog]
    assert about is not None
    assert len(about.examples) == 2
    program, _, name = prog.partition(" ")
    assert all(example.split()[: len(name.split())] == name.split() for _, example in about.examples)
    assert (ROOT / about.page).is_file()
    text = ALL[prog].format_help()
    assert text.endswith(f"\ndocumentation: {about.page}\n")
    assert f"\n  {program} {about.examples[0][1]}\n" in text
    assert "\n\n" + about.description[:40] in text


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_parses(example: str) -> None:
    build_parser().parse_args(_words(example))


@pytest.mark.parametrize(
    "example", [one for one in EXAMPLES if one in RUN_ANYWAY or not one.startswith(tuple(NOT_RUN))]
)
def test_an_example_runs(example: str, tmp_path: Path) -> None:
    for folder in ("config", "old", "recordings", "manifests", "tests", "policies", "plans"):
        (tmp_path / folder).mkdir()
    for folder in ("config", "old"):
        (tmp_path / folder / "p.yaml").write_text(policy("named", "object.metadata.name != ''"))
    recording(tmp_path / "recordings/r.jsonl.gz", review())
    for name in ("pod.yaml", "rendered.yaml", "manifests/pod.yaml"):
        (tmp_path / name).write_text(POD)
    (tmp_path / "tests/labels.yaml").write_text(SUITE)
    (tmp_path / "policies/p.yaml").write_text(OF_KYVERNO)
    (tmp_path / "webhooks.yaml").write_text("\n---\n".join(map(json.dumps, KYVERNO)))
    done = call_command(*_words(example), folder=tmp_path, stdin=(tmp_path / "rendered.yaml").read_bytes())
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert done.stdout


def test_every_reason_for_which_an_example_does_not_run_is_of_an_example() -> None:
    assert all(any(one.startswith(beginning) for one in EXAMPLES) for beginning in NOT_RUN)


def _words(example: str) -> list[str]:
    """Return the arguments of *example*, without what the shell takes out."""
    words = shlex.split(example)
    return words[: min((words.index(one) for one in ("<", ">") if one in words), default=len(words))]


@pytest.mark.parametrize("group", ["", "--verbose", "rollout", "migrate"])
def test_a_call_without_the_command_that_it_needs_shows_the_help(group: str) -> None:
    done = call_command(*group.split())
    assert (done.returncode, done.stdout) == (2, "")
    prog = f"admission-gateway {group}".removesuffix("--verbose").strip()
    assert done.stderr == ALL[prog].format_help()


def test_the_help_has_every_command_once_below_what_it_is_for() -> None:
    text = ALL["admission-gateway"].format_help()
    (choices,) = (one.choices for one in ALL["admission-gateway"]._actions if one.dest == "command")
    lines = text.splitlines()
    assert choices
    assert all(sum(line.split()[:1] == [name] for line in lines) == 1 for name in choices)
    titles = [line for line in lines if line.endswith(":")]
    assert text.endswith("\ndocumentation: docs/commands.md\n")
    assert titles == ["try and test:", "run:", "operate:", "move to the gateway:", "shell:", "options:"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("chek", 'unknown command "chek"; did you mean "check"? See admission-gateway --help'),
        ("frobnicate", 'unknown command "frobnicate"; see admission-gateway --help'),
        ("--verbos check --config none", "none: cannot be read"),
        ("--vrbose check", 'unknown option "--vrbose"; did you mean "--verbose"? See admission-gateway --h'),
        ("check --confg x", 'check: unknown option "--confg"; did you mean "--config"? See'),
        ("check --confg=x", 'check: unknown option "--confg"; did you mean "--config"? See'),
        ("review --config a b", 'review: the following arguments are required: FILE; --config took "b" too'),
        ("review --confg x", 'review: unknown option "--confg"; did you mean "--config"? See'),
        ("review pod.yaml --bogus", 'review: unknown option "--bogus"; see admission-gateway review --help'),
        ("check --config x -y", 'check: unknown option "-y"; see'),
        ("new python a b", 'new: unexpected argument "b"; see'),
        ("rollout puase", 'rollout: unknown command "puase"; did you mean "pause"? See'),
        ("rollout pause --reson x", 'rollout pause: unknown option "--reson"; did you mean "--reason"? See'),
        ("decisions --outcome denied", 'argument --outcome: found "denied", expected Denied, '),
        ("decisions --outcome denied", '; did you mean "Denied"? See admission-gateway decisions --help'),
        ("migrate --ouput x", 'migrate: unknown option "--ouput"; did you mean "--output"? See'),
        ("migrate prove --confg x", 'admission-gateway migrate prove: unknown option "--confg"; did you'),
        ("policies require-lables", '"require-lables"; did you mean "policies show require-labels"? See'),
        ("policies show require-lab", 'no policy "require-lab"; did you mean "require-labels"?'),
        ("policies sho", 'unknown command "sho"; did you mean "show"? See'),
        ("policies show require-lables", 'no policy "require-lables"; did you mean "require-labels"?'),
        ("import kyvreno policies", 'there is no file or folder "kyvreno"; did you mean "kyverno"? See'),
        ("replay nowhere --config gateway/dev.yaml", "replay: nowhere: there is no such file or folder; see"),
        ("policies show xyz", 'there is no policy "xyz"; "admission-gateway policies" lists them'),
        ("completion bsh", 'found "bsh", expected bash, zsh or fish; did you mean "bash"? See'),
        ("conformance --comand python --bogus", 'unknown option "--comand"; did you mean "--command"? See'),
        ("check --config x --kubernetes -- y", "expected one argument"),
    ],
)  # fmt: skip
def test_a_wrong_name_is_one_line_with_what_was_probably_meant(arguments: str, message: str) -> None:
    done = call_command(*arguments.split())
    assert message in done.stderr
    assert done.returncode in (1, 2)
    assert (done.stdout, done.stderr.count("\n")) == ("", 1)


def test_a_value_may_follow_the_letter_of_an_option() -> None:
    parser = Parser("p")
    parser.add_argument("-n", "--name")
    assert parser.parse_args(["-nx"]).name == "x"
    with pytest.raises(SystemExit):
        parser.parse_args(["-mx"])


@pytest.mark.parametrize("command", ["review", "preview"])
def test_a_configuration_that_checks_nothing_is_a_warning(command: str, tmp_path: Path) -> None:
    (tmp_path / "pod.yaml").write_text(POD)
    (tmp_path / "empty").mkdir()
    done = call_command(command, "pod.yaml", "--config", "empty", folder=tmp_path)
    expected = "warning: found no webhooks and no policies in empty: every request is allowed\n"
    assert (done.returncode, done.stderr) == (0, expected)


def test_words_of_a_command_line_that_is_an_argument_are_no_options() -> None:
    words = ["conformance", "--pid", "1", "--command", "worker", "--bogus"]
    done = call_command(*words)
    assert "--command starts the worker, so TARGET and --pid cannot be given" in done.stderr
