"""The objects in rendered manifests: files, folders, and standard input, one document at a time.

The memory depends on the largest document, not on the number of documents.

Source: YAML 1.1 (a line ``---`` begins a document wherever it stands); kustomize
api/internal/utils/annotations.go.
"""

from __future__ import annotations

import hashlib
import re
import sys
import tempfile
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from io import BytesIO
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, NamedTuple, cast

from gateway.base.errors import GatewayError
from gateway.base.files import MAX_FILE_BYTES, SUFFIXES
from gateway.base.text import described
from gateway.config.yaml.field_paths import parse_field
from gateway.config.yaml.fields import position_in
from gateway.config.yaml.parsing import parse_json, parse_yaml
from gateway.config.yaml.positions import Region, positions, region_of
from gateway.tools.preview.positions import common_path
from gateway.tools.preview.sources import ORIGIN, SourceRoots, helm_template, not_rendered, source_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gateway.config.yaml.field_paths import FieldPath
    from gateway.config.yaml.parsing import Parsed
    from gateway.config.yaml.positions import Node
    from gateway.engine.object_review import Json

STDIN: Final = "-"
STDIN_NAME: Final = "stdin"
_NOT_STORED: Final = (ORIGIN, "alpha.config.kubernetes.io/transformations", "config.kubernetes.io/index")
"""Annotations that kustomize writes for its reader, and that are not to be applied."""
_MARKER: Final = re.compile(rb"---(?=[ \t\r\n]|$)")
MAX_STDIN_BYTES: Final = 1 << 30
"""It is kept in a file, because it is read twice."""
_MAX_FILES: Final = 200_000
MAX_ITEM_LEVELS: Final = 10
"""Lists in lists."""
_MAX_SOURCE_BYTES: Final = 1 << 20
"""Of a file in which an object is looked up that was rendered from it."""
_MAX_SOURCES: Final = 50
"""Such files whose objects are kept in memory."""


class Place(NamedTuple):
    """A place in a file."""

    file: str
    line: int = 1
    column: int = 1
    end_column: int = 2
    is_found: bool = True
    """Whether the file is one that can be opened: the name of standard input or of a template may be none."""

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
    _template: str | None = None

    @property
    def is_stdin(self) -> bool:
        """Whether it is a part of standard input."""
        return self.file == STDIN_NAME

    @property
    def template(self) -> str:
        """The template that Helm rendered it from; empty if it names none."""
        if self._template is None:
            self._template = helm_template(self.text)
        return self._template

    @property
    def hint(self) -> str:
        """The end of a message about why it is no object; empty if nothing is known."""
        return not_rendered(self.file, self.text)

    def place(self, region: Region) -> Place:
        """Return the place of *region*."""
        return Place(self.file, *region, is_found=not self.is_stdin)

    def root(self, number: int) -> Node | None:
        """Return the root of document *number* of the text, from 1."""
        if self._roots is None:
            self._roots = positions(self.text, self.lines_before, is_json=self.is_json)
        return self._roots[number - 1] if number <= len(self._roots) else None


class RenderedFrom(NamedTuple):
    """The file that an object was rendered from."""

    file: str
    is_found: bool = True
    """Whether it is below the working directory. Else it is the name that Helm or kustomize writes."""
    source: Manifest | None = None
    """The object in it, if it is written there as an object."""


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
    rendered_from: RenderedFrom | None = None

    @property
    def file(self) -> str:
        """The file that a finding is about."""
        return self.text.file if self.rendered_from is None else self.rendered_from.file

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
        if self.rendered_from is not None:
            file, is_found, source = self.rendered_from
            if source is None:
                return Place(file, is_found=is_found)
            return source.place(common_path(path, self.object, source.object))
        root = self.text.root(self.number)
        if root is None:
            return self.text.place(Region(self.text.lines_before + 1, 1, 2))
        region, found = region_of(root, (*self.path, *path))
        if found <= len(self.path):
            # The whole object: its kind tells a reader more than its first key.
            region, _ = region_of(root, (*self.path, "kind"))
        return self.text.place(region)


