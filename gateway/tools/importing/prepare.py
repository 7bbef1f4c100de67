"""Converts objects to the text that is written, and validates them as ``serve`` would, without a file.

Where a controller writes the ``caBundle`` of an object of the cluster, the text has ``caBundleFrom`` instead.
The object stays there, unregistered (``gateway.tools.registration.unregistered``), and its controller goes
on writing it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from gateway.base.errors import ConfigError, Problem
from gateway.base.text import shown
from gateway.config.merge.read import read
from gateway.config.yaml.documents import read_documents
from gateway.tools.importing.field_managers import is_ca_bundle_written
from gateway.tools.importing.objects import cleaned, file_name, name_of
from gateway.tools.importing.policies import is_policy
from gateway.tools.registration.gateway_entries import entries
from gateway.tools.registration.yaml_output import to_yaml

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gateway.config.merge.model import Config

    Json = dict[str, Any]

_GATEWAY: Final = "apiVersion: admission-gateway.io/v1alpha1\nkind: GatewayConfiguration\nkubernetes: {}\n"
"""With a cluster, conditions may use its authorizer."""
_NO_FILE: Final = Path("object.yaml")


@dataclass(frozen=True, slots=True)
class Prepared:
    """An object in the form that is written."""

    document: Json
    """The object as read."""
    file: str
    text: str
    problems: tuple[Problem, ...]
    """Problems for which the gateway would refuse the object; ``where`` is ``KIND "NAME"``."""


def prepare(documents: Sequence[Json], *, as_resource: bool, follows: bool = True) -> list[Prepared]:
    """Return *documents* in the form that is written, each with its problems.

    If it *follows* CA bundles, they have ``caBundleFrom`` where a controller writes ``caBundle``.
    """
    times = Counter((one["kind"], name_of(one)) for one in documents)
    prepared = []
    for document in documents:
        written = with_followed_bundles(document) if follows and not is_policy(document) else document
        text = to_yaml(cleaned(written, as_resource=as_resource))
        name = name_of(document)
        found = list(_problems(text))
        if times[document["kind"], name] > 1:
            expected = "expected one object of this kind and name: none of them is used"
            found.append(Problem("", "metadata.name", f"found {shown(name)} a second time, {expected}"))
        place = f"{document['kind']} {shown(name)}"
        problems = tuple(replace(problem, where=place) for problem in found)
        prepared.append(Prepared(document, file_name(document), text, problems))
    return prepared


def read_texts(texts: Iterable[str]) -> Config:
    """Return the configuration in *texts*, each the YAML of an object.

    Raises:
        ConfigError: the configuration is invalid; ``where`` of each problem is ``KIND "NAME"``.
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


def with_followed_bundles(document: Json) -> Json:
    """Return *document*, which is not validated, with ``caBundleFrom`` where a controller writes."""
    webhooks = document.get("webhooks")
    if not isinstance(webhooks, list):
        return document
    return {**document, "webhooks": [_entry(document, entry) for entry in webhooks]}


def has_followed_bundles(text: str) -> bool:
    """Whether a webhook of the configuration in *text*, YAML, has ``caBundleFrom``."""
    clients = (entry.get("clientConfig") for entry in entries(yaml.safe_load(text)))
    return any(isinstance(client, dict) and "caBundleFrom" in client for client in clients)


def _entry(document: Json, entry: object) -> object:
    match entry:
        case {"name": str(name), "clientConfig": dict(client), **rest} if is_ca_bundle_written(
            document, name
        ):
            return {"name": name, "clientConfig": _client_config(document, name, client), **rest}
    return entry


def _client_config(document: Json, webhook: str, client: Json) -> Json:
    source = {"kind": document["kind"], "name": name_of(document), "webhook": webhook}
    kept = {key: value for key, value in client.items() if key != "caBundle"}
    return {**kept, "caBundleFrom": {"webhookConfiguration": source}}
