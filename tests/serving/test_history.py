"""Kept configurations: what is kept, what is dropped, and files that are damaged."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gateway.config.merge.custom_resource import CustomResource
from gateway.config.merge.digest import digest
from gateway.config.merge.load import load
from gateway.config.merge.merged import merge, merge_pinned, resources_in_force
from gateway.config.merge.model import Config, Pinned
from gateway.config.merge.read import read
from gateway.server import history as module
from gateway.server.history import History, HistoryError
from gateway.server.options import Options, PinError
from tests.config.test_custom import pool, validating

if TYPE_CHECKING:
    from collections.abc import Sequence

HOOK = """\
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: v}
webhooks:
  - name: a.hooks.test
    clientConfig: {worker: {pool: p, policy: x}}
    rules: [{operations: ["*"], apiGroups: ["*"], apiVersions: ["*"], resources: ["*"]}]
    matchConditions: [{name: one, expression: "object.metadata.name != 'a'"}]
    sideEffects: None
    admissionReviewVersions: [v1]
    timeoutSeconds: TIMEOUT
---
apiVersion: admission-gateway.io/v1alpha1
kind: WorkerPool
metadata: {name: p}
spec: {target: "127.0.0.1:1"}
"""


def written(folder: Path, timeout_s: int) -> Path:
    file = folder / "a.yaml"
    file.write_text(HOOK.replace("TIMEOUT", str(timeout_s)))
    return file


def keep(history: History, folder: Path, timeout_s: int, resources: Sequence[CustomResource] = ()) -> str:
    config = load([written(folder, timeout_s)])
    found = digest(config)
    history.record(config, resources, found, ["a.yaml"], "one webhook")
    return found


def test_a_kept_configuration_is_restored_with_the_same_digest(tmp_path: Path) -> None:
    history = History(tmp_path / "state")
    kept = keep(history, tmp_path, 3)
    (entry,) = history.entries()
    assert (entry.digest, entry.summary, entry.sources, entry.problem) == (
        kept,
        "one webhook",
        ("a.yaml",),
        "",
    )
    restored = read(history.load(kept).documents)
    assert digest(restored) == kept
    assert restored.validating[0].timeout_s == 3


def test_the_files_belong_to_the_owner_alone(tmp_path: Path) -> None:
    history = History(tmp_path / "state")
    history.set_pin(keep(history, tmp_path, 3))
    history.announce()
    assert stat.S_IMODE(history.folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in history.folder.iterdir()} == {0o600}


def test_the_newest_come_first_whatever_the_clock_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = History(tmp_path / "state")
    times = iter(
        ["2030-01-01T00:00:00Z", "1999-01-01T00:00:00Z", "2010-01-01T00:00:00Z", "1970-01-01T00:00:00Z"]
    )
    monkeypatch.setattr(module, "rfc3339", lambda _: next(times))
    first, second, third = (keep(history, tmp_path, number) for number in (1, 2, 3))
    assert [entry.digest for entry in history.entries()] == [third, second, first]
    assert keep(history, tmp_path, 1) == first
    assert [entry.digest for entry in history.entries()] == [first, third, second]


def test_the_oldest_are_dropped_and_the_pinned_one_is_not(tmp_path: Path) -> None:
    history = History(tmp_path / "state")
    kept = [keep(history, tmp_path, 1)]
    history.set_pin(kept[0])
    kept += [keep(history, tmp_path, number) for number in range(2, 20)]
    assert [entry.digest for entry in history.entries()] == [*kept[: -module.MAX_KEPT - 1 : -1], kept[0]]


def test_all_together_have_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    history = History(tmp_path / "state")
    keep(history, tmp_path, 1)
    (size,) = (file.stat().st_size for file in history.folder.iterdir())
    monkeypatch.setattr(module, "MAX_BYTES", 2 * size + size // 2)
    second, third = keep(history, tmp_path, 2), keep(history, tmp_path, 3)
    assert [entry.digest for entry in history.entries()] == [third, second]
    monkeypatch.setattr(module, "MAX_BYTES", size // 2)
    with pytest.raises(HistoryError, match="more than"):
        keep(history, tmp_path, 4)
    assert len(history.entries()) == 2


@pytest.mark.parametrize("damage", ["empty", "cut", "text", "other", "bomb"])
def test_a_damaged_file_is_named_and_affects_no_other(
    tmp_path: Path, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = History(tmp_path / "state")
    good, bad = keep(history, tmp_path, 1), keep(history, tmp_path, 2)
    file = history.folder / f"{bad}.json.gz"
    content = file.read_bytes()
    if damage == "bomb":
        monkeypatch.setattr(module, "MAX_CONTENT_BYTES", 100)
    else:
        other = (history.folder / f"{good}.json.gz").read_bytes()
        file.write_bytes({"empty": b"", "cut": content[:-20], "text": b"{}", "other": other}[damage])
    entries = {entry.digest: entry.problem for entry in history.entries()}
    assert entries[bad]
    assert damage == "bomb" or not entries[good]
    if damage != "other":
        with pytest.raises(HistoryError):
            history.load(bad)


def test_a_folder_that_others_can_write_is_not_used(tmp_path: Path) -> None:
    history = History(tmp_path / "state")
    history.set_pin(keep(history, tmp_path, 1))
    assert history.pin() is not None
    history.folder.chmod(0o770)
    assert history.pin() is None
    with pytest.raises(HistoryError, match="can be written by other users"):
        keep(history, tmp_path, 2)
    history.folder.chmod(0o700)
    moved = history.folder.rename(tmp_path / "elsewhere")
    history.folder.symlink_to(moved)
    assert history.pin() is None


def test_a_full_disk_leaves_what_was_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    history = History(tmp_path / "state")
    kept = keep(history, tmp_path, 1)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(HistoryError, match="No space left"):
        keep(history, tmp_path, 2)
    assert [entry.digest for entry in history.entries()] == [kept]
    assert {file.name for file in history.folder.iterdir()} == {f"{kept}.json.gz"}


def test_a_pinned_gateway_loads_the_kept_configuration(tmp_path: Path) -> None:
    state = tmp_path / "state"
    options = Options(config=(written(tmp_path, 1),), state=state, keeps_history=True)
    history = History(state)
    kept = keep(history, tmp_path, 1)
    written(tmp_path, 9)
    before = options.fingerprint()
    assert options.load().validating[0].timeout_s == 9
    history.set_pin(kept)
    assert options.fingerprint() != before
    config = options.load()
    assert config.validating[0].timeout_s == 1
    assert config.pinned is not None
    assert any("rollback --release" in warning.message for warning in config.warnings)
    history.release()
    assert options.load().validating[0].timeout_s == 9


def test_a_pin_that_cannot_be_used_is_refused_and_at_the_start_a_warning(tmp_path: Path) -> None:
    state = tmp_path / "state"
    options = Options(config=(written(tmp_path, 9),), state=state, keeps_history=True)
    history = History(state)
    kept = keep(history, tmp_path, 1)
    written(tmp_path, 9)
    history.set_pin(kept)
    (history.folder / f"{kept}.json.gz").write_bytes(b"nonsense")
    with pytest.raises(PinError, match="damaged"):
        options.load()
    config = options.load_first()
    assert config.validating[0].timeout_s == 9
    assert config.pinned is None
    assert "damaged" in str(config.warnings[0])


def test_without_a_state_folder_nothing_is_kept(tmp_path: Path) -> None:
    options = Options(config=(written(tmp_path, 9),), state=tmp_path / "state")
    assert options.history is None
    assert options.load().pinned is None


def test_pinned_custom_resources_are_those_that_were_in_force(tmp_path: Path) -> None:
    history = History(tmp_path / "state")
    files = load([written(tmp_path, 3)])
    good = merge(files, [pool("q"), validating("w", uid="1")], None)
    broken = validating("w", uid="1", generation=2)
    broken = CustomResource(broken.kind, broken.name, {**broken.document, "webhooks": [{"name": "bad"}]})
    half = merge(files, [pool("q"), broken], good)
    in_force = resources_in_force(half)
    assert [one.key for one in in_force] == [one.resource.key for one in half.statuses]
    history.record(files, in_force, digest(half.config), [], "")
    kept = history.load(digest(half.config))
    restored = read(kept.documents)
    pinned = Pinned(digest(half.config), "2026-01-01T00:00:00Z", kept.resources)
    live = [pool("q", target="elsewhere:1"), broken, pool("new")]
    merged = merge_pinned(restored, pinned, live, None, 0.0)
    assert digest(merged.config) == digest(half.config)
    reasons = {status.resource.name: (status.reason, status.note) for status in merged.statuses}
    assert {reason for reason, _ in reasons.values()} == {"Pinned"}
    assert "pinned to the configuration" in reasons["q"][1]
    assert merged.config.pools.keys() == Config(pools=half.config.pools).pools.keys()


def test_a_process_that_has_ended_is_not_signalled(tmp_path: Path) -> None:
    history = History(tmp_path / "state")
    assert history.gateway_pid() is None
    history.announce()
    assert history.gateway_pid() == os.getpid()
    history.report(0, "d", "", "")
    assert [report["digest"] for report in history.reports()] == ["d"]
    # The id was given to another process, which has another start time.
    for name in ("gateway", "process-0"):
        file = Path(history.folder / f"{name}.json")
        file.write_text(file.read_text().replace('"started":"', '"started":"1'))
    assert history.gateway_pid() is None
    assert history.reports() == []
