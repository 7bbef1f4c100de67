"""A network of its own for a cluster whose Pods have addresses, and the network of each Pod in it.

- 10.244.0.1, a bridge: kube-apiserver, DNS and the stand-in for the kubelet
- 10.244.0.2 and on: the Pods, each in a network namespace of its own
- 10.0.0.0/24: cluster IPs, on which ``services.py`` listens

``ROUTE`` is what a network plug-in sets up on a node: without it nothing reaches a Pod from there.
Nothing leaves the network: it has no other interface. It vanishes with the last process in it.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import socket
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

NODE_IP: Final = "10.244.0.1"
LOGS_PORT: Final = 10250
CLUSTER_IPS: Final = "10.0.0.0/24"
PROGRAMS: Final = ("ip", "unshare", "nsenter", "setpriv", "mount")
_BRIDGE: Final = "pods"
ROUTE: Final = f"10.244.0.0/16 dev {_BRIDGE} src {NODE_IP}"
_NEW_NETWORK: Final = 0x40000000
"""CLONE_NEWNET of unshare(2)."""
DIES_WITH_PARENT: Final = ("setpriv", "--pdeathsig", "KILL")
"""The start of a command whose process is killed when the thread that started it ends."""


def missing() -> str:
    """Return why this machine cannot have such a network; empty if it can."""
    absent = [name for name in PROGRAMS if shutil.which(name) is None]
    if absent:
        return f"needs {', '.join(absent)} of util-linux and iproute2"
    tried = subprocess.run(
        ["unshare", "--net", "--mount", "--pid", "--fork", "ip", "link", "add", _BRIDGE, "type", "bridge"],
        capture_output=True,
        text=True,
        check=False,
    )
    return tried.stderr.strip()


@contextmanager
def private_network() -> Iterator[None]:
    """Move this thread, and the threads and processes that it starts, into a new network for the block."""
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        _checked(libc.unshare(_NEW_NETWORK))
        try:
            _ip("link set lo up")
            _ip(f"link add {_BRIDGE} type bridge")
            _ip(f"addr add {NODE_IP}/16 dev {_BRIDGE}")
            _ip(f"link set {_BRIDGE} up")
            _ip(f"route add local {CLUSTER_IPS} dev lo")
            yield
        finally:
            _checked(libc.setns(before, _NEW_NETWORK))
    finally:
        os.close(before)


def _checked(status: int) -> None:
    if status != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _ip(arguments: str) -> None:
    subprocess.run(["ip", *arguments.split()], check=True, capture_output=True, text=True)


class NodeNetwork:
    """The network of the node, for Pods with ``hostNetwork``. All nodes have the same one."""

    ip = NODE_IP

    @property
    def entered_by(self) -> list[str]:
        """The start of a command that runs in this network."""
        return []

    def connect(self, port: int) -> socket.socket:
        """Connect to *port* of the loopback, as a container runtime does for a forwarded port."""
        return socket.create_connection(("127.0.0.1", port), 10)

    def close(self) -> None:
        """Remove the network; its processes have ended."""


class PodNetwork(NodeNetwork):
    """The network and host name of one Pod, held by a process that does nothing else."""

    def __init__(self, number: int, host_name: str) -> None:
        """Make the network of Pod *number*, which gives its address."""
        self.ip = f"10.244.{number >> 8}.{number & 255}"
        script = (
            f"echo {host_name} > /proc/sys/kernel/hostname; ip link set lo up; echo; read _; "
            f"ip addr add {self.ip}/16 dev eth0; ip link set eth0 up; ip route add default via {NODE_IP}; "
            "echo; exec sleep infinity"
        )
        self._holder = subprocess.Popen(
            [*DIES_WITH_PARENT, "unshare", "--net", "--uts", "sh", "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._holder.stdin is not None
        assert self._holder.stdout is not None
        self._holder.stdout.readline()
        outer = f"pod{number}"
        _ip(f"link add {outer} type veth peer name eth0 netns {self._holder.pid}")
        _ip(f"link set {outer} master {_BRIDGE} up")
        self._holder.stdin.write(b"\n")
        self._holder.stdin.flush()
        self._holder.stdout.readline()

    @property
    def entered_by(self) -> list[str]:
        spaces = Path("/proc", str(self._holder.pid), "ns")
        return ["nsenter", f"--net={spaces / 'net'}", f"--uts={spaces / 'uts'}"]

    def connect(self, port: int) -> socket.socket:
        libc = ctypes.CDLL(None, use_errno=True)
        before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        inside = os.open(f"/proc/{self._holder.pid}/ns/net", os.O_RDONLY)
        try:
            _checked(libc.setns(inside, _NEW_NETWORK))
            try:
                return super().connect(port)
            finally:
                _checked(libc.setns(before, _NEW_NETWORK))
        finally:
            os.close(inside)
            os.close(before)

    def close(self) -> None:
        self._holder.kill()
        self._holder.wait()
        for pipe in (self._holder.stdin, self._holder.stdout):
            assert pipe is not None
            pipe.close()
