"""A stand-in for the kubelets of all nodes: Pods that are bound to a node run as processes of this machine.

    python -m tests.e2e.kubelet --port PORT --cluster FOLDER --folder FOLDER

Runs in the network of ``network.py``, until SIGTERM. All its processes end with it.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.e2e.client import Api
from tests.e2e.cluster import ADMIN
from tests.e2e.kubelet.logs import server
from tests.e2e.kubelet.nodes import Nodes
from tests.e2e.kubelet.pod import Runner
from tests.e2e.kubelet.services import Services

if TYPE_CHECKING:
    import socket
    import subprocess
    from collections.abc import Callable

EVERY_S: Final = 0.1
ENDED: Final = ("Succeeded", "Failed")
BOUND: Final = "/api/v1/pods?fieldSelector=spec.nodeName!=&resourceVersion=0"
"""Pods with a node. Version 0: from the API server's memory, without a look into etcd."""
_PARENT_DEATH_SIGNAL: Final = 1
"""PR_SET_PDEATHSIG of prctl(2)."""


class Kubelet:
    """The Pods that run."""

    def __init__(self, api: Callable[[], Api], folder: Path) -> None:
        """Take what makes a client of the API server, and a folder for the Pods' files and for ``away``."""
        self._new_api, self._api, self._folder = api, api(), folder
        self._runners: dict[str, Runner] = {}
        self.nodes = Nodes(api(), folder / "away")
        self._count = 1

    def sync(self) -> None:
        """Start Pods that are new, pass on what has changed, and kill those of nodes that are away."""
        answer = self._api.get(BOUND)
        if answer.status != 200:
            return
        away = self.nodes.away()
        found: dict[str, dict[str, Any]] = {
            pod["metadata"]["uid"]: pod
            for pod in answer.document["items"]
            if pod["spec"]["nodeName"] not in away
        }
        for uid in self._runners.keys() - found.keys():
            self._runners.pop(uid).end()
        for uid, pod in found.items():
            if uid in self._runners:
                self._runners[uid].pod = pod
            elif "deletionTimestamp" in pod["metadata"] or pod["status"].get("phase") not in ENDED:
                self._start(uid, pod)

    def _start(self, uid: str, pod: dict[str, Any]) -> None:
        self._count += 1
        metadata = pod["metadata"]
        folder = self._folder / f"{metadata['namespace']}_{metadata['name']}_{uid}"
        self._runners[uid] = Runner(self._new_api(), pod, self._count, folder)
        self._runners[uid].start()

    def connect(self, namespace: str, name: str, port: int) -> socket.socket:
        """Connect to *port* of the loopback of the Pod *name*. Raises OSError."""
        return self._find(namespace, name).connect(port)

    def run(
        self, namespace: str, name: str, container: str, command: list[str]
    ) -> subprocess.CompletedProcess[bytes]:
        """Run *command* in a container of the Pod *name*, and return its end."""
        return self._find(namespace, name).execute(container, command)

    def _find(self, namespace: str, name: str) -> Runner:
        for runner in list(self._runners.values()):
            metadata = runner.pod["metadata"]
            if (metadata["namespace"], metadata["name"]) == (namespace, name):
                return runner
        raise OSError(f"no Pod {namespace}/{name}")

    def close(self) -> None:
        """Kill all Pods."""
        for runner in self._runners.values():
            runner.end()
        for runner in self._runners.values():
            runner.join()


async def run(kubelet: Kubelet, services: Services) -> None:
    """Run until SIGTERM or SIGINT."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    proxy = asyncio.create_task(services.run())
    print("running", file=sys.stderr, flush=True)  # noqa: T201
    while not ended.is_set() and not proxy.done():
        try:
            await asyncio.to_thread(kubelet.sync)
        except OSError as error:
            print(f"cannot reach the API server: {error}", file=sys.stderr, flush=True)  # noqa: T201
        await asyncio.sleep(EVERY_S)
    proxy.cancel()
    await asyncio.gather(proxy, return_exceptions=ended.is_set())


def main() -> None:
    """Run the stand-in."""
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.kubelet", description=__doc__)
    parser.add_argument("--port", type=int, required=True, help="of the API server")
    parser.add_argument("--cluster", type=Path, required=True, help="folder with the cluster's certificates")
    parser.add_argument("--folder", type=Path, required=True, help="for the files of Pods")
    parsed = parser.parse_args()
    # A test run that is killed takes the Pods along.
    ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGTERM)

    def api() -> Api:
        return Api(parsed.port, parsed.cluster / "ca.crt", ADMIN)

    kubelet = Kubelet(api, parsed.folder)
    pair = parsed.cluster / "server.crt", parsed.cluster / "server.key"
    kubelet.nodes.start()
    threading.Thread(target=server(parsed.folder, *pair, kubelet).serve_forever, daemon=True).start()
    try:
        asyncio.run(run(kubelet, Services(api())))
    finally:
        kubelet.close()


if __name__ == "__main__":
    main()
