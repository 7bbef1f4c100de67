"""The objects in rendered manifests: files, folders, and standard input, one document at a time.

The memory depends on the largest document, not on the number of documents.

Source: YAML 1.1 (a line ``---`` begins a document wherever it stands); Helm pkg/action (``# Source:`` before
each rendered template); kustomize api/internal/utils/annotations.go and api/resource/origin.go.
"""

from __future__ import annotations

import hashlib
import re
import sys
import tempfile
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, NamedTuple, cast

from gateway.base.errors import GatewayError
from gateway.base.files import MAX_FILE_BYTES, SUFFIXES
from gateway.base.text import described
from gateway.config.yaml.parsing import parse_json, parse_yaml
from gateway.tools.preview.fields import parse_field
from gateway.tools.preview.positions import Region, positions, region_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gateway.config.yaml.parsing import Parsed
    from gateway.engine.object_review import Json
    from gateway.tools.preview.positions import Node
    from gateway.tools.preview.positions import Path as FieldPath

STDIN: Final = "-"
STDIN_NAME: Final = "stdin"
ORIGIN: Final = "config.kubernetes.io/origin"
_NOT_STORED: Final = (ORIGIN, "alpha.config.kubernetes.io/transformations", "config.kubernetes.io/index")
"""Annotations that kustomize writes for its reader, and that are not to be applied."""
_MARKER: Final = re.compile(rb"---(?=[ \t\r\n]|$)")
_HELM_SOURCE: Final = re.compile(r"^# Source: (\S[^\r\n]{0,999}?)[ \t\r]*$", re.MULTILINE)
_LINE: Final = re.compile(r"line (\d{1,9})(?:, column (\d{1,9}))?: (.*)", re.DOTALL)
MAX_STDIN_BYTES: Final = 1 << 30
"""It is kept in a file, because it is read twice."""
_MAX_FILES: Final = 200_000
MAX_ITEM_LEVELS: Final = 10
"""Lists in lists."""


class Place(NamedTuple):
    """A place in a file."""

    file: str
    line: int = 1
    column: int = 1
    end_column: int = 2

    def __str__(self) -> str:
        """FILE:LINE:COLUMN."""
        return f"{self.file}:{self.line}:{self.column}"


class Unreadable(NamedTuple):
    """Something in the input that is no object of Kubernetes."""

    place: Place
    message: str

    def fingerprint(self) -> str:
        """Return what stays equal if lines move."""
        return hashlib.sha256(f"{self.place.file}|{self.message}".encode(errors="replace")).hexdigest()[:16]


@dataclass(slots=True)
class Text:
    """A part of a file, with one document."""

    file: str
    text: str
    lines_before: int
    is_json: bool = False
    _roots: list[Node | None] | None = None

    def root(self, number: int) -> Node | None:
        """Return the root of document *number* of the text, from 1."""
        if self._roots is None:
            self._roots = positions(self.text, self.lines_before, is_json=self.is_json)
        return self._roots[number - 1] if number <= len(self._roots) else None


@dataclass(frozen=True)
class Manifest:
    """One object as it is written in the input."""

    text: Text
    number: int
    """Of the document, in ``text``."""
    path: FieldPath
    """In its document: that of an item of a list."""
    document: Json
    """The object as it is in the file."""
    rendered_from: str = ""
    """The file that it was rendered from, if the input is not a file and says so."""

    @property
    def file(self) -> str:
        """The file that a finding is about."""
        return self.rendered_from or self.text.file

    @cached_property
    def object(self) -> Json:
        """The object as it is applied: without the annotations of kustomize."""
        metadata = self.document.get("metadata")
        if not isinstance(metadata, dict):
            return self.document
        annotations = metadata.get("annotations")
        if not isinstance(annotations, dict) or not set(_NOT_STORED) & set(annotations):
            return self.document
        kept = {name: value for name, value in annotations.items() if name not in _NOT_STORED}
        rest = {name: value for name, value in metadata.items() if name != "annotations"}
        return {**self.document, "metadata": {**rest, "annotations": kept} if kept else rest}

    def place(self, path: FieldPath = ()) -> Place:
        """Return the place of the key at *path* of the object, or of its nearest parent that is written."""
        if self.rendered_from:
            return Place(self.rendered_from)
        root = self.text.root(self.number)
        if root is None:
            return Place(self.text.file, self.text.lines_before + 1)
        region, found = region_of(root, (*self.path, *path))
        if found <= len(self.path):
            # The whole object: its kind tells a reader more than its first key.
            region, _ = region_of(root, (*self.path, "kind"))
        return Place(self.text.file, *region)


