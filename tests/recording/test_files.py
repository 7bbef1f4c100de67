"""Files of recordings: bounds, several writers of a folder, and what a reader finds in damaged ones."""

from __future__ import annotations

import functools
import gzip
import os
import random
import stat
import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.config.kinds.record_settings import RecordSettings
from gateway.observe.recording import lines
from gateway.observe.recording.files import NEW_FILE_S, RecordingFiles
from gateway.observe.recording.reader import MAX_LINE_BYTES, Reading, UnreadableRecordingError, read_recording
from gateway.observe.recording.redaction import Marks
from tests.kit import ROOT

if TYPE_CHECKING:
    from pathlib import Path

MARKS = Marks(b"k" * 16)


def writer(folder: Path, clock: Any = None, **members: Any) -> RecordingFiles:
    chosen = RecordSettings(folder, **members)
    times = {} if clock is None else {"clock": clock}
    return RecordingFiles(chosen, partial(lines.header, chosen, MARKS), **times)


def review(number: int, text: str = "") -> bytes:
    return orjson.dumps({"type": "review", "request": {"uid": str(number), "text": text}}) + b"\n"


def incompressible(number: int) -> bytes:
    return review(number, random.Random(number).randbytes(40_000).hex())


def uids(path: Path, reading: Reading | None = None) -> list[int]:
    return [int(one["request"]["uid"]) for one in read_recording(path, reading or Reading())]


def recorded(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


def test_a_file_and_its_new_folder_are_the_owners_only(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    files = writer(folder)
    files.write([review(1)])
    files.close()
    (path,) = recorded(folder)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert uids(path) == [1]


def test_what_was_written_can_be_read_before_the_file_has_an_end(tmp_path: Path) -> None:
    files = writer(tmp_path)
    files.write([review(1), review(2)])
    files.write([review(3), lines.dropped(4)])
    reading = Reading()
    (path,) = recorded(tmp_path)
    assert uids(path, reading) == [1, 2, 3]
    assert (reading.dropped, reading.end, reading.keys) == (4, "truncated", {MARKS.key_id})
    files.close()


def test_full_files_are_followed_by_new_ones_and_the_oldest_are_deleted(tmp_path: Path) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("kept")
    files = writer(tmp_path, max_file_bytes=64 * 1024, max_files=3)
    for number in range(20):
        files.write([incompressible(number)])
    files.close()
    found = recorded(tmp_path)
    assert other in found
    found.remove(other)
    assert len(found) == 3
    assert all(path.stat().st_size < 128 * 1024 for path in found)
    assert [number for path in found for number in uids(path)] == list(range(14, 20))


def test_a_new_file_begins_when_one_is_old_and_old_files_are_deleted(tmp_path: Path) -> None:
    now = [0.0]
    files = writer(tmp_path, lambda: now[0], max_age_s=3600.0)
    files.write([review(1)])
    now[0] = NEW_FILE_S
    (first,) = recorded(tmp_path)
    files.write([review(2)])
    assert len(recorded(tmp_path)) == 2
    os.utime(first, (0, 0))
    now[0] = 2 * NEW_FILE_S
    files.write([review(3)])
    files.close()
    assert [uids(path) for path in recorded(tmp_path)] == [[2], [3]]


def test_a_file_that_another_process_writes_is_not_deleted(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from tests.recording.test_files import writer, review\n"
        "files = writer(Path(sys.argv[1])); files.write([review(7)]); print(flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        (busy,) = recorded(tmp_path)
        os.utime(busy, (0, 0))
        for number in range(3):
            files = writer(tmp_path, max_files=1)
            files.write([review(number)])
            files.close()
        assert busy in recorded(tmp_path)
        assert len(recorded(tmp_path)) == 2
        other.kill()
    files = writer(tmp_path, max_files=1)
    files.write([review(9)])
    files.close()
    assert [uids(path) for path in recorded(tmp_path)] == [[9]]


def test_after_an_error_a_new_file_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = writer(tmp_path)
    files.write([review(1)])
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(OSError, match="No space"):
            files.write([review(2)])
    files.write([review(3)])
    files.close()
    assert sorted(number for path in recorded(tmp_path) for number in uids(path)) == [1, 3]


def written(tmp_path: Path, *content: bytes) -> Path:
    path = tmp_path / "r.jsonl"
    path.write_bytes(b"".join(content))
    return path


HEADER = lines.header(RecordSettings(folder=None), MARKS, 0.0, 1)  # type: ignore[arg-type]


def test_damaged_unknown_and_long_lines_are_counted(tmp_path: Path) -> None:
    reading = Reading()
    path = written(
        tmp_path,
        *(HEADER, b"{broken\n", b"[]\n", b'{"type":"later"}\n', b'{"type":"review"}\n'),
        *(b'{"long":"', b"x" * (MAX_LINE_BYTES + 10_000_000), b'"}\n', review(1), b'{"type":"revi'),
    )
    assert uids(path, reading) == [1]
    assert (reading.damaged_lines, reading.unknown_lines, reading.end) == (5, 1, "truncated")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\0" * 100, "not a header"),
        (b'{"kind":"List"}\n', "not a header"),
        (HEADER.replace(b'"version":1', b'"version":2'), 'found version "2"'),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(UnreadableRecordingError, match=message):
        uids(written(tmp_path, content))


def test_a_file_that_the_gateway_has_just_made_has_no_reviews(tmp_path: Path) -> None:
    reading = Reading()
    assert (uids(written(tmp_path, b""), reading), reading.end) == ([], "truncated")


def test_joined_files_are_read(tmp_path: Path) -> None:
    first, second = (gzip.compress(HEADER + review(number)) for number in (1, 2))
    assert uids(written(tmp_path, first, second)) == [1, 2]


@functools.cache
def whole_file() -> bytes:
    return gzip.compress(HEADER + b"".join(map(incompressible_part, range(50))))


@settings(max_examples=300)
@given(st.data())
def test_a_damaged_file_is_read_up_to_the_damage(tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    whole = whole_file()
    at = data.draw(st.integers(0, len(whole) - 1))
    damaged = data.draw(
        st.sampled_from([whole[:at], whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :], whole + b"x"])
    )
    path = tmp_path_factory.getbasetemp() / "damaged.gz"
    path.write_bytes(damaged)
    reading = Reading()
    try:
        found = uids(path, reading)
    except (UnreadableRecordingError, ValueError):
        return
    assert len(found) == reading.reviews <= 50
    assert reading.reviews == 50 or reading.end or reading.damaged_lines or reading.unknown_lines


def incompressible_part(number: int) -> bytes:
    return review(number, random.Random(number).randbytes(50).hex())