@dataclass
class Input:
    """All objects of the input. It may be read several times."""

    paths: Sequence[str]
    """Files, folders and ``-``."""
    source_roots: Sequence[str] = ()
    """The folders that Helm and kustomize rendered. Without any, only standard input is taken for their
    output, and the working directory for such a folder."""
    _stdin: IO[bytes] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self._roots = SourceRoots(self.source_roots or (".",))
        self._sources = lru_cache(_MAX_SOURCES)(_objects_of)
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
            for one in text if isinstance(text, list) else _objects(text):
                yield self._with_source(one) if isinstance(one, Manifest) else one

    def mentioning(self, *words: str) -> Iterator[Manifest]:
        """Yield the objects of the documents in whose text one of *words* is; others are not parsed.

        Raises:
            GatewayError: a folder has too many files.
        """
        for text in self._texts():
            if not isinstance(text, list) and any(word in text.text for word in words):
                yield from (one for one in _objects(text) if isinstance(one, Manifest))

    def _with_source(self, found: Manifest) -> Manifest:
        """Return *found* with the file that it was rendered from."""
        is_stdin = found.text.is_stdin
        named = source_name(found.text.template, found.document) if is_stdin or self.source_roots else None
        if named is None:
            return found
        file = self._roots.file(named)
        if file is not None:
            source = _same(self._sources(file), found)
            return replace(found, rendered_from=RenderedFrom(file, source=source))
        if is_stdin:
            return replace(found, rendered_from=RenderedFrom(named.name, is_found=False))
        # A file of the input has places of its own.
        return found

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
            yield [Unreadable(Text(file, "", first).place(Region(first + 1, 1, 2)), large)]
            return
    if parts:
        yield _text(file, parts, first)


def _text(file: str, parts: list[bytes], lines_before: int) -> Text:
    text = b"".join(parts).decode("utf-8-sig" if not lines_before else "utf-8", errors="replace")
    return Text(file, text, lines_before)


def _objects(text: Text) -> Iterator[Manifest | Unreadable]:
    """Yield the objects in *text*."""
    for parsed in _parsed(text):
        for field_path, message in parsed.found:
            yield _problem(text, parsed.number, field_path, message)
        if parsed.found or parsed.root is None:
            continue
        for path, found in _items(parsed.root, (), 0):
            if not isinstance(found, dict):
                message = f"found {described(found)}, expected an object with apiVersion and kind"
                yield Unreadable(text.place(_region(text, parsed.number, path)), message)
                continue
            yield Manifest(text, parsed.number, path, cast("Json", found))


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
    named = position_in(message)
    if named is not None:
        line, column, message = named
        region = Region(line, column, column + 1)
    else:
        region = _region(text, number, parse_field(path))
    return Unreadable(text.place(region), f"{path}: {message}{text.hint}" if path else message + text.hint)


def _region(text: Text, number: int, path: FieldPath) -> Region:
    root = text.root(number)
    return Region(text.lines_before + 1, 1, 2) if root is None else region_of(root, path)[0]


def _objects_of(file: str) -> list[Manifest]:
    """Return the objects in *file*, from which others were rendered; none if it cannot be read as such."""
    try:
        with Path(file).open("rb") as stream:
            content = stream.read(_MAX_SOURCE_BYTES + 1)
    except OSError:
        return []
    texts = _split(file, BytesIO(content)) if len(content) <= _MAX_SOURCE_BYTES else ()
    found = (one for text in texts if isinstance(text, Text) for one in _objects(text))
    return [one for one in found if isinstance(one, Manifest)]


def _same(sources: Iterable[Manifest], rendered: Manifest) -> Manifest | None:
    """Return the one of *sources* that became *rendered*, whose name may have got a prefix or a suffix."""
    kind, name = _kind_and_name(rendered.document)
    found = [
        (len(own_name), one)
        for one in sources
        for own_kind, own_name in [_kind_and_name(one.document)]
        if own_kind == kind and own_name and own_name in name
    ]
    longest = max((size for size, _ in found), default=0)
    same = [one for size, one in found if size == longest]
    return same[0] if len(same) == 1 else None


def _kind_and_name(document: Json) -> tuple[tuple[object, object], str]:
    metadata = document.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return (document.get("apiVersion"), document.get("kind")), name if isinstance(name, str) else ""
