"""The last configurations that were in force, in a folder, and the one to which the gateway is pinned.

A configuration is kept as the documents from which it was made: those of the files, and the custom resources
of the cluster that were in force. Certificates, keys and credentials are in other files, of which a
configuration has the paths, so they are not kept.

    history/DIGEST.json.gz   one configuration
    history/pin.json         the digest to which the gateway is pinned; missing if it is not
    history/gateway.json     the process to signal after a change of the pin
    history/process-N.json   the configuration that process N has in force

The folder belongs to the user of the gateway alone. Each file is replaced as a whole. Configurations are
ordered by a counter and not by their times, since clocks can be set.
"""

from __future__ import annotations

import os
import time
import zlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import orjson

from gateway.base.errors import GatewayError
from gateway.base.private_folder import PrivateFolder, read_small_json
from gateway.base.text import rfc3339
from gateway.config.merge.custom_resource import CustomResource
from gateway.config.yaml.documents import Document
from gateway.config.yaml.fields import Problems

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gateway.config.merge.model import Config

Json = dict[str, Any]

MAX_KEPT: Final = 10
MAX_BYTES: Final = 8 * 1024 * 1024
"""All kept configurations together, compressed. One of thousands of webhooks takes some 100 KiB."""
MAX_CONTENT_BYTES: Final = 256 * 1024 * 1024
"""One configuration, decompressed: a file that somebody else made could otherwise fill the memory."""
_FOLDER: Final = "history"
_SUFFIX: Final = ".json.gz"
_GZIP: Final = 16 + zlib.MAX_WBITS


class HistoryError(GatewayError):
    """A kept configuration, or the folder, cannot be used."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One kept configuration."""

    digest: str
    sequence: int
    """Increases with each configuration that comes into force."""
    time: str
    """When it last came into force, RFC 3339."""
    summary: str
    sources: tuple[str, ...]
    """The files and folders that were read, and the number of custom resources."""
    problem: str = ""
    """Why it cannot be used. Empty if it can."""


@dataclass(frozen=True, slots=True)
class Pin:
    """The configuration to which the gateway is pinned."""

    digest: str
    since: str
    """RFC 3339."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A kept configuration, as the documents from which it was made."""

    documents: tuple[Document, ...]
    resources: tuple[CustomResource, ...]


