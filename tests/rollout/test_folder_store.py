"""States and evidence in a folder: one writer of several wins, and what is damaged does not stay."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from gateway.server.rollout import folder_store, process_evidence, store
from gateway.server.rollout.folder_store import FolderStore
from gateway.server.rollout.process_evidence import UNSEEN, SeenPlan
from gateway.server.rollout.store import EVIDENCE, Stored, StoreError, StoreFullError
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

WRITERS = 8


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[FolderStore]:
    found = FolderStore(path)
    await found.start()
    try:
        await found.look()
        yield found
    finally:
        await found.close()


async def test_of_several_writers_of_a_version_one_wins(tmp_path: Path) -> None:
    folder, before = tmp_path / "plans", None
    stores = [FolderStore(folder) for _ in range(WRITERS)]
    for _ in range(3):
        results = await asyncio.gather(
            *(one.replace("a", before, {"writer": number}) for number, one in enumerate(stores))
        )
        assert sum(results) == 1
        await asyncio.gather(*(one.look() for one in stores))
        assert {one.states["a"].document["writer"] for one in stores} == {results.index(True)}
        before = stores[0].states["a"]


async def test_a_late_write_has_no_effect(tmp_path: Path) -> None:
    one = FolderStore(tmp_path / "plans")
    assert await one.replace("a", None, {"step": 0})
    first = one.states["a"]
    assert await one.replace("a", first, {"step": 1})
    assert not await one.replace("a", first, {"step": 2})
    assert not await one.replace("a", None, {"step": 2})
    assert one.states["a"].document == {"step": 1}


async def test_changes_of_other_processes_are_observed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_store, "LOOK_S", 0.005)
    changes: list[None] = []
    reader = FolderStore(tmp_path / "plans", lambda: changes.append(None))
    await reader.start()
    try:
        await until(lambda: reader.is_synced)
        writer = FolderStore(tmp_path / "plans")
        await writer.replace("a", None, {"step": 0})
        await writer.put_evidence("host-1", {})
        await until(lambda: "a" in reader.states and "host-1" in reader.evidence)
        assert not reader.evidence["host-1"].has_ended
        await writer.put_evidence("host-1", {"ended": True})
        await until(lambda: reader.evidence["host-1"].has_ended)
        assert changes
    finally:
        await reader.close()


async def test_evidence_that_changes_is_not_removed(tmp_path: Path) -> None:
    one = FolderStore(tmp_path / "plans")
    await one.put_evidence("p", {})
    await one.look()
    old = one.evidence["p"]
    await one.put_evidence("p", {"ended": True})
    await one.remove(EVIDENCE, old)
    await one.look()
    assert one.evidence["p"].has_ended
    await one.remove(EVIDENCE, one.evidence["p"])
    await one.look()
    assert one.evidence == {}


async def test_what_is_kept_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_evidence, "_MAX_EVIDENCE", 2)
    monkeypatch.setattr(store, "_MAX_STATES", 2)
    monkeypatch.setattr(folder_store, "MAX_BYTES", 1000)
    one = FolderStore(tmp_path / "plans")
    for name in "pqr":
        await one.put_evidence(name, {})
        assert not one.excess
    await one.look()
    assert len(one.evidence) == 2
    assert "evidence of more processes than 2, or of 64 MiB" in one.excess
    with pytest.raises(StoreFullError, match="the others are not read"):
        await one.put_evidence("s", {})
    await one.put_evidence("r", {"ended": True})
    await one.remove(EVIDENCE, one.evidence[min(one.evidence)])
    await one.look()
    assert (len(one.evidence), one.excess) == (2, "")
    with pytest.raises(StoreError, match="expected at most 1000"):
        await one.replace("a", None, {"text": "x" * 1000})
    assert store.MAX_BYTES > 1000
    for name in "abc":
        assert await one.replace(name, None, {})
    assert "has more states than 2" in one.fault
    assert set(one.states) == {"a", "b"}


async def test_a_damaged_file_counts_as_none_and_is_replaced(tmp_path: Path) -> None:
    async with opened(tmp_path / "plans") as one:
        (tmp_path / "plans" / "states" / "a.json").write_text("{")
        await one.look()
        assert one.states == {}
        assert await one.replace("a", None, {"step": 0})
        assert one.states == {"a": Stored("a", {"step": 0}, "1")}


async def test_files_that_no_process_writes_are_not_read(tmp_path: Path) -> None:
    """Not what would block a reader, is elsewhere, nests too deep or has an odd version."""
    async with opened(tmp_path / "plans") as one:
        assert await one.replace("good", None, {"step": 0})
        states, evidence = tmp_path / "plans" / "states", tmp_path / "plans" / "evidence"
        for folder in (states, evidence):
            os.mkfifo(folder / "pipe.json")
            (folder / "link.json").symlink_to(states / "good.json")
            (folder / "folder.json").mkdir()
            (folder / "deep.json").write_text(f'{{"version": 1, "document": {"[" * 2000}')
            for name, version in (("large", 2**64 - 1), ("below", -1), ("text", '"1"'), ("none", "NaN")):
                (folder / f"{name}.json").write_text(f'{{"version": {version}, "document": {{}}}}')
        nested = f"{'[' * 500}{']' * 500}"
        part = f'{{"generation": 1, "window": null, "part": {nested}}}'
        plans = f'{{"{"x" * 65}": {part}, "a": {part}, "b": [], "ü": {{"generation": "g"}}}}'
        (evidence / "odd.json").write_text(f'{{"version": 1, "document": {{"plans": {plans}}}}}')
        await one.look()
        assert not one.fault
        assert set(one.states) == {"good"}
        (odd,) = one.evidence.values()
        assert odd.plans == {"a": UNSEEN, "ü": SeenPlan("g", "", b"null")}
        assert await one.replace("link", None, {"step": 1})
        assert not (states / "link.json").is_symlink()
        assert one.states["good"].document == {"step": 0}


async def test_a_folder_that_others_can_write_is_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "plans"
    folder.mkdir()
    folder.chmod(0o777)
    async with opened(folder) as one:
        assert one.fault == f"{folder} can be written by other users"
        assert not one.is_synced
        with pytest.raises(StoreError, match="can be written by other users"):
            await one.replace("a", None, {})
    assert [line for line in caplog.messages if "keep the stages that they have" in line]
    assert list(folder.iterdir()) == []
