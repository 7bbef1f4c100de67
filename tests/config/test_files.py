from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gateway.config.merge.load import fingerprint

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder like that of a ConfigMap volume, with an ordinary file."""
    for generation in ("..1", "..2"):
        (tmp_path / generation).mkdir()
        (tmp_path / generation / "map.yaml").write_text("a: 1")
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "map.yaml").symlink_to("..data/map.yaml")
    (tmp_path / "plain.yaml").write_text("a: 1")
    return tmp_path


def swap_link(folder: Path) -> None:
    (folder / "..new").symlink_to("..2")
    (folder / "..new").rename(folder / "..data")


def replace_with_the_same_size_and_time(folder: Path) -> None:
    status = (folder / "plain.yaml").stat()
    (folder / "new").write_text("a: 2")
    os.utime(folder / "new", ns=(status.st_atime_ns, status.st_mtime_ns))
    (folder / "new").rename(folder / "plain.yaml")


def touch_later(folder: Path) -> None:
    os.utime(folder / "plain.yaml", ns=(0, (folder / "plain.yaml").stat().st_mtime_ns + 1))


CHANGES: list[Callable[[Path], object]] = [
    swap_link,
    replace_with_the_same_size_and_time,
    touch_later,
    lambda folder: (folder / "plain.yaml").write_text("a: 10"),
    lambda folder: (folder / "plain.yaml").unlink(),
    lambda folder: (folder / "added.json").write_text("{}"),
    lambda folder: (folder / "plain.yaml").rename(folder / "plain.yml"),
    lambda folder: (folder / "..1" / "map.yaml").write_text("a: 10"),
    lambda folder: (folder / "..data").unlink(),
]


@pytest.mark.parametrize("make_change", CHANGES)
def test_a_change_has_another_fingerprint(make_change: Callable[[Path], object], folder: Path) -> None:
    files = [folder / "map.yaml", folder / "plain.yaml", folder / "added.json", folder / "plain.yml"]
    before, before_files = fingerprint([folder]), fingerprint(files)
    assert fingerprint([folder]) == before
    make_change(folder)
    assert fingerprint([folder]) != before
    assert fingerprint(files) != before_files


def test_other_files_do_not_change_the_fingerprint(folder: Path) -> None:
    before = fingerprint([folder])
    (folder / "a.log").write_text("x")
    (folder / ".hidden.yaml").write_text("x")
    (folder / "sub").mkdir()
    assert fingerprint([folder]) == before


def test_a_folder_that_appears_or_disappears_changes_the_fingerprint(tmp_path: Path) -> None:
    path = tmp_path / "a"
    absent = fingerprint([path])
    path.mkdir()
    empty = fingerprint([path])
    assert empty != absent
    (path / "a.yaml").touch()
    assert fingerprint([path]) not in (empty, absent)


def test_a_path_that_cannot_be_read_has_a_fingerprint(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "loop.yaml").symlink_to("loop.yaml")
    paths = [tmp_path / "loop", tmp_path, Path("a\0b"), Path("x" * 5000), Path("/proc/self/mem/x")]
    assert fingerprint(paths) == fingerprint(paths)
