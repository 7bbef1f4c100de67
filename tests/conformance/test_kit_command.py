"""``admission-gateway conformance`` as a person or a pipeline meets it."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trustme

from tests.kit import ROOT, Process
from workers.conformance.run import RULES

if TYPE_CHECKING:
    from collections.abc import Iterator

KIT = (str(Path(sys.executable).with_name("admission-gateway")), "conformance")
SAMPLES = (sys.executable, "-m", "workers.samples")
BY_HAND = (sys.executable, str(ROOT / "tests" / "conformance" / "review_only_worker.py"))
PATIENCE_S = 240


def kit(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    return subprocess.run(
        [*KIT, *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a path short enough for unix sockets."""
    path = Path(tempfile.mkdtemp(prefix="k"))
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def samples() -> Iterator[str]:
    """The address of a worker that serves the samples."""
    process = Process(*SAMPLES, "--listen", "127.0.0.1:0")
    yield process.expect(r"on (\S+)")[1]
    process.stop()


def test_the_python_samples_keep_to_every_rule_but_those_that_take_minutes() -> None:
    done = kit("--json", "--command", *SAMPLES)
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    assert report["target"] == " ".join(SAMPLES)
    assert [entry["rule"] for entry in report["rules"]] == [rule.name for rule in RULES]
    assert {entry["rule"]: entry["note"] for entry in report["rules"] if entry["result"] != "holds"} == {
        "keepalive-without-calls": "takes three minutes: say --keepalive",
        "keepalive-with-calls": "takes three minutes: say --keepalive",
    }
    assert report["holds"] == len(RULES) - 2
    assert report["fails"] == report["notServed"] == 0


def test_a_worker_with_review_alone_passes_and_is_told_what_it_misses() -> None:
    done = kit("--command", *BY_HAND)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert any(
        line.startswith("  not served   ReviewStream, for 12 rules: each review is a call") for line in lines
    )
    assert any(
        line.startswith("  not served   ListPolicies, for 3 rules: people and tools") for line in lines
    )
    assert any(
        line.startswith("  not served   Watch, for 2 rules: the worker cannot take itself") for line in lines
    )
    assert "  holds        answers NOT_FOUND for a policy that it does not serve" in lines
    assert (
        "  not checked  passes over fields that it does not know: needs a policy to ask: say --policy NAME"
        in lines
    )
    assert "  holds        ends with exit status 0 when nothing that anybody waits for is left" in lines
    assert done.stdout.count("each review is a call of its own") == 1
    assert re.search(
        r"keeps to the contract, as far as checked: 4 hold, 46 not served, 17 not checked$", done.stdout
    )


def test_a_policy_of_its_own_is_asked_where_any_will_do(folder: Path) -> None:
    target = f"unix:{folder}/worker.sock"
    process = Process(*BY_HAND, target)
    try:
        wait_for(folder / "worker.sock")
        done = kit("--policy", "team-is-named", target, "--pid", str(process.child.pid))
        assert (done.returncode, done.stderr) == (0, "")
        assert "  holds        passes over fields that it does not know\n" in done.stdout
        assert (
            "  holds        refuses a request over 8 MiB with RESOURCE_EXHAUSTED, and lives on\n"
            in done.stdout
        )
        assert "the status is known with --command" in done.stdout
        assert process.wait() == 0
    finally:
        process.stop()


