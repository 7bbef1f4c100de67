"""Sinks of the decision log: bounds, a blocked or failing sink, and files that processes share."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

from gateway.config.kinds.logging_settings import DecisionFile
from gateway.observe.decisions import writer
from gateway.observe.decisions.writer import DescriptorSink, FileSink, Writer
from tests.kit import PATIENCE_S, ROOT
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pytest


class Gate:
    """A sink that blocks until it is opened, or fails."""

    name = "gate"

    def __init__(self, *, is_broken: bool = False) -> None:
        self.is_open = threading.Event()
        self.is_broken = is_broken
        self.written: list[str] = []

    def write(self, items: Sequence[str]) -> None:
        assert self.is_open.wait(PATIENCE_S)
        if self.is_broken:
            raise OSError(28, "No space left on device")
        self.written += items

    def close(self) -> None:
        self.written.append("closed")


async def test_a_blocked_sink_drops_records_counts_them_and_says_so_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(writer, "MAX_QUEUED", 10)
    monkeypatch.setattr(writer, "FLUSH_S", 0.0)
    gate = Gate()
    counted: list[int] = []
    under_test = Writer(gate, lambda number: f"{number} dropped", counted.append)
    under_test.write(("first",))
    await until(lambda: not under_test._waiting)
    under_test.write(list(map(str, range(7))))
    for more in (range(7, 13), range(13, 15)):  # the first has room for three
        under_test.write(list(map(str, more)))
    assert sum(counted) == 5
    gate.is_open.set()
    await until(lambda: len(gate.written) >= 12)
    await asyncio.to_thread(under_test.close().join, PATIENCE_S)
    assert gate.written == ["first", *map(str, range(10)), "5 dropped", "closed"]


async def test_records_that_were_dropped_while_the_sink_wrote_are_reported_without_further_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(writer, "FLUSH_S", 0.0)
    monkeypatch.setattr(writer, "DROPPED_S", 0.0)
    gate = Gate()
    under_test = Writer(gate, lambda number: f"{number} dropped", lambda number: None)
    under_test.write(("first",))
    await until(lambda: not under_test._waiting)
    under_test.drop(3)
    gate.is_open.set()
    await until(lambda: gate.written == ["first", "3 dropped"])
    await asyncio.to_thread(under_test.close().join, PATIENCE_S)


async def test_a_failing_sink_is_logged_once_and_its_records_are_counted(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "FLUSH_S", 0.0)
    monkeypatch.setattr(writer, "DROPPED_S", 0.0)
    gate = Gate(is_broken=True)
    gate.is_open.set()
    counted: list[int] = []
    under_test = Writer(gate, lambda number: f"{number} dropped", counted.append)
    under_test.write(("one",))
    await until(lambda: len(counted) > 3)
    gate.is_broken = False
    await until(lambda: gate.written)
    await asyncio.to_thread(under_test.close().join, PATIENCE_S)
    assert gate.written[0].endswith("dropped")
    assert [record.getMessage() for record in caplog.records] == [
        "records are dropped: decision log: gate: [Errno 28] No space left on device"
    ]


async def test_a_reader_that_stops_reading_blocks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "MAX_QUEUED", 100)
    reading, writing = os.pipe()
    counted: list[int] = []
    under_test = Writer(DescriptorSink(writing), lambda number: b"%d\n" % number, counted.append)
    while not counted:  # the pipe takes 64 KiB, the queue 100 records
        under_test.write((b"x" * 4095 + b"\n",))
        await asyncio.sleep(0)
    thread = under_test.close()
    os.close(reading)
    await asyncio.to_thread(thread.join, PATIENCE_S)
    assert not thread.is_alive()
    os.close(writing)


def test_lines_are_written_in_order() -> None:
    reading, writing = os.pipe()
    DescriptorSink(writing).write([b"a" * 3000 + b"\n", b"b" * 3000 + b"\n", b"c\n"])
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        assert [line[:1] for line in pipe] == [b"a", b"b", b"c"]


def test_a_full_file_is_renamed_and_so_many_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    sink = FileSink(DecisionFile(path, 100, 2))
    for number in range(50):
        sink.write([b"%049d\n" % number])
    assert sorted(one.name for one in tmp_path.iterdir()) == ["d.jsonl", "d.jsonl.1", "d.jsonl.2"]
    assert [int(line) for line in path.read_text().split()] == [48, 49]
    assert [int(line) for line in path.with_name("d.jsonl.2").read_text().split()] == [44, 45]


def test_a_file_without_older_ones_begins_anew(tmp_path: Path) -> None:
    sink = FileSink(DecisionFile(tmp_path / "d.jsonl", 100, 0))
    sink.write([b"%049d\n" % number for number in range(5)])
    assert [one.read_bytes() for one in tmp_path.iterdir()] == [b"%049d\n" % 4]


def test_a_file_that_another_program_renames_is_opened_again(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    sink = FileSink(DecisionFile(path))
    sink.write([b"one\n"])
    path.rename(tmp_path / "old")
    sink.write([b"two\n"])
    assert path.read_bytes() == b"two\n"


WRITE = """
import pathlib, sys
from gateway.config.kinds.logging_settings import DecisionFile
from gateway.observe.decisions.writer import FileSink
sink = FileSink(DecisionFile(pathlib.Path(sys.argv[1]), 2000, 1000))
for number in range(300):
    sink.write([f"{sys.argv[2]} {number} {'x' * 30}\\n".encode()])
"""


def test_processes_share_a_file_and_lose_no_line(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    children = [
        subprocess.Popen([sys.executable, "-c", WRITE, str(path), name], cwd=ROOT) for name in ("a", "b", "c")
    ]
    assert [child.wait(PATIENCE_S) for child in children] == [0, 0, 0]
    lines = [line.split() for file in tmp_path.iterdir() for line in file.read_text().splitlines()]
    assert sorted((name, int(number)) for name, number, _ in lines) == [
        (name, number) for name in ("a", "b", "c") for number in range(300)
    ]
    assert all(file.stat().st_size <= 2000 for file in tmp_path.iterdir())
