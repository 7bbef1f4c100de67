"""Hostile configurations are refused with their cause, and do no harm.

``check`` and ``serve`` refuse them as they start; a gateway that reloads one keeps its
configuration.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.faults.kit import REVIEW, SOME_PORT, StartWorker, all_well, configure
from tests.kit import (
    PATIENCE_S,
    ROOT,
    GatewayProcess,
    StartGateway,
    WorkerProcess,
    pool_document,
    webhook_document,
)
from tests.load import Load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import trustme

pytestmark = pytest.mark.process

MIB = 1024 * 1024
MAX_OUTPUT_CHARS = 500_000
"""Room for a thousand problems, none of which quotes a value in full."""

GOOD = "/validate/good?timeout=20s"
ENTRY = """apiVersion: admission-gateway.io/v1alpha1
kind: WorkerPool
metadata: {name: p}
spec: {target: a:1}
"""
LOADED = "configuration reloaded: webhooks: 0 mutating, {} validating"
LAUGHS = "a0: &a0 [x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 40)
)


def webhooks(**fields: object) -> str:
    return webhook_document("validate", "bad", "p", {}, **fields) + ENTRY


TEXTS: dict[str, tuple[str | bytes, str]] = {
    "billion laughs": (LAUGHS, "yaml:7:20: the file has more than 1,000,000 values"),
    "an alias of a long text": (
        f"a: &a {'x' * MIB}\nb: [{', '.join(['*a'] * 100_000)}]\n",
        "yaml:2:245: the file has",
    ),
    "merges of merges": (
        f"a: &a {{{', '.join(f'k{n}: 1' for n in range(9000))}}}\n"
        + "".join(f"m{n}: {{<<: *a}}\n" for n in range(9000)),
        "the file has more than 1,000,000 values",
    ),
    "deep flow": ("[" * MIB, "yaml:1:101: nested deeper than 100 levels"),
    "deep blocks": (
        "".join(" " * n + "a:\n" for n in range(2000)),
        "yaml:101:101: nested deeper than 100 levels",
    ),
    "a text of 15 MiB": (f"a: {'x' * 15 * MIB}", "kind: is required"),
    "a file of 100 MiB": (b"#" * 100 * MIB, "has more than 16 MiB"),
    "a hundred thousand documents": ("--- {}\n" * 100_000, "found 1000 problems; the rest was not read"),
    "a million duplicate keys": ("a: 1\n" * MIB, 'yaml:2:1: duplicate key "a", first in line 1'),
    "unknown fields": (
        ENTRY + "".join(f"f{n}: 1\n" for n in range(50_000)),
        "f0: unknown field; known fields:",
    ),
    "a tag": ("a: !!python/object/apply:os.system [id]\n", 'python/object/apply:os.system" is not supported'),
    "many tags": ("- !!python/name:os.system x\n" * 100_000, "is not supported"),
    "NUL": ("a: \0\n", "yaml:1:4: the character U+0000 is not allowed in YAML"),
    "UTF-16": (ENTRY.encode("utf-16"), "is not UTF-8 text: byte 1 is 0xff"),
    "invalid UTF-8": (b"kind: \xff\n", "is not UTF-8 text: byte 7 is 0xff"),
    "NaN": ("a: .nan\n", "a number has to be finite"),
    "infinity": ("a: 1e999\n", "the number is too large"),
    "5,000 digits": (f"a: {'9' * 5000}\n", "the number is too large"),
    "a name of a megabyte": (ENTRY.replace("name: p", f"name: {'p' * MIB}"), 'metadata.name: found "ppp'),
    "a target of a megabyte": (
        ENTRY.replace("a:1", f"dns:///{'a.' * MIB}:1"),
        'spec.target: found "dns:///a.a.',
    ),
    "100,000 targets twice": (
        ENTRY.replace("a:1", f"[{', '.join(['a:1'] * 100_000)}]"),
        'spec.target[1]: found "a:1" twice',
    ),
    "a bad value among 100,000 of a selector": (
        webhooks(
            objectSelector={
                "matchExpressions": [
                    {"key": "a", "operator": "In", "values": [f"v{n}" for n in range(100_000)] + ["-"]}
                ]
            }
        ),
        'webhooks[0].objectSelector.matchExpressions[0].values[100000]: found "-"',
    ),
}
"""Content of the file, and a part of the error message."""

FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a pipe": (os.mkfifo, "is not a file"),
    "a device": (lambda path: path.symlink_to("/dev/zero"), "is not a file"),
    "a link to nothing": (lambda path: path.symlink_to("nowhere"), "cannot be read: "),
    "a link to itself": (lambda path: path.symlink_to(path), "cannot be read: "),
}


class GatewayUnderLoad:
    """A gateway under load, and a further file of its configuration."""

    def __init__(self, gateway: GatewayProcess) -> None:
        self.gateway = gateway
        self.file = gateway.config / "bad.yaml"

    def refuse(self, message: str) -> None:
        """Reload under load, and expect *message* in the log."""
        log = len(self.gateway.log)
        with Load(self.gateway, GOOD, REVIEW, connections=2) as load:
            load.wait_for(2)
            self.gateway.signal(signal.SIGHUP)
            self.gateway.expect("configuration refused, the one in force stays", after=log)
            load.wait_for(5)
        assert all_well(load.tally), load.tally
        output = self.gateway.log[log:]
        self.gateway.expect(re.escape(message), after=log)
        assert "bad.yaml" in output
        assert "Traceback" not in output
        assert len(output) < MAX_OUTPUT_CHARS


@pytest.fixture(scope="module")
def under_load(
    tmp_path_factory: pytest.TempPathFactory, certificate: tuple[Path, Path], authority: trustme.CA
) -> Iterator[GatewayUnderLoad]:
    with ExitStack() as processes:
        worker = WorkerProcess(SOME_PORT)
        processes.callback(worker.stop)
        folder = configure(
            tmp_path_factory.mktemp("configuration"),
            pool_document("pool", worker.target),
            webhook_document("validate", "good", "pool", {}),
        )
        gateway = GatewayProcess(folder, certificate, authority)
        processes.callback(gateway.stop)
        yield GatewayUnderLoad(gateway)


@pytest.fixture
def put(under_load: GatewayUnderLoad) -> Iterator[GatewayUnderLoad]:
    """The under_load; the file is removed and the configuration reloaded after the test."""
    yield under_load
    log = len(under_load.gateway.log)
    under_load.file.unlink()
    under_load.gateway.signal(signal.SIGHUP)
    under_load.gateway.expect("configuration reloaded", after=log)


def check(path: Path) -> subprocess.CompletedProcess[str]:
    """Run ``admission-gateway check``."""
    command = [sys.executable, "-m", "gateway", "check", "--config", str(path)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def assert_refused(path: Path, message: str) -> None:
    result = check(path)
    output = result.stdout + result.stderr
    assert result.returncode == 1
    assert str(path) in output
    assert message in output
    assert "Traceback" not in output
    assert len(output) < MAX_OUTPUT_CHARS


@pytest.mark.parametrize("name", TEXTS)
def test_a_hostile_file_is_refused_with_its_line(tmp_path: Path, name: str) -> None:
    text, message = TEXTS[name]
    file = tmp_path / "bad.yaml"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    assert_refused(file, message)


@pytest.mark.parametrize("name", FILES)
def test_a_path_that_is_not_a_regular_file_is_refused(tmp_path: Path, name: str) -> None:
    make, message = FILES[name]
    make(tmp_path / "bad.yaml")
    assert_refused(tmp_path / "bad.yaml", message)


@pytest.mark.parametrize(
    "name", ["billion laughs", "deep flow", "unknown fields", "a text of 15 MiB", "UTF-16"]
)
def test_a_hostile_file_leaves_the_active_configuration(put: GatewayUnderLoad, name: str) -> None:
    text, message = TEXTS[name]
    put.file.write_bytes(text.encode() if isinstance(text, str) else text)
    put.refuse(message)


@pytest.mark.parametrize("name", FILES)
def test_a_path_that_is_not_a_regular_file_leaves_the_active_configuration(
    put: GatewayUnderLoad, name: str
) -> None:
    make, message = FILES[name]
    make(put.file)
    put.refuse(message)


def test_a_file_that_changes_while_it_is_read_is_never_used_in_part(under_load: GatewayUnderLoad) -> None:
    text = webhook_document("validate", "more", "pool", *[{}] * 200).encode()
    log = len(under_load.gateway.log)
    with Load(under_load.gateway, GOOD, REVIEW, connections=2) as load:
        with under_load.file.open("wb") as file:
            for begin in range(0, len(text), 4096):
                file.write(text[begin : begin + 4096])
                file.flush()
                under_load.gateway.signal(signal.SIGHUP)
                load.wait_for(1)
        under_load.gateway.expect(LOADED.format(201), after=log)
        under_load.file.unlink()
        under_load.gateway.signal(signal.SIGHUP)
        under_load.gateway.expect(f"{LOADED.format(201)}(.|\\n)*{LOADED.format(1)};", after=log)
    assert all_well(load.tally), load.tally
    counts = re.findall(LOADED.format(r"(\d+)"), under_load.gateway.log[log:])
    assert set(counts) <= {"1", "201"}


def many(folder: Path, count: int, **fields: object) -> None:
    """Write *count* webhooks of pool ``crowded`` in several files."""
    for begin in range(0, count, 10_000):
        name = f"many{begin // 10_000}"
        document = json.loads(webhook_document("validate", name, "crowded", {}, **fields).split("\n---")[0])
        [hook] = document["webhooks"]
        numbers = range(begin, min(count, begin + 10_000))
        document["webhooks"] = [{**hook, "name": f"h{number}.{name}.test"} for number in numbers]
        (folder / f"{name}.json").write_text(json.dumps(document))


WIDGETS = {"operations": ["*"], "apiGroups": ["x.test"], "apiVersions": ["*"], "resources": ["widgets"]}
NEVER = {"rules": [WIDGETS]}
CHECK_CPU_S = 300
"""Far more than needed. It is CPU time, which does not depend on other processes."""


def test_a_hundred_thousand_webhooks_load_within_the_memory_limit(tmp_path: Path) -> None:
    (tmp_path / "pool.yaml").write_text(pool_document("crowded", "127.0.0.1:1"))
    many(tmp_path, 100_000, **NEVER)
    script = (
        "import re, resource, sys, pathlib\n"
        f"resource.setrlimit(resource.RLIMIT_CPU, {(CHECK_CPU_S, CHECK_CPU_S)})\n"
        "from gateway.config.merge.load import load\n"
        "config = load([pathlib.Path(sys.argv[1])])\n"
        # Not ru_maxrss, which starts with the value of the parent process.
        "peak = re.search(r'VmHWM:\\s*(\\d+) kB', pathlib.Path('/proc/self/status').read_text())[1]\n"
        "print(len(config.validating), peak)\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    printed = subprocess.check_output(command, cwd=ROOT, text=True)
    count, peak_kib = map(int, printed.split())
    assert count == 100_000
    assert peak_kib < 700 * 1024


@pytest.mark.parametrize(("matching", "failure_policy"), [(False, "Fail"), (True, "Fail"), (True, "Ignore")])
def test_twenty_thousand_webhooks_are_loaded_and_called_under_load(
    tmp_path: Path,
    start_worker: StartWorker,
    start_gateway: StartGateway,
    matching: bool,
    failure_policy: str,
) -> None:
    folder = configure(
        tmp_path,
        pool_document("pool", start_worker(SOME_PORT).target),
        pool_document("crowded", start_worker(SOME_PORT).target),
        webhook_document("validate", "good", "pool", {}),
    )
    gateway = start_gateway(folder)
    ready = tmp_path / "..ready"
    ready.mkdir()
    # The worker of the webhooks that match takes a thousand calls at once. The load has another worker.
    many(ready, 20_000, failurePolicy=failure_policy, timeoutSeconds=5, **({} if matching else NEVER))
    with Load(gateway, GOOD, REVIEW, connections=2) as load:
        load.wait_for(5)
        log = len(gateway.log)
        for file in ready.iterdir():
            shutil.move(file, folder / file.name)
        gateway.signal(signal.SIGHUP)
        gateway.expect(LOADED.format(20_001), after=log)
        answered = gateway.review("/validate?timeout=20s", REVIEW)
        load.wait_for(5)
    assert all_well(load.tally), load.tally
    if not matching:
        assert answered == {"uid": answered["uid"], "allowed": True}
    elif failure_policy == "Fail":
        assert answered["status"]["code"] == 500
        assert "RESOURCE_EXHAUSTED" in answered["status"]["message"]
        assert len(answered["status"]["message"]) < MAX_OUTPUT_CHARS
    else:
        assert answered["allowed"]
    assert "Traceback" not in gateway.log
