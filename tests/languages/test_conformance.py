"""The conformance kit with the samples of each language, on each kind of address."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
import trustme

from tests.kit import ROOT
from tests.languages.kit import SOME_PORT, Sample

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.languages.toolchains import Language

WITHIN_S = 400.0
"""The timeout of a run of the kit with keepalive."""
KEEPALIVE = "Keepalive"
"""The group of rules that take two minutes and have their own test."""
ONLY_UNIX = {"stop-socket"}
"""Rules for unix sockets only."""


def checked(*arguments: str) -> dict[str, Any]:
    """Run the kit and return its report."""
    done = subprocess.run(
        [sys.executable, "-m", "gateway", "conformance", "--json", "--patience", "10", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    assert done.stdout, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == (1 if report["fails"] else 0)
    return report


def broken(report: dict[str, Any], allowed: set[str]) -> list[str]:
    """Return the rules of *report* that do not hold, except unchecked rules and groups in *allowed*."""
    return [
        json.dumps(rule, indent=2)
        for rule in report["rules"]
        if rule["result"] != "holds"
        and not (rule["result"] == "notChecked" and {rule["rule"], rule["group"]} & allowed)
    ]


@pytest.fixture(scope="module")
def client(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The kit's options for a worker with mTLS."""
    folder = tmp_path_factory.mktemp("client")
    issued = authority.issue_cert("gateway", key_type=trustme.KeyType.ECDSA)
    issued.cert_chain_pems[0].write_to_path(str(folder / "tls.crt"))
    issued.private_key_pem.write_to_path(str(folder / "tls.key"))
    return ["--cert-file", str(folder / "tls.crt"), "--key-file", str(folder / "tls.key")]


@pytest.fixture(scope="module")
def authority_file(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("authority") / "ca.crt"
    authority.cert_pem.write_to_path(str(file))
    return str(file)


@pytest.mark.parametrize("address", ["tcp", "unix", "tls", "mtls"])
def test_the_samples_keep_to_every_rule(
    tmp_path_factory: pytest.TempPathFactory,
    start_sample: Callable[..., Sample],
    certificate: tuple[Path, Path],
    authority_file: str,
    client: list[str],
    language: Language,
    address: str,
) -> None:
    worker_tls = ["--tls-cert", str(certificate[0]), "--tls-key", str(certificate[1])]
    kit_tls = ["--ca-file", authority_file]
    if address == "tcp":
        worker_tls, kit_tls = [], []
    elif address == "mtls":
        worker_tls += ["--client-ca", authority_file]
        kit_tls += client
    if address == "unix":
        sample = start_sample(language, f"unix:{tmp_path_factory.mktemp('u')}/s")
        report = checked(sample.target, "--pid", str(sample.child.pid))
    else:
        sample = start_sample(language, SOME_PORT, *worker_tls)
        report = checked(sample.target, *kit_tls, "--pid", str(sample.child.pid))
    found = broken(report, {KEEPALIVE, *(() if address == "unix" else ONLY_UNIX)})
    assert not found, "\n".join([*found, sample.log[-4000:]])
    # The kit has stopped the worker.
    assert sample.wait() == 0, sample.log


def test_pings_in_silence_are_allowed(present: list[Language], start_sample: Callable[..., Sample]) -> None:
    """All languages are checked at once, because the test waits for a minute and a half."""
    started = [start_sample(language) for language in present]
    known = checked(started[0].target)["rules"]
    only = [word for rule in known if rule["group"] == KEEPALIVE for word in ("--only", rule["rule"])]
    assert only
    with ThreadPoolExecutor(len(started)) as threads:
        reports = list(threads.map(lambda sample: checked(sample.target, "--keepalive", *only), started))
    found = {
        sample.language.name: broken(report, set()) for sample, report in zip(started, reports, strict=True)
    }
    assert not any(found.values()), found
