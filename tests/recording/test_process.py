"""Recordings of running gateways."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gateway.observe.recording.reader import Reading, read_recording
from tests.decisions.test_process import configure
from tests.faults.rotating import settings_document
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.faults.kit import StartWorker
    from tests.kit import StartGateway

pytestmark = pytest.mark.process


def record(folder: Path, **members: Any) -> None:
    """Add ``record`` to the configuration in *folder*, which has no GatewayConfiguration."""
    settings = settings_document(record={"folder": "recordings", **members}) if members else ""
    (folder / "settings.yaml").write_text(settings)


def lines(folder: Path) -> list[Any]:
    """Return the recorded reviews in *folder*."""
    if not folder.exists():
        return []
    return [line for path in sorted(folder.iterdir()) for line in read_recording(path, Reading())]


def test_the_processes_of_a_gateway_record_to_one_folder_and_follow_a_reload(
    tmp_path: Path, start_gateway: StartGateway, start_worker: StartWorker
) -> None:
    target, folder = start_worker().target, tmp_path / "recordings"
    configure(tmp_path, target)
    record(tmp_path, samplePercent=100)
    gateway = start_gateway(tmp_path, "--processes", "2")
    for _ in range(20):
        gateway.review("/validate/allow", "pod-create-validate")
    gateway.review("/validate/deny", "pod-create-validate")
    eventually(lambda: len(lines(folder)) == 21)
    assert gateway.metric("admission_gateway_recorded_reviews_total") == 21
    found = lines(folder)
    assert sum(line["allowed"] for line in found) == 20
    (denied,) = (line for line in found if not line["allowed"])
    assert denied["webhooks"][0]["message"] == "no"
    assert denied["request"]["object"]["kind"] == "Pod"
    record(tmp_path)
    eventually(lambda: gateway.log.count("configuration reloaded") == 2)
    gateway.review("/validate/deny", "pod-create-validate")
    gateway.stop()
    assert len(lines(folder)) == 21


def test_the_last_reviews_are_written_before_the_process_ends(
    tmp_path: Path, start_gateway: StartGateway, start_worker: StartWorker
) -> None:
    configure(tmp_path, start_worker().target)
    record(tmp_path, perCombination=3, samplePercent=0)
    gateway = start_gateway(tmp_path)
    for _ in range(5):
        gateway.review("/validate/open", "pod-create-validate")
    gateway.stop()
    found = lines(tmp_path / "recordings")
    assert [line["webhooks"][0]["outcome"] for line in found] == ["FailedOpen"] * 3
    assert not any(line["sampled"] for line in found)