class History:
    """The configurations kept in one folder."""

    def __init__(self, state: Path) -> None:
        """Use a folder in *state*; neither has to exist yet."""
        self.folder = state / _FOLDER
        self._private = PrivateFolder(self.folder, HistoryError)

    # -- configurations ---------------------------------------------------------------------------

    def record(
        self,
        config: Config,
        resources: Iterable[CustomResource],
        digest: str,
        sources: Iterable[str],
        summary: str,
    ) -> None:
        """Keep *config*, which came into force with the custom *resources*, and drop what exceeds the bounds.

        Raises:
            HistoryError: it cannot be kept.
        """
        self._private.require()
        entries = self.entries()
        kept = [
            {
                "group": one.group,
                "kind": one.kind,
                "name": one.name,
                "namespace": one.namespace,
                "document": one.document,
            }
            for one in resources
        ]
        document = {
            "digest": digest,
            "sequence": max((entry.sequence for entry in entries), default=0) + 1,
            "time": rfc3339(time.time()),
            "summary": summary,
            "sources": [*sources, *([f"{len(kept)} custom resources"] if kept else [])],
            "documents": orjson.Fragment(config.source),
            "resources": kept,
        }
        try:
            compressor = zlib.compressobj(6, zlib.DEFLATED, _GZIP)
            content = compressor.compress(orjson.dumps(document)) + compressor.flush()
        except TypeError as error:
            raise HistoryError(f"the configuration cannot be kept: {error}") from None
        if len(content) > MAX_BYTES:
            raise HistoryError(
                f"the configuration has {len(content)} bytes, more than {MAX_BYTES} can be kept"
            )
        self._prune([entry for entry in entries if entry.digest != digest], MAX_BYTES - len(content))
        self._private.write(digest + _SUFFIX, content)

    def _prune(self, entries: Sequence[Entry], room: int) -> None:
        """Remove the oldest of *entries* until there is room for one more; never the pinned one."""
        pin = self.pin()
        count = 1
        for entry in entries:
            path = self.folder / (entry.digest + _SUFFIX)
            with suppress(OSError):
                size = path.stat().st_size
                if pin is not None and pin.digest == entry.digest:
                    room -= size
                elif count < MAX_KEPT and size <= room:
                    count, room = count + 1, room - size
                else:
                    path.unlink()

    def entries(self) -> list[Entry]:
        """Return the kept configurations, the newest first; files that cannot be read are last."""
        found = []
        with suppress(OSError):
            for path in self.folder.iterdir():
                if path.name.endswith(_SUFFIX):
                    found.append(self._entry(path))
        return sorted(found, key=lambda entry: (-entry.sequence, entry.digest))

    def _entry(self, path: Path) -> Entry:
        digest = path.name.removesuffix(_SUFFIX)
        try:
            document = _read_compressed(path)
            match document:
                case {
                    "digest": str(found),
                    "sequence": int(number),
                    "time": str(at),
                    "summary": str(text),
                } if found == digest:
                    sources = [str(one) for one in document.get("sources", ())]
                    return Entry(digest, number, at, text, tuple(sources))
            raise HistoryError("it is not a kept configuration")
        except HistoryError as error:
            return Entry(digest, 0, "", "", (), str(error))

    def load(self, digest: str) -> Kept:
        """Return the kept configuration with *digest*.

        Raises:
            HistoryError: there is none, or its file cannot be read.
        """
        if not digest.isalnum():
            raise HistoryError("the digest is invalid")
        document = _read_compressed(self.folder / (digest + _SUFFIX))
        try:
            documents = tuple(
                Document(
                    Path(one["file"]),
                    Problems(f"configuration {digest[:12]}: {one['file']}", folder=Path(one["file"]).parent),
                    one["content"],
                )
                for one in document["documents"]
            )
            resources = tuple(
                # Older versions of the gateway kept only its own kinds, without a group.
                CustomResource(
                    one["kind"], one["name"], one["document"], one["namespace"], one.get("group", "")
                )
                for one in document["resources"]
            )
        except (KeyError, TypeError):
            raise HistoryError("it is not a kept configuration") from None
        return Kept(documents, resources)

    # -- the pin ----------------------------------------------------------------------------------

    def pin(self) -> Pin | None:
        """Return the pin, or None.

        A folder that another user can write counts as one without a pin, and so does a file without one.
        """
        if self._private.why_unusable():
            return None
        match read_small_json(self.folder / "pin.json"):
            case {"digest": str(digest), "since": str(since)}:
                return Pin(digest[:64], since[:40])
        return None

    def set_pin(self, digest: str) -> None:
        """Pin the gateway to the kept configuration with *digest*. Raises HistoryError."""
        self._private.require()
        self._private.write("pin.json", orjson.dumps({"digest": digest, "since": rfc3339(time.time())}))

    def release(self) -> None:
        """Remove the pin, if there is one. Raises HistoryError."""
        try:
            (self.folder / "pin.json").unlink(missing_ok=True)
        except OSError as error:
            raise HistoryError(f"{self.folder}: the pin cannot be removed: {error.strerror}") from None

    def fingerprint(self) -> object:
        """Return a value that changes with the pin."""
        with suppress(OSError):
            status = (self.folder / "pin.json").stat()
            return status.st_ino, status.st_mtime_ns
        return None

    # -- processes --------------------------------------------------------------------------------

    def announce(self) -> None:
        """Note that this process is the one to signal after a change of the pin. Raises HistoryError."""
        self._private.require()
        for path in self.folder.glob("process-*.json"):
            path.unlink(missing_ok=True)
        self._private.write(
            "gateway.json", orjson.dumps({"pid": os.getpid(), "started": _started(os.getpid())})
        )

    def gateway_pid(self) -> int | None:
        """Return the process id of the running gateway, or None if it does not run here."""
        match read_small_json(self.folder / "gateway.json"):
            case {"pid": int(pid), "started": str(started)} if started and _started(pid) == started:
                return pid
        return None

    def report(self, number: int, digest: str, pinned: str, problem: str) -> None:
        """Note the *digest* that process *number* has in force, and the digest to which it is *pinned*.

        Raises HistoryError.
        """
        self._private.require()
        pid, at = os.getpid(), time.monotonic()
        report = {"pid": pid, "started": _started(pid), "at": at, "digest": digest}
        self._private.write(
            f"process-{number}.json", orjson.dumps({**report, "pinned": pinned, "problem": problem[:4096]})
        )

    def reports(self) -> list[Json]:
        """Return the reports of the processes that run."""
        found: list[Json] = []
        for path in sorted(self.folder.glob("process-*.json")):
            report = read_small_json(path)
            match report:
                case {"pid": int(pid), "started": str(started), "at": float()} if _started(pid) == started:
                    found.append(cast("Json", report))
        return found


def _started(pid: int) -> str:
    """Return when process *pid* started, in ticks since the boot; empty if it does not run.

    Together with the id it identifies a process: ids are used again. Source: proc(5), /proc/PID/stat.
    """
    with suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    return ""


def _read_compressed(path: Path) -> Json:
    """Return the JSON object in the file at *path*. Raises HistoryError."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        decompressor = zlib.decompressobj(_GZIP)
        text = decompressor.decompress(content, MAX_CONTENT_BYTES)
        if not decompressor.eof:
            raise HistoryError("its file is incomplete, or too large")
        found = orjson.loads(text)
    except OSError as error:
        raise HistoryError(f"its file cannot be read: {error.strerror}") from None
    except (zlib.error, ValueError):
        raise HistoryError("its file is damaged") from None
    if not isinstance(found, dict):
        raise HistoryError("its file is damaged")
    return found
