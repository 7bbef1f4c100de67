"""The decision log of running gateways."""

from __future__ import annotations

import http.client
import json
import re
import ssl
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import pytest

from tests.faults.rotating import settings_document
from tests.kit import PATIENCE_S, REVIEWS, ROOT, pool_document, webhook_document
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    import trustme

    from tests.faults.kit import StartWorker
    from tests.kit import StartGateway

pytestmark = pytest.mark.process

DENY = {"deny": {"code": 403, "message": "no"}}
FAIL = {"status": "UNAVAILABLE", "details": "out of order"}
OPEN = {**FAIL, "webhook": {"failurePolicy": "Ignore"}}


def configure(folder: Path, target: str, **logging: Any) -> None:
    """Write a configuration with a path for each script, and one that allows."""
    scripts: dict[str, dict[str, Any]] = {"deny": DENY, "fail": FAIL, "open": OPEN, "allow": {}}
    documents = [webhook_document("validate", name, "pool", script) for name, script in scripts.items()]
    settings = settings_document(logging=logging) if logging else ""
    (folder / "c.yaml").write_text(settings + pool_document("pool", target) + "".join(documents))


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.smoke
def test_denials_failures_fail_opens_and_refused_requests_are_logged_by_default(
    tmp_path: Path, start_gateway: StartGateway, start_worker: StartWorker
) -> None:
    configure(tmp_path, start_worker().target)
    gateway = start_gateway(tmp_path)
    for name in ("deny", "fail", "open", "allow"):
        gateway.review(f"/validate/{name}", "pod-create-validate")
    assert gateway.exchange("/validate", b"{}")[0] == 400
    assert gateway.exchange("/nowhere", b"{}")[0] == 404
    gateway.expect(
        r"Z decision Denied: CREATE v1 Pod default/p1 by admin \[webhook=deny/h0\.deny\.test .*: no\n"
    )
    gateway.expect(r"Z decision FailedClosed: .* UNAVAILABLE: out of order\n")
    gateway.expect(r"Z decision FailedOpen: .*UNAVAILABLE: out of order\n")
    gateway.expect(r"Z decision Refused: 400 at /validate: the body is not an AdmissionReview\n")
    gateway.expect(r"Z decision Refused: 404 at /nowhere: ")
    gateway.stop()
    assert "decision Allowed" not in gateway.log
    assert gateway.log.count(" decision ") == 5


def test_the_processes_of_a_gateway_share_a_file_and_follow_a_reload(
    tmp_path: Path, start_gateway: StartGateway, start_worker: StartWorker
) -> None:
    target, path = start_worker().target, tmp_path / "decisions.jsonl"
    configure(tmp_path, target, decisions="All", decisionLog={"file": {"path": str(path)}})
    gateway = start_gateway(tmp_path, "--processes", "2")
    for _ in range(40):
        gateway.review("/validate/allow", "pod-create-validate")
    # The last line may lack its end.
    eventually(lambda: path.exists() and path.read_bytes().count(b"\n") == 40)
    assert {record["outcome"] for record in records(path)} == {"Allowed"}
    assert gateway.metric("admission_gateway_decision_log_records_total") == 40
    configure(tmp_path, target, decisions="None")
    eventually(lambda: gateway.log.count("configuration reloaded") == 2)
    gateway.review("/validate/deny", "pod-create-validate")
    gateway.stop()
    assert len(records(path)) == 40
    assert " decision " not in gateway.log


def test_the_last_records_are_written_before_the_process_ends(
    tmp_path: Path, start_gateway: StartGateway, start_worker: StartWorker
) -> None:
    path = tmp_path / "decisions.jsonl"
    configure(tmp_path, start_worker().target, decisionLog={"file": {"path": str(path)}})
    gateway = start_gateway(tmp_path)
    gateway.review("/validate/deny", "pod-create-validate")
    gateway.stop()
    assert [record["outcome"] for record in records(path)] == ["Denied"]


@pytest.mark.slow
def test_a_reader_of_standard_error_that_stops_reading_delays_no_review(
    tmp_path: Path, start_worker: StartWorker, certificate: tuple[Path, Path], authority: trustme.CA
) -> None:
    """The pipe holds 64 KiB, and 4,000 records wait at most. The others are counted, and a record says so."""
    log = {"maxPerSecond": 1_000_000}
    configure(tmp_path, start_worker().target, decisions="All", format="json", decisionLog=log)
    command = (
        *(sys.executable, "-m", "gateway", "serve", "--config", str(tmp_path)),
        *("--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"),
        *("--tls-cert", str(certificate[0]), "--tls-key", str(certificate[1])),
    )
    context = ssl.create_default_context()
    authority.configure_trust(context)
    review = (REVIEWS / "pod-create-validate.json").read_bytes()
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE) as gateway:
        assert gateway.stderr is not None
        found = None
        while found is None:
            found = re.search(
                rb"https://127\.0\.0\.1:(\d+), admin on http://127\.0\.0\.1:(\d+)", gateway.stderr.readline()
            )
        port, admin_port = int(found[1]), int(found[2])
        connection = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=PATIENCE_S)
        with closing(connection):
            while (
                "decision_log_dropped_total{"
                not in urlopen(f"http://127.0.0.1:{admin_port}/metrics").read().decode()
            ):
                for _ in range(500):
                    connection.request(
                        "POST", "/validate/allow", review, {"Content-Type": "application/json"}
                    )
                    assert connection.getresponse().read().startswith(b'{"kind":"AdmissionReview"')
        gateway.terminate()
        assert b'"outcome":"Dropped"' in gateway.stderr.read()