@dataclass
class Input:
    """All objects of the input. It may be read several times."""

    paths: Sequence[str]
    """Files, folders and ``-``."""
    _stdin: IO[bytes] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if STDIN in self.paths:
            self._stdin = tempfile.TemporaryFile()  # noqa: SIM115 - it is read several times
            while part := sys.stdin.buffer.read(1 << 20):
                if self._stdin.write(part) and self._stdin.tell() > MAX_STDIN_BYTES:
                    self.close()
                    raise GatewayError(f"{STDIN_NAME}: has more than {MAX_STDIN_BYTES >> 30} GiB")

    def close(self) -> None:
        """Release what was read from standard input."""
        if self._stdin is not None:
            self._stdin.close()

    def read(self) -> Iterator[Manifest | Unreadable]:
        """Yield the objects in the order of the input, and what is no object or cannot be read.

        Raises:
            GatewayError: a folder has too many files.
        """
        for text in self._texts():
            yield from text if isinstance(text, list) else _objects(text)

    def mentioning(self, *words: str) -> Iterator[Manifest]:
        """Yield the objects of the documents in whose text one of *words* is; others are not parsed.

        Raises:
            GatewayError: a folder has too many files.
        """
        for text in self._texts():
            if not isinstance(text, list) and any(word in text.text for word in words):
                yield from (one for one in _objects(text) if isinstance(one, Manifest))

    def _texts(self) -> Iterator[Text | list[Unreadable]]:
        for path in self.paths:
            if path == STDIN:
                assert self._stdin is not None
                self._stdin.seek(0)
                yield from _split(STDIN_NAME, self._stdin)
                continue
            for file in _files(Path(path)):
                place = Place(file.as_posix())
                try:
                    if file.exists() and not file.is_file():
                        # Opening a pipe would wait for a writer.
                        yield [Unreadable(place, "is not a file; give - for standard input")]
                        continue
                    with file.open("rb") as stream:
                        yield from _split(file.as_posix(), stream)
                except (OSError, ValueError) as error:
                    reason = error.strerror if isinstance(error, OSError) else None
                    yield [Unreadable(place, f"cannot be read: {reason or error}")]


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = sorted(
        one
        for one in path.rglob("*")
        if one.suffix in SUFFIXES
        # .github and .gitlab-ci.yml are for others.
        and not any(part.startswith(".") for part in one.relative_to(path).parts)
        and one.is_file()
    )
    if len(found) > _MAX_FILES:
        raise GatewayError(f"{path}: has more than {_MAX_FILES:,} files")
    return found


def _split(file: str, stream: IO[bytes]) -> Iterator[Text | list[Unreadable]]:
    """Yield the documents of *stream* as texts."""
    parts: list[bytes] = []
    size = number = first = 0
    while line := stream.readline(MAX_FILE_BYTES + 1):
        if _MARKER.match(line) and parts and not parts[-1].startswith(b"%"):
            yield _text(file, parts, first)
            parts, size, first = [], 0, number
        parts.append(line)
        size += len(line)
        number += line.endswith(b"\n")
        if size > MAX_FILE_BYTES:
            large = f"a document has more than {MAX_FILE_BYTES // (1024 * 1024)} MiB; the rest is not read"
            yield [Unreadable(Place(file, first + 1), large)]
            return
    if parts:
        yield _text(file, parts, first)


