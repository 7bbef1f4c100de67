"""The life of one Pod on a node, in a thread: init containers, containers, restarts, status, and the end.

Source: https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/
"""

from __future__ import annotations

import contextlib
import threading
import time
import traceback
from typing import TYPE_CHECKING, Any, Final

from tests.e2e.client import STRATEGIC_PATCH
from tests.e2e.kubelet.container import CannotStart, Container, now
from tests.e2e.kubelet.images import NoImage
from tests.e2e.kubelet.network import NODE_IP, NodeNetwork, PodNetwork
from tests.e2e.kubelet.volumes import NotYet, Volumes

if TYPE_CHECKING:
    import socket
    import subprocess
    from pathlib import Path

    from tests.e2e.client import Api

TICK_S: Final = 0.1
VOLUMES_EVERY_S: Final = 1.0
"""How often ConfigMaps and Secrets are read again; a kubelet takes up to a minute and more."""
_UNSUPPORTED: Final = ("hostPID", "hostIPC", "hostAliases", "ephemeralContainers")


class Runner(threading.Thread):
    """Runs one Pod until it is deleted, or the stand-in ends."""

    def __init__(self, api: Api, pod: dict[str, Any], number: int, folder: Path) -> None:
        """Take the *pod*, the *number* of its address, and a *folder* for its files."""
        super().__init__(name=f"pod-{pod['metadata']['name']}")
        self._api, self.pod, self._number = api, pod, number
        self._folder, self._uid = folder, pod["metadata"]["uid"]
        self._path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
        self._end = threading.Event()
        self._published: dict[str, Any] = {}
        self._started_at = now()
        spec = pod["spec"]
        self._init = [Container(api, pod, each, folder) for each in spec.get("initContainers", [])]
        self._containers = [Container(api, pod, each, folder) for each in spec["containers"]]
        self._update_at = 0.0
        self._restart_at: dict[str, float] = {}
        self._ip = self._failure = ""

    def end(self) -> None:
        """Kill the Pod's processes and end the thread, without another word to the API server."""
        self._end.set()

    def connect(self, port: int) -> socket.socket:
        """Connect to *port* of the Pod's loopback."""
        return self._network.connect(port)

    def execute(self, container: str, command: list[str]) -> subprocess.CompletedProcess[bytes]:
        """Run *command* in the container called *container*, and return its end."""
        (found,) = (one for one in self._containers if one.name == container)
        return found.execute(command)

    @property
    def _is_ending(self) -> bool:
        return self._end.is_set() or "deletionTimestamp" in self.pod["metadata"]

    def run(self) -> None:
        """Run the Pod until its end, and delete it."""
        try:
            # After an outage of the node it is there already.
            self._folder.mkdir(parents=True, exist_ok=True)
            self._check()
            self._network = self._make_network()
            self._ip = self._network.ip
            try:
                self._write_etc()
                self._live()
                if not self._end.is_set():
                    self._terminate()
            finally:
                for container in (*self._init, *self._containers):
                    container.kill()
                self._network.close()
        except Exception:
            # A fault of the stand-in is the Pod's status, where a test finds it.
            self._failure = traceback.format_exc()
            (self._folder / "stand-in.log").write_text(self._failure)
            self._publish()
            while not self._is_ending:
                self._end.wait(TICK_S)
        if not self._end.is_set():
            self._api.delete(self._path, {"gracePeriodSeconds": 0, "preconditions": {"uid": self._uid}})
        self._api.close()

    def _make_network(self) -> NodeNetwork:
        if self.pod["spec"].get("hostNetwork"):
            return NodeNetwork()
        return PodNetwork(self._number, self.pod["metadata"]["name"])

    def _check(self) -> None:
        spec = self.pod["spec"]
        used = [name for name in _UNSUPPORTED if spec.get(name)]
        used += ["sidecars" for each in spec.get("initContainers", []) if each.get("restartPolicy")]
        if used:
            raise NotImplementedError(f"the stand-in for the kubelet has no {', '.join(used)}")

    def _write_etc(self) -> None:
        metadata = self.pod["metadata"]
        etc = self._folder / "etc"
        etc.mkdir(exist_ok=True)
        suffix = "svc.cluster.local"
        search = f"{metadata['namespace']}.{suffix} {suffix} cluster.local"
        (etc / "resolv.conf").write_text(f"nameserver {NODE_IP}\nsearch {search}\noptions ndots:5\n")
        (etc / "hosts").write_text(f"127.0.0.1 localhost\n{self._ip} {metadata['name']}\n")
        (etc / "hostname").write_text(metadata["name"] + "\n")

    # -- life -------------------------------------------------------------------------------------

    def _live(self) -> None:
        security = self.pod["spec"].get("securityContext", {})
        first = self.pod["spec"]["containers"][0].get("securityContext", {})
        owner = (first.get("runAsUser", security.get("runAsUser", 0)), security.get("fsGroup", 0))
        self._volumes = Volumes(self._api, self.pod, self._folder / "volumes", owner)
        while not self._is_ending:
            # The API server may be restarting.
            with contextlib.suppress(ConnectionError):
                if self._phase() not in ("Succeeded", "Failed"):
                    self._step()
                self._publish()
            self._end.wait(TICK_S)

    def _step(self) -> None:
        """Update the volumes, and start what is to run."""
        if time.monotonic() > self._update_at:
            try:
                self._volumes.update(self.pod)
                self._update_at = time.monotonic() + VOLUMES_EVERY_S
            except NotYet as error:
                self._current()[0].message = str(error)
        # Files are complete before the first container starts.
        if self._update_at:
            self._run_containers()

    def _current(self) -> list[Container]:
        """Return the containers that are to run now."""
        for container in self._init:
            if container.exit_status != 0:
                return [container]
        return self._containers

    def _run_containers(self) -> None:
        for container in self._current():
            if container.reap():
                self._has_ended(container)
            elif container.process is not None and container.is_unhealthy:
                grace_s = self.pod["spec"]["terminationGracePeriodSeconds"]
                container.stop(self._ip, grace_s)
                self._has_ended(container)
            if container.process is None and self._is_due(container):
                try:
                    container.start(self._network, self._volumes)
                except NoImage as error:
                    container.waiting, container.message = "ImagePullBackOff", str(error)
                except (CannotStart, NotYet) as error:
                    container.waiting, container.message = "CreateContainerConfigError", str(error)

    def _has_ended(self, container: Container) -> None:
        if self._restarts(container):
            self._restart_at[container.name] = time.monotonic() + container.back_off()

    def _restarts(self, container: Container) -> bool:
        policy = self.pod["spec"]["restartPolicy"]
        if policy == "OnFailure" or container in self._init:
            return container.exit_status != 0
        return bool(policy == "Always")

    def _is_due(self, container: Container) -> bool:
        if container.name in self._restart_at:
            return time.monotonic() >= self._restart_at[container.name]
        return container.exit_status is None

    # -- the end ----------------------------------------------------------------------------------

    def _terminate(self) -> None:
        grace_s = self.pod["metadata"].get("deletionGracePeriodSeconds", 30)
        stops = [
            threading.Thread(target=container.stop, args=(self._ip, grace_s))
            for container in (*self._init, *self._containers)
        ]
        for stop in stops:
            stop.start()
        self._publish()
        for stop in stops:
            while stop.is_alive() and not self._end.is_set():
                stop.join(TICK_S)
        self._publish()

    # -- status -----------------------------------------------------------------------------------

    def _phase(self) -> str:
        if self._failure:
            return "Failed"
        ended = [each.exit_status for each in self._containers if each.exit_status is not None]
        if len(ended) == len(self._containers) and not any(map(self._restarts, self._containers)):
            return "Failed" if any(ended) else "Succeeded"
        if self.pod["spec"]["restartPolicy"] == "Never" and any(each.exit_status for each in self._init):
            return "Failed"
        has_run = any(each.process or each.terminated for each in self._containers)
        return "Running" if has_run else "Pending"

    def _status(self) -> dict[str, Any]:
        ready = all(container.is_ready for container in self._containers)
        initialized = self._current() is self._containers
        facts = {
            "PodReadyToStartContainers": True,
            "Initialized": initialized,
            "ContainersReady": ready,
            "Ready": ready,
        }
        status = {
            "phase": self._phase(),
            "startTime": self._started_at,
            "hostIP": NODE_IP,
            "hostIPs": [{"ip": NODE_IP}],
            "message": self._failure,
            "initContainerStatuses": [container.status() for container in self._init],
            "containerStatuses": [container.status() for container in self._containers],
            "conditions": [{"type": kind, "status": str(fact)} for kind, fact in facts.items()],
        }
        if self._ip:
            # Otherwise the address before an outage of the node would stay, beside this one.
            status |= {"podIP": self._ip, "podIPs": [{"$patch": "replace"}, {"ip": self._ip}]}
        return status

    def _publish(self) -> None:
        """Write the status if it has changed."""
        status = self._status()
        if status == self._published or self._end.is_set():
            return
        before = {each["type"]: each for each in self._published.get("conditions", [])}
        timed = [
            each if each == before.get(each["type"]) else {**each, "lastTransitionTime": now()}
            for each in status["conditions"]
        ]
        document = {"metadata": {"uid": self._uid}, "status": {**status, "conditions": timed}}
        if self._api.patch(f"{self._path}/status", document, STRATEGIC_PATCH).status in (200, 404, 409):
            self._published = status
