"""The objects that policies read in the cases of a PolicyTest, beside those of its configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gateway.base.errors import Problem
from gateway.base.text import described, one_of
from gateway.config.kinds.policy_settings import listing_of_kind
from gateway.config.merge.load import documents_in
from gateway.config.merge.policy_documents import read_object
from gateway.config.yaml.fields import Fields

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gateway.config.merge.model import Config
    from gateway.engine.object_review import Json


class TestObjects(NamedTuple):
    """The objects of a suite or of one case."""

    objects: tuple[Json, ...] = ()
    files: tuple[Path, ...] = ()
    """The files that have some of them."""


NO_OBJECTS = TestObjects()


def read_objects(fields: Fields, folder: Path) -> TestObjects:
    """Return what the field ``objects`` has: objects, and paths of files or folders with objects."""
    name = "objects"
    value = fields.content.get(name)
    fields.accept(name)
    if value is None:
        return NO_OBJECTS
    if not isinstance(value, list):
        fields.problem(name, f"found {described(value)}, expected a list of objects and paths")
        return NO_OBJECTS
    objects: list[Json] = []
    files: list[Path] = []
    for index, each in enumerate(value):
        path = f"{fields.at(name)}[{index}]"
        if isinstance(each, dict):
            objects.append(_object(Fields(each, path, fields.problems)))
        elif isinstance(each, str):
            files.append(folder / each)
            for document in documents_in([files[-1]]):
                if document.content is not None:
                    objects.append(_object(document.fields()))
                for problem in document.problems.errors():
                    fields.problems.add(path, str(problem))
        else:
            message = f"found {described(each)}, expected an object, or the path of a file or folder"
            fields.problems.add(path, message)
    return TestObjects(tuple(objects), tuple(files))


def _object(fields: Fields) -> Json:
    for name in ("apiVersion", "kind"):
        fields.required_string(name)
    if fields.problems.found:
        return {}
    return read_object(fields)[2]


def unread(place: str, field: str, found: TestObjects, config: Config) -> Iterator[Problem]:
    """Yield a problem of *field* for each kind of *found* that no policy of *config* reads."""
    kinds = {(str(each["apiVersion"]), str(each["kind"])) for each in found.objects}
    known = sorted(f"{kind} of {version}" for version, kind in config.object_kinds)
    read = f"expected {one_of(known)}" if known else "and policies read no other objects"
    for version, kind in sorted(kinds - config.object_kinds):
        message = (
            f"found a {kind} of {version}, which no policy reads, {read}; {listing_of_kind(version, kind)}"
        )
        yield Problem(place, field, message)
