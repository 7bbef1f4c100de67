"""A target that fails and hangs on purpose, so that tests check that the fuzzer finds it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

MODULES: Final = ("gateway/base/errors.py",)
MAX_BYTES: Final = 16
WORDS: Final = [b"hang", b"fail"]


def run(data: bytes) -> None:
    assert b"fail" not in data, "as planted"
    while data == b"hang":
        pass


def seeds() -> Iterator[bytes]:
    yield b"fai"