def _text(file: str, parts: list[bytes], lines_before: int) -> Text:
    text = b"".join(parts).decode("utf-8-sig" if not lines_before else "utf-8", errors="replace")
    return Text(file, text, lines_before)


def _objects(text: Text) -> Iterator[Manifest | Unreadable]:
    """Yield the objects in *text*."""
    helm = _HELM_SOURCE.findall(text.text) if text.file == STDIN_NAME else []
    for parsed in _parsed(text):
        for field_path, message in parsed.found:
            yield _problem(text, parsed.number, field_path, message)
        if parsed.found or parsed.root is None:
            continue
        for path, found in _items(parsed.root, (), 0):
            if not isinstance(found, dict):
                message = f"found {described(found)}, expected an object with apiVersion and kind"
                region = _region(text, parsed.number, path)
                yield Unreadable(Place(text.file, *region), message)
                continue
            document = cast("Json", found)
            yield Manifest(text, parsed.number, path, document, _origin(text, document, helm))


def _parsed(text: Text) -> Iterable[Parsed]:
    """Return what is in *text*, JSON or YAML."""
    begin = text.text.lstrip("\ufeff \t\r\n-")[:1]
    if begin in ("{", "[") or text.file.endswith(".json"):
        content, before = _without_marker(text)
        documents = list(parse_json(content, before))
        if text.file.endswith(".json") or not any(one.found for one in documents):
            text.is_json = True
            text.text, text.lines_before = content, before
            return documents
    return parse_yaml(text.text, text.lines_before)


def _without_marker(text: Text) -> tuple[str, int]:
    """Return the text without a first line ``---``, and the lines before it."""
    first, line_break, rest = text.text.partition("\n")
    return (
        (rest, text.lines_before + 1)
        if line_break and first.strip() == "---"
        else (text.text, text.lines_before)
    )


def _items(found: object, path: FieldPath, levels: int) -> Iterator[tuple[FieldPath, object]]:
    """Yield the object *found*, or each object in the list of Kubernetes that it is, with its path."""
    if isinstance(found, dict) and levels < MAX_ITEM_LEVELS:
        kind, items = found.get("kind"), found.get("items")
        if isinstance(kind, str) and kind.endswith("List") and isinstance(items, list):
            common = {"apiVersion": found.get("apiVersion"), "kind": kind[:-4]} if kind != "List" else {}
            for index, item in enumerate(items):
                named = {**common, **item} if isinstance(item, dict) else item
                yield from _items(named, (*path, "items", index), levels + 1)
            return
    yield path, found


def _problem(text: Text, number: int, path: str, message: str) -> Unreadable:
    """Return the problem of a document that cannot be read."""
    named = _LINE.fullmatch(message)
    if named is not None:
        line, column = int(named[1]), int(named[2] or 1)
        message = named[3]
        place = Place(text.file, line, column, column + 1)
    else:
        place = Place(text.file, *_region(text, number, parse_field(path)))
    return Unreadable(place, f"{path}: {message}" if path else message)


def _region(text: Text, number: int, path: FieldPath) -> Region:
    root = text.root(number)
    return Region(text.lines_before + 1, 1, 2) if root is None else region_of(root, path)[0]


def _origin(text: Text, document: Json, helm: Sequence[str]) -> str:
    """Return the file that *document* was rendered from, if the input is no file itself and says so."""
    if text.file != STDIN_NAME:
        return ""
    if helm:
        return helm[-1]
    metadata = document.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    written = annotations.get(ORIGIN) if isinstance(annotations, dict) else None
    if isinstance(written, str) and len(written) < 10_000:
        for one in parse_yaml(written):
            path = one.root.get("path") if isinstance(one.root, dict) else None
            if isinstance(path, str) and path and len(path) < 1000:
                return path
    return ""
