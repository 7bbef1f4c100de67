"""Documents as tests of the configuration write, change and load them."""

from __future__ import annotations

import copy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import orjson

from gateway.base.errors import ConfigError
from gateway.config.merge.load import load

if TYPE_CHECKING:
    from gateway.config.merge.model import Config


def load_documents(*documents: object) -> Config:
    """Load each document from a file ``000.json``, ``001.json``, … of one folder."""
    with TemporaryDirectory() as folder:
        for index, document in enumerate(documents):
            (Path(folder) / f"{index:03}.json").write_bytes(orjson.dumps(document))
        return _load(Path(folder))


def problems_of(*documents: object) -> list[tuple[str, str]]:
    """Load documents; return field and message of every problem."""
    try:
        load_documents(*documents)
    except ConfigError as error:
        return [(problem.field, problem.message) for problem in error.problems]
    return []


def load_text(text: str | bytes, name: str = "a.yaml") -> Config:
    """Load one file of the given text."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / name
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return _load(file)


def _load(path: Path) -> Config:
    """Load *path*. Every problem of the tables that are tried has its place in a file."""
    try:
        return load([path])
    except ConfigError as error:
        for one in error.problems:
            assert min(one.line, one.column) > 0, one
            assert str(one).startswith(f"{one.file}:{one.line}:{one.column}: "), one
            assert one.file.startswith(str(path)), one
        raise


def change(document: dict[str, Any], path: str, *value: object) -> dict[str, Any]:
    """Return a copy of *document* with the value at a path such as ``webhooks.0.name`` set, or removed."""
    changed = copy.deepcopy(document)
    *parents, last = path.split(".")
    place: Any = changed
    for part in parents:
        place = place[int(part)] if isinstance(place, list) else place.setdefault(part, {})
    if not value:
        del place[last]
    else:
        place[int(last) if isinstance(place, list) else last] = value[0]
    return changed
