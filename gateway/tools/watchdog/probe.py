"""The dry run by which the watchdog sees the gateway as the API server does."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from gateway.base.errors import ClusterError, GatewayError
from gateway.base.files import UnusableFileError, read_file
from gateway.base.text import shown
from gateway.config.yaml.parsing import parse_yaml, problems_in
from gateway.engine.object_review import built_in_resource

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from gateway.server.kubernetes.api_client import ApiClient
    from gateway.tools.watchdog.state import Sight

    Json = dict[str, Any]

_PATIENCE_S: Final = 35.0
"""Longer than the longest timeoutSeconds of a webhook."""
_CREATED: Final = frozenset({200, 201, 409})
"""409: the object is there already, and was admitted before that was found out."""
_BUSY: Final = frozenset({429, 503, 504})
_CALL: Final = "failed calling webhook"
_IN_VAIN: Final = ("deadline exceeded", "Client.Timeout", "i/o timeout", "TLS handshake timeout")
"""What the API server says if the gateway did not answer in time. The URL in each of its messages has the
parameter ``timeout``."""
_SLOW: Final = ("Too Many Requests", "unable to handle the request", "prevented the request from succeeding")
"""What it says if the gateway answered that it has too much to do."""
_DENIED: Final = "denied the request"


class Probe:
    """An object that is created in a dry run: a webhook with Fail has to match it."""

    def __init__(self, document: Json) -> None:
        """Raises:
        GatewayError: it is not an object of a built-in, namespaced kind with name and namespace.
        """
        match document:
            case {
                "apiVersion": str(api_version),
                "kind": str(kind),
                "metadata": {"name": str(), "namespace": str(namespace)},
            }:
                group, _, version = api_version.rpartition("/")
                resource = built_in_resource(group, kind)
                if resource is None or not resource.is_namespaced:
                    raise GatewayError(
                        f"--probe: found a {shown(kind)}, expected a namespaced, built-in kind"
                    )
                root = f"/apis/{api_version}" if group else f"/api/{version}"
                self.namespace = namespace
                self.path = f"{root}/namespaces/{quote(namespace, safe='')}/{resource.name}?dryRun=All"
                self.document = document
            case _:
                raise GatewayError("--probe: expected an object with apiVersion, kind, name and namespace")

    async def look(self, api: ApiClient, names: Collection[str]) -> tuple[Sight, str]:
        """Return what a dry run shows of the gateway, whose entries have *names*, and the message."""
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await api.write("POST", self.path, self.document)
        except TimeoutError:
            return "unknown", f"no answer in {_PATIENCE_S:g} s"
        except ClusterError as error:
            return sight_of(error.status, str(error), names), str(error)
        return "answered", ""


def sight_of(status: int, message: str, names: Collection[str]) -> Sight:
    """Return what an answer with *status* and *message* says about the webhooks *names*.

    A denial is an answer, also one because workers are away: the gateway has given it.
    """
    if status in _CREATED or _DENIED in message:
        return "answered"
    if _CALL in message:
        if not any(f'"{name}"' in message for name in names):
            return "unknown"
        if any(one in message for one in _SLOW):
            return "slow"
        return "timeout" if any(one in message for one in _IN_VAIN) else "unreachable"
    return "slow" if status in _BUSY else "unknown"


def read_probe(file: Path) -> Probe:
    """Return the probe in *file*, YAML or JSON.

    Raises:
        GatewayError: it cannot be read, or is not an object that can be a probe.
    """
    try:
        documents = list(parse_yaml(read_file(file).decode(errors="replace")))
    except UnusableFileError as error:
        raise GatewayError(f"--probe: {error.about(file)}") from error
    for line, column, message in problems_in(documents):
        raise GatewayError(f"--probe: {file}:{line}:{column}: {message}")
    found = documents[0].root if len(documents) == 1 else None
    return Probe(found if isinstance(found, dict) else {})
