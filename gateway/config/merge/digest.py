"""The digest of a configuration: replicas with equal digests decide by the same configuration."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gateway.config.merge.model import Config
    from gateway.pure.core.conditions import MatchConditions

_LEFT_OUT: Final = {
    *("warnings", "listen", "admin_listen", "pages", "processes", "logging", "record", "tracing"),
}
"""Fields that change no decision, and can differ between the replicas of one configuration."""


_PIECES_LEVELS: Final = 2
"""Down to each webhook."""


def digest(config: Config) -> str:
    """Return the SHA-256 of the canonical form of *config*, 64 hexadecimal digits.

    The canonical form is JSON of the values after defaulting, with sorted keys, so it does not depend on the
    layout of files, the order of documents, the Python process or its machine. Of files with certificates and
    credentials it has the paths as the documents write them, relative or absolute; those of the command line
    are left out. It has no field that is excluded from ``repr``, since such fields are secrets: a digest
    is shown to readers who could otherwise try out guesses. The time is linear in the size of *config*: some
    100 ms for thousands of webhooks.
    """
    found = hashlib.sha256()
    for piece in _pieces(_canonical(config, config.named_files), _PIECES_LEVELS):
        found.update(piece.encode())
    return found.hexdigest()


def digest_of(value: object, named_files: Mapping[str, str]) -> bytes:
    """Return the SHA-256 of the canonical form of *value*, a part of a configuration with *named_files*."""
    return hashlib.sha256(_json(_canonical(value, named_files)).encode()).digest()


def _pieces(value: object, levels: int) -> Iterator[str]:
    """Yield :func:`_json` of *value* in pieces: one call for all of it would keep the interpreter's lock, so
    that no review is answered meanwhile.
    """
    match value:
        case dict() if levels:
            for number, (key, item) in enumerate(sorted(value.items())):
                yield f"{',' if number else '{'}{_json(key)}:"
                yield from _pieces(item, levels - 1)
            yield "}" if value else "{}"
        case list() if levels:
            for number, item in enumerate(value):
                yield "," if number else "["
                yield from _pieces(item, levels - 1)
            yield "]" if value else "[]"
        case _:
            yield _json(value)


def _canonical(value: object, named_files: Mapping[str, str]) -> object:
    """Return *value* as JSON; *named_files* has the paths in it that documents name."""
    match value:
        case str() | Path() if (text := named_files.get(str(value))) is not None:
            return {"": "file", "path": text}
        case None | bool() | int() | float() | str():
            return value
        case bytes():
            return value.hex()
        case Path():
            return None
        case Mapping():
            return {key: _canonical(item, named_files) for key, item in value.items()}
        case tuple():
            return [_canonical(item, named_files) for item in value]
        case frozenset():
            return sorted((_canonical(item, named_files) for item in value), key=_json)
        case _ if is_dataclass(value):
            # With the type: members of a union can have the same fields.
            return {
                "": type(value).__name__,
                **{
                    field.name: _canonical(getattr(value, field.name), named_files)
                    for field in fields(value)
                    if field.repr and field.name not in _LEFT_OUT
                },
            }
    return _canonical(cast("MatchConditions", value).expressions, named_files)


def _json(value: object) -> str:
    """Return compact JSON; ASCII, because texts of a configuration can hold halves of surrogate pairs."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
