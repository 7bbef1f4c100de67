"""Recordings as a source of reviews, see ``gateway.observe.recording``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.observe.recording.reader import Reading, read_recording
from gateway.tools.replay.cases import Case, namespace_of
from gateway.tools.replay.results import UnusableResultError, recorded

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from pathlib import Path
    from typing import Any

    from gateway.pure.core.webhook import Phase
    from gateway.tools.replay.cases import Found
    from gateway.tools.replay.results import WebhookKey

REDACTED = "secret values were replaced when it was recorded"


class Recordings:
    """Files of recordings, one after another."""

    def __init__(self, paths: Sequence[Path], without: Collection[WebhookKey]) -> None:
        """*without* are webhooks whose recorded part is ignored."""
        self._paths = [found for path in paths for found in _files(path)]
        self._without = without

    def cases(self, found: Found) -> Iterator[Case]:
        """Yield the reviews; see ``cases.Source``."""
        sizes = [path.stat().st_size for path in self._paths]
        total, done = max(1, sum(sizes)), 0
        for path, size in zip(self._paths, sizes, strict=True):
            reading = Reading()
            for line in read_recording(path, reading):
                found.read = (done + min(size, reading.read_bytes)) / total
                case = self._case(line)
                if case is None:
                    found.leave_out("the line of the recording is damaged")
                else:
                    yield case
            done += size
            found.leave_out("the line of the recording is damaged", reading.damaged_lines)
            if reading.end:
                found.problems.append(f"{path}: {reading.end} after {reading.reviews} reviews")
            if reading.dropped:
                found.problems.append(f"{path}: {reading.dropped} reviews were dropped while it was written")

    def _case(self, line: dict[str, Any]) -> Case | None:
        phase: Phase = "mutate" if line.get("phase") == "mutate" else "validate"
        is_redacted = line.get("redacted") is True
        try:
            expected = recorded(line, phase, self._without)
        except UnusableResultError:
            return None
        namespace = namespace_of(line.get("namespace"))
        notes = (REDACTED,) if is_redacted else ()
        path = line.get("path")
        return Case(
            line["request"],
            path if isinstance(path, str) and path else f"/{phase}",
            phase,
            namespace,
            expected,
            notes,
            is_redacted=True,  # the whole line is without secrets
            time=str(line.get("time") or ""),
        )


def _files(path: Path) -> list[Path]:
    """Return *path*, or the recordings in it if it is a folder."""
    if not path.is_dir():
        return [path]
    return sorted(found for found in path.iterdir() if found.name.endswith((".jsonl.gz", ".jsonl")))
