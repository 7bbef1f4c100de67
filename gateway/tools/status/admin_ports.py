"""The admin ports of gateways: at an address, or of the pods of a cluster."""

from __future__ import annotations

import asyncio
import base64
import re
import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, quote

import httpx2

from admission_gateway_worker.client_tls import tls_context
from admission_gateway_worker.kubernetes_client import reason_of
from gateway.base.errors import ClusterError, GatewayError
from gateway.base.text import without_url_secrets
from gateway.server.kubernetes.access import connect
from gateway.server.kubernetes.port_forward import fetch

if TYPE_CHECKING:
    from pathlib import Path

    from gateway.config.kinds.kubernetes_settings import KubernetesSettings
    from gateway.server.kubernetes.api_client import ApiClient

    Json = dict[str, Any]

TIMEOUT_S: Final = 10.0
"""The time for each step of a request: connecting, writing, reading."""
ANSWER_TIMEOUT_S: Final = 30.0
"""The time for a whole answer, which may come byte by byte."""
MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024
"""The largest answer. Metrics and pages of ten thousand webhooks have a quarter of it."""
ADMIN_PORT: Final = 9090
MAX_PODS: Final = 100
CANNOT_FORWARD: Final = "the port cannot be forwarded: "
POST_TIMEOUT_S: Final = 45.0
"""Longer than the two phases of a review that is explained."""
_PATH: Final = "/api/v1/namespaces"
_FORBIDDEN: Final = 403
_MISSING_RIGHT: Final = re.compile(r'cannot (\w+) resource "([^"/ ]+)(?:/([^" ]+))?"')
"""In the message of an API server that refuses.

Source: k8s.io/apiserver pkg/endpoints/handlers/responsewriters/errors.go (ForbiddenStatusError).
"""


@dataclass(frozen=True, slots=True)
class AddressedPort:
    """The admin port at an address."""

    name: str
    url: str
    authorization: str = field(default="", repr=False)
    note: str = ""
    """Why it has less than there is. Empty if it has all."""

    async def get(self, path: str) -> tuple[int, bytes]:
        """Return status and body of the answer.

        Raises:
            GatewayError: there is none.
        """
        headers = {"Accept-Encoding": "identity"}
        if self.authorization:
            headers["Authorization"] = self.authorization
        body = bytearray()
        try:
            # Only what a file has is sent: no user of the URL.
            url = f"{httpx2.URL(self.url).copy_with(userinfo=b'', query=None)}".rstrip("/") + path
            async with (
                asyncio.timeout(ANSWER_TIMEOUT_S),
                httpx2.AsyncClient(verify=tls_context(b""), trust_env=False, timeout=TIMEOUT_S) as client,
                client.stream("GET", url, headers=headers) as response,
            ):
                async for chunk in response.aiter_bytes():
                    body += chunk
                    if len(body) > MAX_ANSWER_BYTES:
                        limit = f"{MAX_ANSWER_BYTES // 1024**2} MiB"
                        raise GatewayError(f"{self.name}: an answer of more than {limit}")
                return response.status_code, bytes(body)
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as error:
            raise GatewayError(f"{self.name}: {without_url_secrets(reason_of(error))}") from None


def authorization_of(token_file: Path | None, basic_auth_file: Path | None) -> str:
    """Return the value of the header for the first credential in one of the files; empty without a file.

    Raises:
        GatewayError: the file cannot be read, or has no credential.
    """
    file = token_file or basic_auth_file
    if file is None:
        return ""
    try:
        lines = [line.strip() for line in file.read_text().splitlines()]
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise GatewayError(f"{file}: cannot be read: {reason or 'is not text'}") from None
    found = next((line for line in lines if line and not line.startswith("#")), None)
    if found is None:
        raise GatewayError(f"{file}: has no credential")
    return (
        f"Bearer {found}" if token_file is not None else f"Basic {base64.b64encode(found.encode()).decode()}"
    )


@dataclass(slots=True)
class PodPort:
    """The admin port of a pod, through the API server.

    A forwarded port reaches the pod's loopback, where the pages are. Without the right to forward it is the
    proxy, which reaches the pod's address and has probes and metrics only.
    """

    name: str
    api: ApiClient
    namespace: str
    path: str
    """The path of the pod. Empty if it does not run."""
    port: int = ADMIN_PORT
    phase: str = ""
    authorization: str = field(default="", repr=False)
    note: str = ""
    """Why the port cannot be forwarded. Empty if it can, or was not tried."""

    async def get(self, path: str) -> tuple[int, bytes]:
        """Return status and body of the answer.

        Raises:
            GatewayError: there is none, or the pod does not run.
        """
        if not self.path:
            raise GatewayError(f"the pod does not run: {self.phase or 'no phase'}")
        if not self.note:
            try:
                return await fetch(self.api, self.path, self.port, path, MAX_ANSWER_BYTES, self.authorization)
            except GatewayError as error:
                self.note = f"{CANNOT_FORWARD}{with_check(error, self.namespace)}"
        target, _, query = path.partition("?")
        proxy = f"{self.path}:{self.port}/proxy"
        parameters = dict(parse_qsl(query, keep_blank_values=True))
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                return await self.api.proxied(proxy + target, parameters, MAX_ANSWER_BYTES)
        except TimeoutError:
            raise GatewayError("no answer in time") from None
        except ClusterError as error:
            if error.status != _FORBIDDEN:
                raise
            # A user without both rights needs the one to forward.
            raise ClusterError(self.note, error.status) from error

    async def post(self, path: str, body: bytes) -> tuple[int, bytes]:
        """Return status and body of the answer to *body*, which is not empty.

        Raises:
            GatewayError: there is none, the pod does not run, or its port cannot be forwarded.
        """
        if not self.path:
            raise GatewayError(f"the pod does not run: {self.phase or 'no phase'}")
        try:
            return await fetch(
                *(self.api, self.path, self.port, path, MAX_ANSWER_BYTES, self.authorization),
                body=body,
                timeout_s=POST_TIMEOUT_S,
            )
        except GatewayError as error:
            raise GatewayError(f"{CANNOT_FORWARD}{with_check(error, self.namespace)}") from error


