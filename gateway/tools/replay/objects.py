"""Objects as a source of reviews, as if they were created: those of files, or those of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson

from gateway.base.errors import GatewayError, ReviewError
from gateway.base.files import SUFFIXES, UnusableFileError, read_file
from gateway.config.yaml.parsing import parse_yaml, problems_in
from gateway.engine.object_review import RequestOptions, request_for
from gateway.pure.core.service_accounts import CREATORS, service_account
from gateway.pure.core.workload import owners_of
from gateway.tools.replay.cases import Case
from gateway.tools.replay.results import known

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from gateway.pure.core.review import Json
    from gateway.tools.replay.cases import Found

EXISTS: Final = "an object that exists has the changes of admission at the time, and no user"
NO_DEFAULTS: Final = "a file has the object without defaults, and without a user"
OPTIONS: Final = RequestOptions(user="admission-gateway:replay")
_OF_THE_SERVER: Final = (
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "generation",
    "managedFields",
    "selfLink",
)
"""Members of metadata that a creation does not have."""


class ObjectFiles:
    """The objects in files, and in the files of folders at any depth."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths

    def cases(self, found: Found) -> Iterator[Case]:
        """Yield the reviews; see ``cases.Source``."""
        files = [file for path in self._paths for file in _files(path)]
        for number, file in enumerate(files):
            found.read = number / len(files)
            try:
                documents = list(_documents(file))
            except UnusableFileError as error:
                raise GatewayError(error.about(file)) from None
            objects = [item for document in documents for item in _objects(document)]
            for index, item in enumerate(objects):
                found.read = (number + index / len(objects)) / len(files)
                yield from cases_of(item, NO_DEFAULTS, found)


def _objects(document: object) -> Iterator[object]:
    """Yield the object *document*, or each object in the list that it is."""
    if isinstance(document, dict) and isinstance(document.get("items"), list):
        for item in document["items"]:
            yield from _objects(item)
    else:
        yield document


def cases_of(document: object, note: str, found: Found) -> Iterator[Case]:
    """Yield the creation of the object *document*."""
    try:
        if not isinstance(document, dict):
            raise ReviewError("it is not an object")
        request = request_for(as_sent(document), creation_options(document, OPTIONS))
    except ReviewError:
        found.leave_out("a document that is not a complete object")
        return
    yield Case(request, "", None, None, known(allowed=True), (note,))


def creation_options(found: Json, otherwise: RequestOptions) -> RequestOptions:
    """Return how *found* is created: by its owner's controller if Kubernetes has one, or *otherwise*."""
    owners = owners_of(found)
    controller = CREATORS.get(owners[0][:2]) if owners else None
    if controller is None:
        return otherwise
    user, groups = service_account(controller)
    return RequestOptions(user=user, groups=groups)


def as_sent(document: dict[str, Any]) -> dict[str, Any]:
    """Return *document* without what only the API server writes."""
    metadata = document.get("metadata")
    if not isinstance(metadata, dict):
        return document
    kept = {name: value for name, value in metadata.items() if name not in _OF_THE_SERVER}
    return {**{name: value for name, value in document.items() if name != "status"}, "metadata": kept}


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    return sorted(one for one in path.rglob("*") if one.suffix in SUFFIXES and one.is_file())


def _documents(file: Path) -> Iterable[Json | object]:
    """Return the documents in *file*, JSON or YAML.

    Raises:
        UnusableFileError: it cannot be read.
    """
    content = read_file(file)
    try:
        return [orjson.loads(content)]
    except orjson.JSONDecodeError:
        pass
    documents = list(parse_yaml(content.decode(errors="replace")))
    for line, column, message in problems_in(documents):
        raise UnusableFileError(message, (line, column))
    return [one.root for one in documents if one.root is not None]
