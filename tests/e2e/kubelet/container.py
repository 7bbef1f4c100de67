"""One container of a Pod: a process with the Pod's command, environment, files, user and network.

The process is the first of a process namespace, as in a container: signals without a handler have no effect
on it, and its end is the end of its children.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import threading
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from tests.e2e.cluster import FIRST_CLUSTER_IP
from tests.e2e.kubelet.images import HOST_PATH, Mount, pull, root_script
from tests.e2e.kubelet.network import DIES_WITH_PARENT
from tests.e2e.kubelet.probes import Probe, check_over_network, run_inside
from tests.e2e.kubelet.volumes import contents, field
from tests.kit import children_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.client import Api
    from tests.e2e.kubelet.network import NodeNetwork
    from tests.e2e.kubelet.volumes import Volumes

FIRST_BACK_OFF_S: Final = 1.0
"""Pause before the second restart, doubled each time; a kubelet begins with 10 s."""
LAST_BACK_OFF_S: Final = 10.0
LOG_TAIL: Final = 2048
"""Bytes of a log in the status, as a kubelet has it."""


class CannotStart(Exception):
    """A container cannot be made as the Pod says; the text is the reason."""


class Container:
    """A container, over all its runs."""

    def __init__(self, api: Api, pod: dict[str, Any], spec: dict[str, Any], folder: Path) -> None:
        """Take the Pod and the container's part of it, and a folder for its log and root."""
        self.spec, self.name = spec, spec["name"]
        self._api, self._pod = api, pod
        self._security = pod["spec"].get("securityContext", {}) | spec.get("securityContext", {})
        self.log = folder / f"{self.name}.log"
        self._root, self._etc = folder / f"{self.name}.root", folder / "etc"
        self.process: subprocess.Popen[bytes] | None = None
        self._probes: dict[str, Probe] = {}
        self._variables: dict[str, str] = {}
        self._started_event = threading.Event()
        self.restarts = 0
        self.is_ready = self.is_unhealthy = False
        self.waiting, self.message = "ContainerCreating", ""
        self.started_at = ""
        self.terminated: dict[str, Any] | None = None
        """The state of the last run that has ended."""
        self._back_off_s = FIRST_BACK_OFF_S

    # -- a run ------------------------------------------------------------------------------------

    def start(self, network: NodeNetwork, volumes: Volumes) -> None:
        """Start the process and its probes.

        Raises:
            CannotStart: the Pod says something that cannot be done.
            NoImage: the image cannot be pulled.
            NotYet: a ConfigMap or a Secret of the environment is missing.
        """
        image = pull(self.spec["image"])
        self._variables = image.environment | self._environment(network.ip)
        command = self.spec.get("command", image.entrypoint)
        arguments = self.spec.get("args", image.arguments if "command" not in self.spec else [])
        words = [_expand(word, self._variables) for word in (*command, *arguments)]
        user = self._user_flags(image.user)
        mounts = [
            Mount(
                volumes.folder(mount["name"]) / mount.get("subPath", ""),
                mount["mountPath"],
                mount.get("readOnly", False) or not self._is_writable(mount["name"]),
            )
            for mount in self.spec.get("volumeMounts", [])
        ]
        self._root.mkdir(exist_ok=True)
        script = root_script(
            self._root, self._etc, mounts, read_only=self._security.get("readOnlyRootFilesystem", False)
        )
        inside = ["/usr/sbin/chroot", str(self._root)]
        inside += ["/usr/bin/env", "-C", self.spec.get("workingDir", image.folder)]
        inside += [f"PATH={self._variables['PATH']}", "/usr/bin/setpriv", *user, "--", *words]
        spaces = ["unshare", "--mount", "--pid", "--fork", "--kill-child=KILL", "sh", "-c"]
        self.log.touch()
        script += f"\nexec >> {shlex.quote(str(self.log))} 2>&1\nexec {shlex.join(inside)}"
        # Errors of the script, and of unshare, which complains when its child is killed.
        with (self.log.parent / "stand-in.log").open("ab") as errors:
            self.process = subprocess.Popen(
                [*DIES_WITH_PARENT, *network.entered_by, *spaces, script],
                stdin=subprocess.DEVNULL,
                stderr=errors,
                env=self._variables | {"PATH": HOST_PATH},
            )
        self.started_at, self.waiting, self.message = now(), "", ""
        self.is_unhealthy = False
        self._start_probes(network.ip)

    def _is_writable(self, volume: str) -> bool:
        return any(
            one["name"] == volume and "emptyDir" in one for one in self._pod["spec"].get("volumes", [])
        )

    def _environment(self, ip: str) -> dict[str, str]:
        found = {"KUBERNETES_SERVICE_HOST": FIRST_CLUSTER_IP, "KUBERNETES_SERVICE_PORT": "443"}
        found["HOSTNAME"] = self._pod["metadata"]["name"]
        for source in self.spec.get("envFrom", []):
            for kind, resource in (("configMapRef", "configmaps"), ("secretRef", "secrets")):
                if kind in source:
                    prefix = source.get("prefix", "")
                    for key, value in self._contents(resource, source[kind]).items():
                        found[prefix + key] = value.decode()
        for entry in self.spec.get("env", []):
            match entry.get("valueFrom"):
                case None:
                    found[entry["name"]] = _expand(entry.get("value", ""), found)
                case {"fieldRef": {"fieldPath": "status.podIP" | "status.podIPs"}}:
                    found[entry["name"]] = ip
                case {"fieldRef": {"fieldPath": path}}:
                    found[entry["name"]] = field(self._pod, path)
                case {"resourceFieldRef": {"resource": resource}}:
                    kind, _, name = resource.partition(".")
                    found[entry["name"]] = self.spec["resources"][kind][name]
                case {"configMapKeyRef": reference}:
                    self._set(found, entry["name"], "configmaps", reference)
                case {"secretKeyRef": reference}:
                    self._set(found, entry["name"], "secrets", reference)
                case other:
                    raise CannotStart(f"the stand-in for the kubelet has no such value: {other}")
        return found

    def _contents(self, resource: str, reference: dict[str, Any]) -> dict[str, bytes]:
        optional = reference.get("optional", False)
        return contents(self._api, self._pod, resource, reference["name"], optional=optional)

    def _set(self, found: dict[str, str], name: str, resource: str, reference: dict[str, Any]) -> None:
        values = self._contents(resource, reference)
        if reference["key"] in values:
            found[name] = values[reference["key"]].decode()
        elif not reference.get("optional"):
            raise CannotStart(f"couldn't find key {reference['key']} in {resource} {reference['name']}")

    def _user_flags(self, image_user: str) -> list[str]:
        """Return the arguments of setpriv for the user, groups and capabilities."""
        security = self._security
        default_user, _, default_group = image_user.partition(":")
        user = int(security.get("runAsUser", default_user))
        if user == 0 and security.get("runAsNonRoot"):
            raise CannotStart("container has runAsNonRoot and image will run as root")
        groups = [*security.get("supplementalGroups", []), security.get("fsGroup", "")]
        chosen = ",".join(str(group) for group in groups if group != "")
        flags = [
            # A change of the user clears the signal that unshare has set.
            "--pdeathsig=KILL",
            f"--reuid={user}",
            f"--regid={security.get('runAsGroup', default_group or 0)}",
            f"--groups={chosen}" if chosen else "--clear-groups",
        ]
        if "ALL" in security.get("capabilities", {}).get("drop", []):
            flags += ["--inh-caps=-all", "--bounding-set=-all"]
        if security.get("allowPrivilegeEscalation") is False:
            flags.append("--no-new-privs")
        return flags

    # -- probes and hooks -------------------------------------------------------------------------

    def _start_probes(self, ip: str) -> None:
        self._started_event = started = threading.Event()
        at_once = threading.Event()
        at_once.set()
        if "startupProbe" not in self.spec:
            started.set()
        self.is_ready = "readinessProbe" not in self.spec and started.is_set()
        reports = {
            "startupProbe": self._report_started,
            "livenessProbe": self._report_alive,
            "readinessProbe": self._report_ready,
        }
        self._probes = {
            kind: Probe(
                self.spec[kind],
                lambda spec, timeout_s: self.check(spec, ip, timeout_s),
                report,
                at_once if kind == "startupProbe" else started,
                is_once=kind == "startupProbe",
            )
            for kind, report in reports.items()
            if kind in self.spec
        }
        for probe in self._probes.values():
            probe.start()

    def _report_started(self, success: bool, message: str) -> None:
        if success:
            self.is_ready = "readinessProbe" not in self.spec
            self._started_event.set()
        else:
            self._report_alive(success, message)

    def _report_alive(self, success: bool, message: str) -> None:
        if not success:
            self.is_unhealthy, self.message = True, message

    def _report_ready(self, success: bool, message: str) -> None:
        self.is_ready, self.message = success, message

    @property
    def exit_status(self) -> int | None:
        """How the last run has ended; None while it runs, and before the first."""
        return None if self.process is not None or self.terminated is None else self.terminated["exitCode"]

    @property
    def has_started(self) -> bool:
        """Whether it runs, and the startup probe has succeeded."""
        return self.process is not None and self._started_event.is_set()

    def check(self, spec: dict[str, Any], ip: str, timeout_s: float) -> str:
        """Do a probe or a hook, and return why it failed; empty if it succeeded."""
        if "exec" in spec:
            entered = self._entered()
            if not entered:
                return "the container does not run"
            variables = self._variables | {"PATH": HOST_PATH}
            return run_inside([*entered, *spec["exec"]["command"]], variables, timeout_s)
        ports = {port["name"]: port["containerPort"] for port in self.spec.get("ports", []) if "name" in port}
        return check_over_network(spec, ip, ports, timeout_s)

    def execute(self, command: list[str]) -> subprocess.CompletedProcess[bytes]:
        """Run *command* in the container, and return its end."""
        variables = self._variables | {"PATH": HOST_PATH}
        return subprocess.run(
            [*self._entered(), *command],
            env=variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )

    def _entered(self) -> list[str]:
        """Return the start of a command that runs in the container; empty if it does not run."""
        inside = [] if self.process is None else children_of(self.process.pid)
        if not inside:
            return []
        user = self._user_flags(pull(self.spec["image"]).user)
        entered = ["nsenter", f"--target={inside[0]}", "--mount", "--pid", "--net", "--root", "--wd"]
        return [*entered, "/usr/bin/env", f"PATH={self._variables['PATH']}", "/usr/bin/setpriv", *user, "--"]

    # -- the end of a run -------------------------------------------------------------------------

    def stop_probes(self) -> None:
        """End all probes; a container that has ended is not ready."""
        for probe in self._probes.values():
            probe.end()
        self.is_ready = False

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the first process of the container."""
        if self.process is not None and self.process.poll() is None:
            # Of unshare, which passes no signals on; it has no child for a moment.
            with contextlib.suppress(ProcessLookupError):
                for pid in children_of(self.process.pid) or [self.process.pid]:
                    os.kill(pid, number)

    def kill(self) -> None:
        """End the process without grace."""
        self.stop_probes()
        if self.process is not None:
            self.send(signal.SIGKILL)
            self.process.wait()

    def stop(self, ip: str, grace_s: float) -> None:
        """Run the preStop hook, send SIGTERM, and SIGKILL when *grace_s* is over; wait for the end."""
        process = self.process
        if process is None:
            return
        # The readiness probe continues: without ready Pods, those that terminate get connections.
        for kind in self._probes.keys() - {"readinessProbe"}:
            self._probes[kind].end()
        hook = self.spec.get("lifecycle", {}).get("preStop", {})
        deadline = time.monotonic() + grace_s
        if "sleep" in hook:
            _wait(process, min(hook["sleep"]["seconds"], grace_s))
        elif hook:
            self.message = self.check(hook, ip, max(grace_s, 1))
        self.send(signal.SIGTERM)
        # Two seconds at least, as a kubelet gives.
        if not _wait(process, max(deadline - time.monotonic(), 2)):
            self.kill()
        self.reap()

    def reap(self) -> bool:
        """Return whether the process has ended, and record how."""
        if self.process is None or (code := self.process.poll()) is None:
            return False
        self.stop_probes()
        self.process = None
        code = 128 - code if code < 0 else code
        tail = self.log.read_bytes()[-LOG_TAIL:].decode(errors="replace")
        wants_log = self.spec.get("terminationMessagePolicy") == "FallbackToLogsOnError" and code != 0
        self.terminated = {
            "exitCode": code,
            "reason": "Completed" if code == 0 else "Error",
            "message": tail if wants_log else self.message,
            "startedAt": self.started_at,
            "finishedAt": now(),
        }
        return True

    def back_off(self) -> float:
        """Return the seconds to wait before the next run."""
        pause_s = self._back_off_s
        self.waiting, self.message = "CrashLoopBackOff", f"back-off {pause_s:g}s restarting failed container"
        self._back_off_s = min(pause_s * 2, LAST_BACK_OFF_S)
        self.restarts += 1
        return pause_s

    def status(self) -> dict[str, Any]:
        """Return the entry of ``containerStatuses``."""
        if self.process is not None:
            state: dict[str, Any] = {"running": {"startedAt": self.started_at}}
        elif self.waiting:
            state = {"waiting": {"reason": self.waiting, "message": self.message}}
        else:
            state = {"terminated": self.terminated}
        found = {
            "name": self.name,
            "image": self.spec["image"],
            "imageID": self.spec["image"],
            "ready": self.is_ready,
            "started": self.has_started,
            "restartCount": self.restarts,
            "state": state,
        }
        if self.terminated is not None and "terminated" not in state:
            found["lastState"] = {"terminated": self.terminated}
        return found


def now() -> str:
    """Return the time as the API has it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _wait(process: subprocess.Popen[bytes], seconds: float) -> bool:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def _expand(text: str, environment: dict[str, str]) -> str:
    """Return *text* with each ``$(NAME)`` replaced, and ``$$`` as ``$``."""
    return re.sub(
        r"\$\$|\$\(([\w.-]+)\)",
        lambda found: "$" if found[1] is None else environment.get(found[1], found[0]),
        text,
    )
