from __future__ import annotations

import copy
import itertools
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from gateway.base.errors import ConfigError
from gateway.config.merge.load import load

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gateway.config.merge.model import Config


@pytest.fixture(scope="session")
def write_documents(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Puts each document in a file ``000.json``, ``001.json``... of a new folder."""
    root = tmp_path_factory.mktemp("configurations")
    numbers = itertools.count()

    def write(*documents: object) -> Path:
        folder = root / str(next(numbers))
        folder.mkdir()
        for index, document in enumerate(documents):
            (folder / f"{index:03}.json").write_bytes(orjson.dumps(document))
        return folder

    return write


@pytest.fixture(scope="session")
def load_documents(write_documents: Callable[..., Path]) -> Callable[..., Config]:
    return lambda *documents: load([write_documents(*documents)])


@pytest.fixture(scope="session")
def problems_of(write_documents: Callable[..., Path]) -> Callable[..., list[tuple[str, str]]]:
    """Loads documents; returns field and message of every problem."""

    def problems_of(*documents: object) -> list[tuple[str, str]]:
        try:
            load([write_documents(*documents)])
        except ConfigError as error:
            return [(problem.field, problem.message) for problem in error.problems]
        return []

    return problems_of


@pytest.fixture(scope="session")
def load_text(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Config]:
    """Loads one file of the given text."""
    folder = tmp_path_factory.mktemp("texts")

    def load_text(text: str | bytes, name: str = "a.yaml") -> Config:
        file = folder / name
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return load([file])

    return load_text


@pytest.fixture(scope="session")
def change() -> Callable[..., Any]:
    """Returns a copy of a document with the value at a path such as ``webhooks.0.name`` set, or removed."""

    def change(document: dict[str, Any], path: str, *value: object) -> dict[str, Any]:
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

    return change
