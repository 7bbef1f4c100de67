"""Which documents that the gateway does not evaluate run in the worker of their engine, by the loaders."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from gateway.base.errors import ConfigError
from gateway.config.merge.read import read
from gateway.config.yaml.documents import GATEWAY_VERSION, Document
from gateway.config.yaml.fields import Problems
from gateway.tools.importing.needs import FILE, ReadableKinds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gateway.tools.importing.needs import Resource
    from gateway.tools.importing.other_engines import Imported
    from gateway.tools.migrating.engines import Engine

    Json = dict[str, Any]


def take_into_worker(
    engine: Engine, objects: Sequence[Imported], custom: Mapping[Resource, str]
) -> list[Imported]:
    """Return those of *objects* with problems that run with a worker of *engine*; they lose their problems.

    The others get the problems that they have then. *custom* are the kinds of custom resources that policies
    read.

    Raises:
        ConfigError: the configuration has a problem that is of none of them.
    """
    refused = [one for one in objects if one.problems]
    left, taken = list(objects), {id(one) for one in refused}
    while taken:
        documents = [one.document() for one in left]
        try:
            read([_settings(engine), _pool(engine), *documents], ReadableKinds(custom))
        except ConfigError:
            wrong = [
                (one, found)
                for one, each in zip(left, documents, strict=True)
                if (found := each.problems.found)
            ]
            if not wrong:
                raise
            for one, found in wrong:
                one.problems = list(found)
            left = [one for one in left if all(one is not each for each, _ in wrong)]
            taken &= {id(one) for one in left}
            continue
        for one, each in zip(left, documents, strict=True):
            if id(one) in taken:
                one.problems, one.differences = [], list(each.problems.questionable)
        break
    return [one for one in refused if id(one) in taken]


def _settings(engine: Engine) -> Document:
    content: Json = {
        "apiVersion": GATEWAY_VERSION,
        "kind": "GatewayConfiguration",
        "kubernetes": {},
        "policies": {"engines": {engine.name: {"pool": engine.pool}}},
    }
    return Document(Path(FILE), Problems(FILE), content)


def _pool(engine: Engine) -> Document:
    return Document(Path(FILE), Problems(FILE), pool_of(engine))


def pool_of(engine: Engine) -> Json:
    """Return the WorkerPool of *engine*, whose workers are forwarded to a port of this machine."""
    return {
        "apiVersion": GATEWAY_VERSION,
        "kind": "WorkerPool",
        "metadata": {"name": engine.pool},
        "spec": {"target": [f"127.0.0.1:{engine.port}"]},
    }
