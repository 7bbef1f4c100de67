"""Objects that are about to be written, read as ``serve`` would read them, without a file."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gateway.config.documents import read_documents
from gateway.config.load import read
from gateway.errors import ConfigError, Problem
from gateway.importing.objects import cleaned, file_name, name_of
from gateway.registration.yaml_output import to_yaml
from gateway.text import shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gateway.config.model import Config

    Json = dict[str, Any]

_GATEWAY: Final = "apiVersion: admission-gateway.io/v1alpha1\nkind: GatewayConfiguration\nkubernetes: {}\n"
"""Without a cluster, conditions that ask its authorizer would be refused."""
_NO_FILE: Final = Path("object.yaml")


@dataclass(frozen=True, slots=True)
class Prepared:
    """An object as it is to be written."""

    document: Json
    """As it was read."""
    file: str
    text: str
    problems: tuple[Problem, ...]
    """Why the gateway would refuse it; the place of each is the object, ``KIND "NAME"``."""


def prepare(documents: Sequence[Json], *, as_resource: bool) -> list[Prepared]:
    """Return what is to be written of *documents*, each with what the gateway has against it."""
    times = Counter((one["kind"], name_of(one)) for one in documents)
    prepared = []
    for document in documents:
        text = to_yaml(cleaned(document, as_resource=as_resource))
        name = name_of(document)
        found = list(_problems(text))
        if times[document["kind"], name] > 1:
            expected = "expected one object of this kind and name: none of them is taken"
            found.append(Problem("", "metadata.name", f"found {shown(name)} a second time, {expected}"))
        place = f"{document['kind']} {shown(name)}"
        problems = tuple(replace(problem, where=place) for problem in found)
        prepared.append(Prepared(document, file_name(document), text, problems))
    return prepared


def read_texts(texts: Iterable[str]) -> Config:
    """Return what the gateway reads in *texts*, each the YAML of an object.

    Raises:
        ConfigError: it refuses them; the place of each problem is the object, ``KIND "NAME"``.
    """
    try:
        config = read(chain.from_iterable(read_documents(_NO_FILE, text) for text in (*texts, _GATEWAY)))
    except ConfigError as error:
        raise ConfigError([_placed(problem) for problem in error.problems]) from None
    return replace(config, warnings=tuple(map(_placed, config.warnings)))


def _problems(text: str) -> tuple[Problem, ...]:
    try:
        read_texts([text])
    except ConfigError as error:
        return error.problems
    return ()


def _placed(problem: Problem) -> Problem:
    return replace(problem, where=problem.where.partition(": document ")[2].partition(": ")[2])
