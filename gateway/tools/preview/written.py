"""The final objects of a preview as files: what would be stored, and what controllers would create.

These files are not redacted, because they are for other tools: only their owner may read them.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from typing import TYPE_CHECKING, Final

from gateway.base.errors import GatewayError
from gateway.tools.offline.changes import as_yaml

if TYPE_CHECKING:
    from pathlib import Path

    from gateway.tools.preview.manifests import Unreadable
    from gateway.tools.preview.model import ObjectName, Previewed
    from gateway.tools.preview.report import Listed, Totals

CLUSTER: Final = "_cluster"
"""The folder of objects without a namespace; no namespace has this name."""
_MAX_CHARS: Final = 100
_OTHERS: Final = re.compile(r"[^a-z0-9.-]|^\.+|\.+$")


class WrittenObjects:
    """A folder with a file ``NAMESPACE/KIND.GROUP-NAME.yaml`` for each object that is allowed."""

    def __init__(self, folder: Path) -> None:
        """Make *folder*.

        Raises:
            GatewayError: it has files, of which nobody could say whether they are of this preview.
        """
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise GatewayError(f"--write {folder}: found files in it, expected an empty folder")
        self._folder = folder
        self._numbers: Counter[tuple[Path, str]] = Counter()

    def add(self, found: Previewed, listed: list[Listed]) -> None:
        """Write the objects that are allowed."""
        del listed
        for reviewed in found.objects:
            if reviewed.final is not None:
                self._write(reviewed.name, as_yaml(reviewed.final))

    def add_unreadable(self, found: Unreadable) -> None:
        """Do nothing."""

    def end(self, totals: Totals) -> None:
        """Do nothing."""

    def _write(self, name: ObjectName, text: str) -> None:
        folder = self._folder / (_part(name.namespace) if name.namespace else CLUSTER)
        folder.mkdir(exist_ok=True)
        group = name.api_version.rpartition("/")[0]
        kind = f"{name.kind}.{group}" if group else name.kind
        stem = f"{_part(kind.lower())}-{_part(name.name.rstrip('-*'))}"
        while True:
            # Of objects with one name, the second is "NAME-2", which may be the name of another one.
            self._numbers[folder, stem] += 1
            number = self._numbers[folder, stem]
            file = folder / f"{stem}{'' if number == 1 else f'-{number}'}.yaml"
            try:
                descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            except FileExistsError:
                continue
            with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
                stream.write(text)
            return


def _part(text: str) -> str:
    """Return *text* as a part of a file name: itself if it can be one, else with a digest."""
    shown = _OTHERS.sub("_", text[:_MAX_CHARS])
    digest = hashlib.sha256(text.encode(errors="replace")).hexdigest()[:8]
    return shown if shown == text else f"{shown}_{digest}"