def test_the_first_policy_that_is_listed_is_asked(folder: Path) -> None:
    done = kit(
        "--json", "--only", "review-of-7-mib", "--only", "list-served", "--command", *BY_HAND, "--list"
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert [entry["result"] for entry in json.loads(done.stdout)["rules"]] == ["holds", "holds"]


def test_a_rule_that_is_broken_says_what_was_asked_found_and_expected(folder: Path) -> None:
    (folder / "lie").write_text("unknown-is-allowed")
    liar = (sys.executable, str(ROOT / "tests" / "conformance" / "lying_worker.py"), str(folder / "lie"))
    rules = ("--only", "review-unknown-policy", "--only", "review-malformed")
    done = kit(*rules, "--command", *liar)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout == (
        "Review\n"
        "  FAILS        answers NOT_FOUND for a policy that it does not serve\n"
        "                 asked: Review of conformance.example/not-served\n"
        "                 found: allowed\n"
        "                 expected: NOT_FOUND\n"
        '                 protos/README.md: "What the gateway does with a status" (review-unknown-policy)\n'
        "  holds        refuses what is no ReviewRequest, and lives on\n"
        f"{' '.join(liar)} does not keep to the contract: 1 hold, 1 fail\n"
    )
    machine = json.loads(kit("--json", *rules, "--command", *liar).stdout)
    assert machine["rules"][0] == {
        "rule": "review-unknown-policy",
        "group": "Review",
        "says": "answers NOT_FOUND for a policy that it does not serve",
        "section": "What the gateway does with a status",
        "result": "fails",
        "asked": "Review of conformance.example/not-served",
        "found": "allowed",
        "expected": "NOT_FOUND",
    }


def test_a_worker_that_dies_is_an_ordinary_failure(folder: Path) -> None:
    (folder / "lie").write_text("dies-of-garbage")
    liar = (sys.executable, str(ROOT / "tests" / "conformance" / "lying_worker.py"), str(folder / "lie"))
    done = kit("--only", "review-malformed", "--only", "stop-exit", "--command", *liar)
    assert (done.returncode, done.stderr) == (1, "")
    assert "and the worker is gone\n" in done.stdout
    assert "left: the worker has been gone since review-malformed\n" in done.stdout


@pytest.mark.parametrize("names_client", [False, True])
def test_tls_is_spoken(folder: Path, names_client: bool) -> None:
    ca = trustme.CA()
    ca.cert_pem.write_to_path(folder / "ca.pem")
    for name in ("worker.example", "client.example"):
        issued = ca.issue_cert(name)
        issued.private_key_pem.write_to_path(folder / f"{name}.key")
        issued.cert_chain_pems[0].write_to_path(folder / f"{name}.pem")
    server = ("--tls-cert", f"{folder}/worker.example.pem", "--tls-key", f"{folder}/worker.example.key")
    asks = ("--client-ca", f"{folder}/ca.pem") if names_client else ()
    process = Process(*SAMPLES, "--listen", "127.0.0.1:0", *server, *asks)
    try:
        target = process.expect(r"on (\S+)")[1]
        tls = ("--ca-file", f"{folder}/ca.pem", "--server-name", "worker.example")
        own = ("--cert-file", f"{folder}/client.example.pem", "--key-file", f"{folder}/client.example.key")
        rules = ("--only", "review-vectors", "--only", "stream-of-the-gateway", "--only", "health-watch")
        done = kit(target, *rules, *tls, *(own if names_client else ()))
        assert (done.returncode, done.stderr) == (0, "")
        assert "3 hold" in done.stdout
        refused = kit(target, *rules, *(tls if names_client else ()))
        assert refused.returncode == 1
        assert refused.stderr.startswith("admission-gateway: the worker cannot be reached: ")
        assert refused.stderr.count("\n") == 1
    finally:
        process.stop()


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
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
def test_what_cannot_be_checked_is_said_in_one_line(arguments: list[str], status: int, said: str) -> None:
    done = kit(*arguments)
    assert done.returncode == status
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_a_policy_that_is_not_served_is_an_error(samples: str) -> None:
    done = kit("--policy", "nobodys", samples)
    assert done.returncode == 1
    assert 'policy "nobodys" with NOT_FOUND' in done.stderr


def test_a_process_that_is_not_there_is_an_error(samples: str) -> None:
    child = subprocess.Popen(["true"])
    child.wait()
    done = kit(samples, "--pid", str(child.pid))
    assert (done.returncode, done.stderr) == (1, f"admission-gateway: --pid {child.pid}: No such process\n")


def test_who_serves_something_else_is_no_policy_worker(folder: Path) -> None:
    script = (
        "import grpc, sys, time; from concurrent.futures import ThreadPoolExecutor as Pool\n"
        "server = grpc.server(Pool(1)); server.add_insecure_port(sys.argv[1]); server.start(); time.sleep(60)"
    )
    process = Process(sys.executable, "-c", script, f"unix:{folder}/worker.sock")
    try:
        wait_for(folder / "worker.sock")
        done = kit(f"unix:{folder}/worker.sock")
        assert done.returncode == 1
        assert "this is no policy worker" in done.stderr
        assert done.stderr.count("\n") == 1
    finally:
        process.signal(signal.SIGKILL)
        process.stop()


def test_the_vectors_may_be_others(folder: Path, samples: str) -> None:
    vector = {
        "name": "what nobody would say",
        "policy": "deny-latest-tag",
        "request": {"operation": "DELETE"},
        "outcome": {"response": {"allowed": False, "status": {"code": 403, "message": "no"}}},
    }
    (folder / "samples.json").write_text(json.dumps([vector]))
    done = kit("--vectors", folder, "--only", "review-vectors", samples)
    assert done.returncode == 1
    assert "asked: 1 of 1 vectors: what nobody would say\n" in done.stdout
    (folder / "samples.json").write_text('[{"name": "half a vector"}]')
    done = kit("--vectors", folder, samples)
    assert done.returncode == 1
    assert done.stderr == f"admission-gateway: {folder}/samples.json holds no vectors: KeyError: 'policy'\n"


def test_a_worker_of_the_kits_is_gone_with_it(folder: Path) -> None:
    script = (
        "import os, sys; open(sys.argv[1], 'w').write(str(os.getpid())); os.execvp(sys.argv[2], sys.argv[2:])"
    )
    done = kit(
        "--only", "review-at-once", "--command", sys.executable, "-c", script, folder / "pid", *SAMPLES
    )
    assert done.returncode == 0
    assert not Path(f"/proc/{(folder / 'pid').read_text()}").exists()


def test_the_readme_lists_the_rules_and_the_contract_has_their_sections() -> None:
    readme = (ROOT / "workers" / "conformance" / "README.md").read_text()
    listed = re.findall(r"^\| `([\w-]+)` \| (.*?) \| ", readme, re.MULTILINE)
    assert listed == [(rule.name, rule.says) for rule in RULES]
    sections = set(re.findall(r"^#+ (.*)$", (ROOT / "protos" / "README.md").read_text(), re.MULTILINE))
    assert {rule.section for rule in RULES} <= sections


def wait_for(path: Path) -> None:
    """Return when *path* is there, within the test's patience."""
    script = "import pathlib, sys, time\nwhile not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.02)"
    subprocess.run([sys.executable, "-c", script, str(path)], timeout=60, check=True)
