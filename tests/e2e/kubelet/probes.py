"""Probes of a container: HTTP, TCP, gRPC and commands, each in a thread of its own."""

from __future__ import annotations

import http.client
import socket
import ssl
import subprocess
import threading
import traceback
from typing import TYPE_CHECKING, Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from collections.abc import Callable


class Probe(threading.Thread):
    """One probe of one run of a container. *report* gets each change of its result."""

    def __init__(
        self,
        spec: dict[str, Any],
        check: Callable[[dict[str, Any], float], str],
        report: Callable[[bool, str], None],
        may_start: threading.Event,
        *,
        is_once: bool,
    ) -> None:
        """Take the probe's document, a function that probes once, and an event to wait for.

        *is_once*: it ends with its first success, as a startup probe does.
        """
        super().__init__(daemon=True)
        self._spec, self._check, self._report, self._may_start = spec, check, report, may_start
        self._is_once = is_once
        self._end = threading.Event()
        self._reporting = threading.Lock()

    def end(self) -> None:
        """Stop. A check that runs already reports nothing."""
        with self._reporting:
            self._end.set()
        self._may_start.set()

    def run(self) -> None:
        """Probe until the end."""
        self._may_start.wait()
        spec, streak, last = self._spec, 0, None
        self._end.wait(spec.get("initialDelaySeconds", 0))
        while not self._end.is_set():
            try:
                failure = self._check(spec, spec.get("timeoutSeconds", 1))
            except Exception:
                failure = traceback.format_exc()
            streak = streak + 1 if (not failure) is last else 1
            last = not failure
            needed = spec.get("successThreshold", 1) if last else spec.get("failureThreshold", 3)
            with self._reporting:
                if streak == needed and not self._end.is_set():
                    self._report(last, failure)
            if last and self._is_once:
                return
            self._end.wait(spec.get("periodSeconds", 10))


def check_over_network(spec: dict[str, Any], ip: str, ports: dict[str, int], timeout_s: float) -> str:
    """Do the probe or hook *spec* once, and return why it failed; empty if it succeeded."""
    try:
        match spec:
            case {"httpGet": get}:
                return _http(get, ip, _port(get, ports), timeout_s)
            case {"tcpSocket": target}:
                socket.create_connection((ip, _port(target, ports)), timeout_s).close()
                return ""
            case {"grpc": target}:
                return _grpc(f"{ip}:{target['port']}", target.get("service") or "", timeout_s)
    except (OSError, http.client.HTTPException) as error:
        return str(error)
    raise NotImplementedError(f"the stand-in for the kubelet has no such probe: {spec}")


def run_inside(command: list[str], environment: dict[str, str], timeout_s: float) -> str:
    """Run *command*, which enters a container, and return why it failed; empty if it succeeded."""
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired:
        return "timed out"
    return "" if done.returncode == 0 else f"{done.stdout}{done.stderr}"[-1000:] or f"exit {done.returncode}"


def _port(target: dict[str, Any], ports: dict[str, int]) -> int:
    port = target["port"]
    return ports[port] if isinstance(port, str) else int(port)


def _http(get: dict[str, Any], ip: str, port: int, timeout_s: float) -> str:
    host = get.get("host") or ip
    if get.get("scheme", "HTTP") == "HTTPS":
        context = ssl._create_unverified_context()  # as kubelets do
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            host, port, timeout=timeout_s, context=context
        )
    else:
        connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    headers = {header["name"]: header["value"] for header in get.get("httpHeaders", [])}
    try:
        connection.request("GET", get.get("path") or "/", headers={"User-Agent": "kube-probe", **headers})
        status = connection.getresponse().status
    finally:
        connection.close()
    return "" if 200 <= status < 400 else f"HTTP probe failed with statuscode: {status}"


def _grpc(target: str, service: str, timeout_s: float) -> str:
    with grpc.insecure_channel(target, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        try:
            answer = health_pb2_grpc.HealthStub(channel).Check(
                health_pb2.HealthCheckRequest(service=service), timeout=timeout_s
            )
        except grpc.RpcError as error:
            return str(error)[:500]
    return "" if answer.status == health_pb2.HealthCheckResponse.SERVING else "not serving"