def with_check(error: GatewayError, namespace: str) -> str:
    """Return the text of *error*, which may be about a missing right: then with the command that checks it.

    *namespace* is that of the request; empty: all of them.
    """
    found = _MISSING_RIGHT.search(str(error)) if getattr(error, "status", 0) == _FORBIDDEN else None
    if found is None:
        return str(error)
    verb, resource, subresource = found.groups()
    part = f" --subresource={shlex.quote(subresource)}" if subresource else ""
    scope = f" --namespace {shlex.quote(namespace)}" if namespace else " --all-namespaces"
    return f"{error}; to see whether you may: kubectl auth can-i {verb} {resource}{part}{scope}"


async def pod_ports(
    settings: KubernetesSettings,
    namespace: str,
    selector: str,
    authorization: str = "",
    *,
    or_elsewhere: bool = False,
) -> tuple[ApiClient, list[PodPort]]:
    """Return the client of the cluster, to be closed, and the admin ports of the gateway's pods.

    They are those of *namespace*. If it has none, *or_elsewhere* finds those of the only namespace that has
    some. *authorization* is for pages that need a credential. If it is empty, none is sent.

    Raises:
        ClusterError: the pods cannot be listed.
        GatewayError: there are none, or several namespaces have some.
    """
    api = await asyncio.to_thread(connect, settings)
    try:
        pods = await _pods(api, namespace, selector)
        if not pods:
            nothing = f"no pods in namespace {namespace} with the labels {selector}"
            pods = await _pods_elsewhere(api, selector, nothing) if or_elsewhere else []
            if not pods:
                raise GatewayError(nothing + (", and none in another" if or_elsewhere else ""))
            if authorization:
                # Who may create a pod somewhere may give it these labels.
                found = f"found such pods in {_namespace_of(pods[0])}"
                raise GatewayError(f"{nothing}; {found}: name it, so that they get the credential")
        return api, [_pod_port(api, pod, authorization) for pod in pods]
    except (AttributeError, TypeError) as error:
        await api.close()
        raise ClusterError("the API server answers with pods that are none") from error
    except BaseException:
        await api.close()
        raise


async def _pods_elsewhere(api: ApiClient, selector: str, nothing: str) -> list[Json]:
    """Return the pods of all namespaces. *nothing* begins the errors."""
    try:
        pods = await _pods(api, "", selector)
    except ClusterError as error:
        raise ClusterError(f"{nothing}; other namespaces cannot be searched: {error}") from error
    namespaces = sorted({_namespace_of(pod) for pod in pods})
    if len(namespaces) > 1:
        raise GatewayError(f"{nothing}; found such pods in {', '.join(namespaces)}: name one of them")
    return pods


async def _pods(api: ApiClient, namespace: str, selector: str) -> list[Json]:
    """Return the pods of *namespace*, or of all namespaces if it is empty, that have the labels."""
    path = f"{_PATH}/{quote(namespace, safe='')}/pods" if namespace else "/api/v1/pods"
    try:
        listed = await api.get(path, {"labelSelector": selector, "limit": str(MAX_PODS)})
    except ClusterError as error:
        raise ClusterError(with_check(error, namespace), error.status) from error
    pods = [pod for pod in listed.get("items") or () if isinstance(pod, dict)]
    return [{**pod, "metadata": {"namespace": namespace, **(pod.get("metadata") or {})}} for pod in pods]


def _namespace_of(pod: Json) -> str:
    return str(pod["metadata"]["namespace"])


def _pod_port(api: ApiClient, pod: Json, authorization: str) -> PodPort:
    name, namespace = str(pod["metadata"].get("name")), _namespace_of(pod)
    phase = str((pod.get("status") or {}).get("phase") or "")
    port = next(
        (
            port.get("containerPort")
            for container in (pod.get("spec") or {}).get("containers") or ()
            for port in container.get("ports") or ()
            if port.get("name") == "admin" and isinstance(port.get("containerPort"), int)
        ),
        ADMIN_PORT,
    )
    is_running = phase == "Running"
    path = f"{_PATH}/{quote(namespace, safe='')}/pods/{quote(name, safe='')}" if is_running else ""
    return PodPort(name, api, namespace, path, port, phase, authorization)
