"""The admin ports of gateways: at an address, or of the pods of a cluster."""

from __future__ import annotations

import asyncio
import base64
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, quote

import httpx2

from admission_gateway_worker.client_tls import tls_context
from admission_gateway_worker.kubernetes_client import reason_of
from gateway.base.errors import GatewayError
from gateway.base.text import without_url_secrets
from gateway.server.kubernetes.access import connect
from gateway.server.kubernetes.port_forward import fetch

if TYPE_CHECKING:
    from pathlib import Path

    from gateway.config.kinds.kubernetes_settings import KubernetesSettings
    from gateway.server.kubernetes.api_client import ApiClient

TIMEOUT_S: Final = 10.0
MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024
"""The largest answer. Metrics and pages of ten thousand webhooks have a quarter of it."""
ADMIN_PORT: Final = 9090
MAX_PODS: Final = 100


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
        return await asyncio.to_thread(self._get, path)

    def _get(self, path: str) -> tuple[int, bytes]:
        headers = {"Accept-Encoding": "identity"}
        if self.authorization:
            headers["Authorization"] = self.authorization
        body = bytearray()
        try:
            # Only what a file has is sent: no user of the URL.
            url = f"{httpx2.URL(self.url).copy_with(userinfo=b'', query=None)}".rstrip("/") + path
            with (
                httpx2.Client(verify=tls_context(b""), trust_env=False, timeout=TIMEOUT_S) as client,
                client.stream("GET", url, headers=headers) as response,
            ):
                for chunk in response.iter_bytes():
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
                self.note = f"the port cannot be forwarded: {error}"
        target, _, query = path.partition("?")
        proxy = f"{self.path}:{self.port}/proxy"
        parameters = dict(parse_qsl(query, keep_blank_values=True))
        return await self.api.proxied(proxy + target, parameters, MAX_ANSWER_BYTES)


async def pod_ports(
    settings: KubernetesSettings, namespace: str, selector: str, authorization: str = ""
) -> tuple[ApiClient, list[PodPort]]:
    """Return the client of the cluster, to be closed, and the admin ports of the gateway's pods.

    *authorization* is for pages that need a credential. If it is empty, none is sent.

    Raises:
        ClusterError: the pods cannot be listed.
        GatewayError: there are none.
    """
    api = await asyncio.to_thread(connect, settings)
    try:
        path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods"
        listed = await api.get(path, {"labelSelector": selector, "limit": str(MAX_PODS)})
        pods = [pod for pod in listed.get("items") or () if isinstance(pod, dict)]
        if not pods:
            raise GatewayError(f"no pods in namespace {namespace} with the labels {selector}")
        return api, [_pod_port(api, path, pod, authorization) for pod in pods]
    except BaseException:
        await api.close()
        raise


def _pod_port(api: ApiClient, path: str, pod: dict[str, Any], authorization: str) -> PodPort:
    name = str((pod.get("metadata") or {}).get("name"))
    phase = str((pod.get("status") or {}).get("phase") or "")
    port = next(
        (
            port.get("containerPort")
            for container in (pod.get("spec") or {}).get("containers") or ()
            for port in container.get("ports") or ()
            if port.get("name") == "admin"
        ),
        ADMIN_PORT,
    )
    is_running = phase == "Running"
    pod_path = f"{path}/{quote(name, safe='')}" if is_running else ""
    return PodPort(name, api, pod_path, port, phase, authorization)
