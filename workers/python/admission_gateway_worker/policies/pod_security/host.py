"""Checks of what a pod shares with its node: namespaces, ports, paths, addresses, processes of Windows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from admission_gateway_worker.policies.pod_security.pod import containers, listed, plural, setters

if TYPE_CHECKING:
    from collections.abc import Iterator

    from admission_gateway_worker.policies.pod_security.pod import Pod, Violation


def host_namespaces(pod: Pod) -> Violation | None:
    """Namespaces of the node are forbidden."""
    spec = pod.spec
    bad = [f"{field}=true" for field in ("hostNetwork", "hostPID", "hostIPC") if spec.get(field)]
    return ("host namespaces", ", ".join(bad)) if bad else None


def host_path_volumes(pod: Pod) -> Violation | None:
    """Paths of the node are forbidden."""
    bad = [
        volume.get("name") or ""
        for volume in pod.spec.get("volumes") or ()
        if volume.get("hostPath") is not None
    ]
    return ("hostPath volumes", f"{plural('volume', 'volumes', len(bad))} {listed(bad)}") if bad else None


def host_ports(pod: Pod) -> Violation | None:
    """Ports of the node are forbidden."""
    bad, found = [], set()
    for name, _, container in pod.containers:
        ports = container.get("ports")
        if ports and (used := [str(port["hostPort"]) for port in ports if port.get("hostPort")]):
            bad.append(name)
            found.update(used)
    if not bad:
        return None
    what = plural("hostPort", "hostPorts", len(found))
    return (
        "hostPort",
        f"{containers(bad)} {plural('uses', 'use', len(bad))} {what} {', '.join(sorted(found))}",
    )


def host_probes(pod: Pod) -> Violation | None:
    """Probes and lifecycle handlers may not name a host: the kubelet would send requests to it."""
    bad, found = set(), set()
    for name, _, container in pod.containers:
        for host in _hosts(container):
            bad.add(name)
            found.add(host)
    if not bad:
        return None
    what = plural("probe or lifecycle host", "probe or lifecycle hosts", len(found))
    return (
        "probe or lifecycle host",
        f"{containers(sorted(bad))} {plural('uses', 'use', len(bad))} {what} {listed(sorted(found))}",
    )


def _hosts(container: dict[str, Any]) -> Iterator[str]:
    for field in ("livenessProbe", "readinessProbe", "startupProbe"):
        if handler := container.get(field):
            yield from _host(handler)
    if lifecycle := container.get("lifecycle"):
        for field in ("postStart", "preStop"):
            if handler := lifecycle.get(field):
                yield from _host(handler)


def _host(handler: dict[str, Any]) -> Iterator[str]:
    for field in ("httpGet", "tcpSocket"):
        if host := (handler.get(field) or {}).get("host"):
            yield host


def windows_host_process(pod: Pod) -> Violation | None:
    """Containers of Windows may not be processes of the node."""
    bad = [name for name, security, _ in pod.containers if _is_host_process(security)]
    if found := setters(bad, pod=_is_host_process(pod.security)):
        return "hostProcess", f"{found} must not set securityContext.windowsOptions.hostProcess=true"
    return None


def _is_host_process(security: dict[str, Any]) -> bool:
    return bool((security.get("windowsOptions") or {}).get("hostProcess"))
