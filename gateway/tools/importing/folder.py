"""Writes files into a folder atomically: all or none, and each file complete at every moment."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gateway.base.errors import GatewayError

if TYPE_CHECKING:
    from collections.abc import Mapping

_STAGING: Final = ".import-"


def write(folder: Path, texts: Mapping[str, str], *, force: bool) -> list[str]:
    """Write *texts*, by file name, and return a line for each: ``FILE written``.

    A file with equal content is not written.

    Raises:
        GatewayError: a file with other content exists and *force* is false, or the folder is not writable;
            nothing has been written.
    """
    try:
        is_new = not folder.exists()
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent if is_new else folder, prefix=_STAGING) as name:
            return _write(folder, Path(name), texts, force=force)
    except OSError as error:
        # Of two paths the first is a temporary file.
        where = Path(error.filename2 or error.filename or folder)
        if any(part.startswith(_STAGING) for part in where.parts):
            where = folder
        raise GatewayError(f"--output: {where} cannot be written: {error.strerror or error}") from error


def _write(folder: Path, staging: Path, texts: Mapping[str, str], *, force: bool) -> list[str]:
    states = {name: _state(folder / name, text) for name, text in texts.items()}
    taken = [str(folder / name) for name, state in states.items() if state == "other"]
    if taken and not force:
        raise GatewayError(f"--output: {', '.join(taken)} exist with other content; --force replaces them")
    changed = [name for name, state in states.items() if state != "same"]
    for name in changed:
        with (staging / name).open("x", encoding="utf-8") as staged:
            staged.write(texts[name])
            staged.flush()
            os.fsync(staged.fileno())
    made: list[Path] = []
    try:
        for name in changed:
            if states[name] == "other":
                (staging / name).replace(folder / name)
                continue
            # Unlike a rename, this fails if another process has created the file meanwhile.
            (folder / name).hardlink_to(staging / name)
            made.append(folder / name)
    except OSError:
        for file in made:
            with suppress(OSError):
                file.unlink()
        raise
    return [f"{folder / name} {'unchanged' if states[name] == 'same' else 'written'}" for name in texts]


def _state(file: Path, text: str) -> str:
    """Return whether *file* is ``new``, the ``same`` as *text*, or something ``other``."""
    if not os.path.lexists(file):
        return "new"
    try:
        return "same" if file.read_bytes() == text.encode() else "other"
    except OSError:
        return "other"
