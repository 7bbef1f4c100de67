"""``admission-gateway conformance`` as a command."""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trustme

from admission_gateway_conformance.run import RULES
from gateway import __version__
from gateway.tools.cli import main
from tests.kit import ROOT, Process, call_command, run_command
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

README = ROOT / "workers" / "conformance" / "README.md"
KIT = ("conformance", "--patience", "10")
SAMPLES = (sys.executable, "-m", "admission_gateway_worker.samples")
BY_HAND = (sys.executable, str(ROOT / "tests" / "conformance" / "review_only_worker.py"))
kit = partial(call_command, *KIT)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a path short enough for unix sockets."""
    path = Path(tempfile.mkdtemp(prefix="k"))
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def samples() -> Iterator[str]:
    """The address of a worker with the sample policies."""
    process = Process(*SAMPLES, "--listen", "127.0.0.1:0")
    yield process.expect(r"on (\S+)")[1]
    process.stop()


def test_where_the_kit_is_not_installed_the_command_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "admission_gateway_conformance", None)
    with pytest.raises(SystemExit) as exit_status:
        main(["conformance", "127.0.0.1:1"])
    assert exit_status.value.code == 1
    assert capsys.readouterr().err == (
        "admission-gateway: conformance: not installed; "
        f"`pip install admission-gateway-conformance=={__version__}` installs it\n"
    )


@pytest.mark.process  # test_kit_rules checks the same without processes, in virtual time
def test_the_python_samples_keep_to_every_rule_except_the_slow_ones() -> None:
    done = kit("--json", "--command", *SAMPLES)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    report = json.loads(done.stdout)
    assert report["target"] == " ".join(SAMPLES)
    assert [entry["rule"] for entry in report["rules"]] == [rule.name for rule in RULES]
    left = {entry["rule"]: entry["note"] for entry in report["rules"] if entry["result"] != "holds"}
    assert left == {
        "keepalive-without-calls": "takes three minutes: use --keepalive",
        "keepalive-with-calls": "takes three minutes: use --keepalive",
    }
    assert report["fails"] == 0


def test_a_worker_with_review_only_passes_with_the_consequences() -> None:
    done = kit("--command", *BY_HAND)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    lines = done.stdout.splitlines()
    assert any(
        line.startswith("  not served   ReviewStream, for 13 rules: each review is an RPC") for line in lines
    )
    assert any(
        line.startswith("  not served   ListPolicies, for 4 rules: people and tools") for line in lines
    )
    assert any(
        line.startswith("  not served   CheckParameters, for 4 rules: the gateway finds") for line in lines
    )
    assert any(line.startswith("  not served   Watch, for 2 rules: the worker cannot stop") for line in lines)
    assert "  holds        answers NOT_FOUND for an unknown policy" in lines
    assert "  not checked  ignores unknown fields: needs a policy: use --policy NAME" in lines
    assert "  holds        exits with status 0 when no call is left" in lines
    assert done.stdout.count("each review is an RPC") == 1
    assert re.search(
        r"keeps to the contract, as far as checked: 4 hold, 73 not served, 19 not checked$", done.stdout
    )


def test_rules_that_accept_any_policy_use_the_given_policy(folder: Path) -> None:
    target = f"unix:{folder}/worker.sock"
    process = Process(*BY_HAND, target)
    try:
        wait_for_server(folder / "worker.sock")
        done = kit("--policy", "team-is-named", target, "--pid", str(process.child.pid))
        assert (done.returncode, done.stderr) == (0, ""), done.stdout
        assert "  holds        ignores unknown fields\n" in done.stdout
        assert (
            "  holds        rejects a request above 8 MiB with RESOURCE_EXHAUSTED and keeps serving\n"
            in done.stdout
        )
        assert "the exit status is only known with --command" in done.stdout
        assert process.wait() == 0
    finally:
        process.stop()


def test_the_default_policy_is_the_first_listed_policy(folder: Path) -> None:
    done = kit(
        "--json", "--only", "review-of-7-mib", "--only", "list-served", "--command", *BY_HAND, "--list"
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert [entry["result"] for entry in json.loads(done.stdout)["rules"]] == ["holds", "holds"]


def test_a_violation_has_action_finding_and_expectation() -> None:
    faulty = (sys.executable, "-m", "tests.conformance.faulty_worker", "unknown-is-allowed")
    rules = ("--only", "review-unknown-policy", "--only", "review-malformed")
    done = kit(*rules, "--command", *faulty)
    assert (done.returncode, done.stderr) == (1, "")
    (shown,) = re.findall(r"^```text\n(Review.*?)^```", README.read_text(), re.MULTILINE | re.DOTALL)
    assert done.stdout == shown.replace("./worker", " ".join(faulty))
    machine = json.loads(kit("--json", *rules, "--command", *faulty).stdout)
    assert machine["rules"][0] == {
        "rule": "review-unknown-policy",
        "group": "Review",
        "description": "answers NOT_FOUND for an unknown policy",
        "section": "Status codes",
        "result": "fails",
        "action": "Review of conformance.example/not-served",
        "found": "allowed",
        "expected": "NOT_FOUND",
    }


def test_a_worker_that_exits_is_a_failure() -> None:
    faulty = (sys.executable, "-m", "tests.conformance.faulty_worker", "dies-of-garbage")
    done = kit("--only", "review-malformed", "--only", "stop-exit", "--command", *faulty)
    assert (done.returncode, done.stderr) == (1, "")
    assert "the worker is no longer reachable\n" in done.stdout
    assert "left: the worker has not been reachable since review-malformed\n" in done.stdout


@pytest.mark.parametrize("names_client", [False, True])
def test_tls(folder: Path, names_client: bool) -> None:
    ca = trustme.CA()
    ca.cert_pem.write_to_path(folder / "ca.pem")
    for name in ("worker.example", "client.example"):
        issued = ca.issue_cert(name)
        issued.private_key_pem.write_to_path(folder / f"{name}.key")
        issued.cert_chain_pems[0].write_to_path(folder / f"{name}.pem")
    server = ("--tls-cert", f"{folder}/worker.example.pem", "--tls-key", f"{folder}/worker.example.key")
    client_ca = ("--client-ca", f"{folder}/ca.pem") if names_client else ()
    process = Process(*SAMPLES, "--listen", "127.0.0.1:0", *server, *client_ca)
    try:
        target = process.expect(r"on (\S+)")[1]
        tls = ("--ca-file", f"{folder}/ca.pem", "--server-name", "worker.example")
        own = ("--cert-file", f"{folder}/client.example.pem", "--key-file", f"{folder}/client.example.key")
        rules = ("--only", "review-vectors", "--only", "stream-of-the-gateway", "--only", "health-watch")
        done = kit(target, *rules, *tls, *(own if names_client else ()))
        assert (done.returncode, done.stderr) == (0, ""), done.stdout
        assert "3 hold" in done.stdout
        refused = kit(target, *rules, *(tls if names_client else ()))
        assert refused.returncode == 1
        assert refused.stderr.startswith("admission-gateway: the worker cannot be reached: ")
        assert refused.stderr.count("\n") == 1
    finally:
        process.stop()


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        ([], 2, "TARGET or --command is needed"),
        (["nonsense"], 2, 'TARGET: found "nonsense"'),
        (["--only", "review-vector", "127.0.0.1:1"], 2, 'did you mean "review-vectors"?'),
        (["127.0.0.1:1", "--command", "x"], 2, "TARGET and --pid cannot be given"),
        (["--pid", "1", "--command", "x"], 2, "TARGET and --pid cannot be given"),
        (["--ca-file", "x", "--command", "x"], 2, "without TLS"),
        (["--command"], 2, "needs the command line"),
        (["--cert-file", "x", "127.0.0.1:1"], 2, "go together"),
        (["--server-name", "not a name", "127.0.0.1:1"], 2, "--server-name"),
        (["--patience", "0.5", "127.0.0.1:1"], 2, "found 0.5, expected a number from 1 to 1000"),
        (["--patience", "nan", "127.0.0.1:1"], 2, "found nan, expected a number from 1 to 1000"),
        (["--pid", "0", "127.0.0.1:1"], 2, "expected a process id"),
        (["127.0.0.1:1"], 1, "the worker cannot be reached: ipv4:127.0.0.1:1: Connection refused"),
        (["[::1]:1"], 1, "the worker cannot be reached"),
        (
            ["unix:nowhere.sock"],
            1,
            "the worker cannot be reached: unix:nowhere.sock: No such file or directory",
        ),
        (["--ca-file", "nowhere.pem", "127.0.0.1:1"], 1, "nowhere.pem: cannot be used"),
        (["--vectors", "nowhere", "127.0.0.1:1"], 1, "nowhere/samples.json: No such file or directory"),
        (["--command", "./nowhere"], 1, "./nowhere ended with exit status 1: ./nowhere: No such file"),
    ],
)
def test_errors_are_one_line(arguments: list[str], status: int, message: str) -> None:
    done = kit(*arguments)
    assert done.returncode == status
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_a_policy_that_is_not_served_is_an_error(samples: str) -> None:
    done = kit("--policy", "nobodys", samples)
    assert done.returncode == 1
    assert 'policy "nobodys" failed with NOT_FOUND' in done.stderr


def test_a_missing_process_is_an_error(samples: str) -> None:
    child = subprocess.Popen(["true"])
    child.wait()
    done = kit(samples, "--pid", str(child.pid))
    assert (done.returncode, done.stderr) == (1, f"admission-gateway: --pid {child.pid}: No such process\n")


def test_another_grpc_server_is_an_error(folder: Path) -> None:
    script = (
        "import grpc, sys, time; from concurrent.futures import ThreadPoolExecutor as Pool\n"
        "server = grpc.server(Pool(1)); server.add_insecure_port(sys.argv[1]); server.start(); time.sleep(60)"
    )
    process = Process(sys.executable, "-c", script, f"unix:{folder}/worker.sock")
    try:
        wait_for_server(folder / "worker.sock")
        done = kit(f"unix:{folder}/worker.sock")
        assert done.returncode == 1
        assert "the target is not a policy worker" in done.stderr
        assert done.stderr.count("\n") == 1
    finally:
        process.signal(signal.SIGKILL)
        process.stop()


def test_other_vectors(folder: Path, samples: str) -> None:
    vector = {
        "name": "an impossible answer",
        "policy": "deny-latest-tag",
        "request": {"operation": "DELETE"},
        "outcome": {"response": {"allowed": False, "status": {"code": 403, "message": "no"}}},
    }
    (folder / "samples.json").write_text(json.dumps([vector]))
    done = kit("--vectors", folder, "--only", "review-vectors", samples)
    assert done.returncode == 1
    assert "action: 1 of 1 vectors: an impossible answer\n" in done.stdout
    (folder / "samples.json").write_text('[{"name": "half a vector"}]')
    done = kit("--vectors", folder, samples)
    assert done.returncode == 1
    assert (
        done.stderr
        == f"admission-gateway: {folder}/samples.json is not a list of vectors: KeyError: 'policy'\n"
    )


def test_a_started_worker_ends_with_the_kit(folder: Path) -> None:
    script = (
        "import os, sys; open(sys.argv[1], 'w').write(str(os.getpid())); os.execvp(sys.argv[2], sys.argv[2:])"
    )
    done = run_command(
        *KIT, "--only", "review-at-once", "--command", sys.executable, "-c", script, folder / "pid", *SAMPLES
    )
    assert done.returncode == 0
    assert not Path(f"/proc/{(folder / 'pid').read_text()}").exists()


def test_the_readme_lists_the_rules_and_the_contract_has_their_sections() -> None:
    readme = README.read_text()
    listed = re.findall(r"^\| `([\w-]+)` \| (.*?) \| ", readme, re.MULTILINE)
    assert listed == [(rule.name, rule.description) for rule in RULES]
    sections = set(re.findall(r"^#+ (.*)$", (ROOT / "protos" / "README.md").read_text(), re.MULTILINE))
    assert {rule.section for rule in RULES} <= sections


def wait_for_server(path: Path) -> None:
    """Return when a server listens at *path*; the file is there a moment earlier."""

    def listens() -> bool:
        with socket.socket(socket.AF_UNIX) as client:
            return client.connect_ex(str(path)) == 0

    eventually(listens)
