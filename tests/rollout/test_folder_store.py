"""States and evidence in a folder: one writer of several wins, and what is damaged does not stay."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from gateway.server.rollout import folder_store, store
from gateway.server.rollout.folder_store import FolderStore
from gateway.server.rollout.store import EVIDENCE, Stored, StoreError
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
        await writer.put_evidence("host-1", {"reviews": 3})
        await until(lambda: "a" in reader.states and "host-1" in reader.evidence)
        assert reader.evidence["host-1"].document == {"reviews": 3}
        await writer.put_evidence("host-1", {"reviews": 4})
        await until(lambda: reader.evidence["host-1"].document == {"reviews": 4})
        assert changes
    finally:
        await reader.close()


async def test_evidence_that_changes_is_not_removed(tmp_path: Path) -> None:
    one = FolderStore(tmp_path / "plans")
    await one.put_evidence("p", {"reviews": 1})
    await one.look()
    old = one.evidence["p"]
    await one.put_evidence("p", {"reviews": 2})
    await one.remove(EVIDENCE, old)
    await one.look()
    assert one.evidence["p"].document == {"reviews": 2}
    await one.remove(EVIDENCE, one.evidence["p"])
    await one.look()
    assert one.evidence == {}


async def test_what_is_kept_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_store, "MAX_EVIDENCE", 2)
    monkeypatch.setattr(folder_store, "MAX_BYTES", 1000)
    one = FolderStore(tmp_path / "plans")
    await one.put_evidence("p", {})
    await one.put_evidence("q", {})
    with pytest.raises(StoreError, match="has the evidence of 2 processes already"):
        await one.put_evidence("r", {})
    await one.put_evidence("q", {"reviews": 1})
    with pytest.raises(StoreError, match="expected at most 1000"):
        await one.replace("a", None, {"text": "x" * 1000})
    assert store.MAX_BYTES > 1000


async def test_a_damaged_file_counts_as_none_and_is_replaced(tmp_path: Path) -> None:
    async with opened(tmp_path / "plans") as one:
        (tmp_path / "plans" / "states" / "a.json").write_text("{")
        await one.look()
        assert one.states == {}
        assert await one.replace("a", None, {"step": 0})
        assert one.states == {"a": Stored("a", {"step": 0}, "1")}


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
