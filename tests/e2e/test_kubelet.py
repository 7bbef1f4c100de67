"""The stand-in for the kubelet does with a Pod what its fields say."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.e2e.kubelet.network import missing
from tests.waiting import eventually

if TYPE_CHECKING:
    from tests.e2e.cluster import Cluster

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"no private network: {missing()}")

PODS: Final = "/api/v1/namespaces/default/pods"
IMAGE: Final = "registry.test/tools:1"
RESTRICTED: Final = {
    "runAsUser": 65532,
    "runAsGroup": 65532,
    "readOnlyRootFilesystem": True,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
}


class Pods:
    """Pods in the namespace ``default``, and what their containers print."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster, self.api, self._folder = cluster, cluster.api, folder

    def create(self, name: str, script: str, *, spec: dict[str, Any] | None = None, **container: Any) -> None:
        """Create a Pod that runs a shell *script*, with fields of the *spec* and of the *container*."""
        main = {"name": "main", "image": IMAGE, "command": ["sh", "-c", script], **container}
        document = {
            "metadata": {"name": name, "labels": {"app": name}},
            "spec": {"containers": [main], **(spec or {})},
        }
        answer = self.api.create(PODS, document)
        assert answer.status == 201, answer

    def status(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.api.get(f"{PODS}/{name}").document["status"]
        return found

    def container(self, name: str) -> dict[str, Any]:
        (found,) = self.status(name).get("containerStatuses") or [{}]
        assert isinstance(found, dict)
        return found

    def wait_for_phase(self, name: str, phase: str) -> None:
        eventually(lambda: self.status(name)["phase"] == phase, f"{phase} of {name}: {self.status(name)}")

    def output(self, name: str) -> str:
        (log,) = self._folder.glob(f"default_{name}_*/main.log")
        return log.read_text()

    def run(self, name: str, script: str, **fields: Any) -> str:
        """Create a Pod, and return what it printed when it has succeeded."""
        spec = {"restartPolicy": "Never", **fields.pop("spec", {})}
        self.create(name, script, spec=spec, **fields)
        eventually(lambda: self.status(name)["phase"] in ("Succeeded", "Failed"))
        assert self.status(name)["phase"] == "Succeeded", (self.status(name), self.output(name))
        return self.output(name)


@pytest.fixture(scope="module")
def pods(whole: Cluster, folder: Path) -> Pods:
    eventually(lambda: whole.api.get("/api/v1/namespaces/default/serviceaccounts/default").status == 200)
    return Pods(whole, folder / "pods")


def config_map(pods: Pods, name: str, **data: str) -> None:
    path = "/api/v1/namespaces/default/configmaps"
    assert pods.api.create(path, {"metadata": {"name": name}, "data": data}).status == 201


def test_a_container_has_the_user_the_rights_and_the_root_of_its_security_context(pods: Pods) -> None:
    # $$ is one dollar in a command of a Pod.
    script = "id -u; id -g; echo $$$$; grep -E 'NoNewPrivs|CapBnd' /proc/self/status; touch /tmp/x"
    found = pods.run(
        "restricted",
        f"{script}; touch /data/y; stat -c %u:%g /data/y",
        spec={"volumes": [{"name": "tmp", "emptyDir": {}}], "securityContext": {"fsGroup": 7}},
        volumeMounts=[{"name": "tmp", "mountPath": "/data"}],
        securityContext=RESTRICTED,
    )
    assert found.startswith("65532\n65532\n1\n")
    assert "NoNewPrivs:\t1" in found
    assert "CapBnd:\t0000000000000000" in found
    assert "touch: cannot touch '/tmp/x': Read-only file system" in found
    assert found.endswith("65532:7\n")


def test_environment_and_arguments_are_those_of_the_pod(pods: Pods) -> None:
    config_map(pods, "settings", color="red", shape="round")
    env = [
        {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "COLOR", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "color"}}},
        {"name": "BOTH", "value": "$(NAME) $(COLOR) $$(NAME) $(ABSENT)"},
    ]
    found = pods.run(
        "environment",
        'echo "$NODE $IP $BOTH $shape $0"; hostname',
        args=["$(COLOR)"],
        env=env,
        envFrom=[{"configMapRef": {"name": "settings"}}],
    )
    status = pods.status("environment")
    node = pods.api.get(f"{PODS}/environment").document["spec"]["nodeName"]
    line = f"{node} {status['podIP']} environment red $(NAME) $(ABSENT) round red"
    assert found.splitlines() == [line, "environment"]


def test_a_pod_waits_for_its_config_map_and_sees_its_changes(pods: Pods) -> None:
    volume = {"name": "late", "configMap": {"name": "late"}}
    pods.create(
        "waits",
        "until [ $(cat /etc/late/key) = second ]; do sleep 0.1; done; readlink /etc/late/key",
        spec={"volumes": [volume], "restartPolicy": "Never"},
        volumeMounts=[{"name": "late", "mountPath": "/etc/late"}],
        securityContext=RESTRICTED,
    )
    eventually(
        lambda: "late" in pods.container("waits").get("state", {}).get("waiting", {}).get("message", "")
    )
    config_map(pods, "late", key="first")
    pods.wait_for_phase("waits", "Running")
    path = "/api/v1/namespaces/default/configmaps/late"
    assert pods.api.patch(path, {"data": {"key": "second"}}).status == 200
    pods.wait_for_phase("waits", "Succeeded")
    assert pods.output("waits") == "..data/key\n"


def test_a_pod_calls_the_api_server_with_its_own_account_by_address_and_by_name(pods: Pods) -> None:
    script = """
import json, os, ssl, urllib.request
folder = "/var/run/secrets/kubernetes.io/serviceaccount/"
context = ssl.create_default_context(cafile=folder + "ca.crt")
review = json.dumps({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}).encode()
for host in (os.environ["KUBERNETES_SERVICE_HOST"], "kubernetes.default.svc"):
    url = f"https://{host}/apis/authentication.k8s.io/v1/selfsubjectreviews"
    headers = {"Authorization": "Bearer " + open(folder + "token").read(), "Content-Type": "application/json"}
    request = urllib.request.Request(url, review, headers)
    print(json.load(urllib.request.urlopen(request, context=context))["status"]["userInfo"]["username"])
print(open(folder + "namespace").read())
"""
    found = pods.run("calls", "", command=["python", "-c", script], securityContext=RESTRICTED)
    assert found.split() == ["system:serviceaccount:default:default"] * 2 + ["default"]


def test_exit_statuses_and_restarts_follow_the_restart_policy(pods: Pods) -> None:
    for policy, status in (("Never", 4), ("OnFailure", 0)):
        pods.create(f"exits-{policy.lower()}", f"exit {status}", spec={"restartPolicy": policy})
    pods.create("crashes", "echo run; exit 5", terminationMessagePolicy="FallbackToLogsOnError")
    pods.create("broken", "", image="registry.test/tools:absent")
    pods.wait_for_phase("exits-never", "Failed")
    pods.wait_for_phase("exits-onfailure", "Succeeded")
    eventually(lambda: pods.container("crashes").get("restartCount", 0) >= 2)
    last = pods.container("crashes")["lastState"]["terminated"]
    assert (last["exitCode"], last["message"].splitlines()[-1]) == (5, "run")
    eventually(
        lambda: (
            pods.container("broken").get("state", {}).get("waiting", {}).get("reason") == "ImagePullBackOff"
        )
    )
    assert pods.status("broken")["phase"] == "Pending"


def test_init_containers_run_in_order_before_the_others(pods: Pods) -> None:
    share = [{"name": "share", "mountPath": "/share"}]
    init = [
        {"name": name, "image": IMAGE, "command": ["sh", "-c", script], "volumeMounts": share}
        for name, script in (("first", "echo 1 > /share/file"), ("second", "echo 2 >> /share/file"))
    ]
    spec = {"initContainers": init, "volumes": [{"name": "share", "emptyDir": {}}]}
    assert pods.run("ordered", "cat /share/file", spec=spec, volumeMounts=share) == "1\n2\n"


def test_probes_govern_readiness_and_restarts(pods: Pods) -> None:
    # A slow check is no failed one.
    often = {"periodSeconds": 1, "failureThreshold": 2, "timeoutSeconds": 60}
    pods.create(
        "probed",
        "rm -f /tmp/*; touch /tmp/started; exec sleep 1000",
        startupProbe={"exec": {"command": ["cat", "/tmp/started"]}, **often, "failureThreshold": 120},
        readinessProbe={"exec": {"command": ["cat", "/tmp/ready"]}, **often},
        livenessProbe={"exec": {"command": ["sh", "-c", "! cat /tmp/dead"]}, **often},
        spec={"volumes": [{"name": "tmp", "emptyDir": {}}], "terminationGracePeriodSeconds": 0},
        volumeMounts=[{"name": "tmp", "mountPath": "/tmp"}],
    )
    eventually(lambda: pods.container("probed").get("started"))
    assert not pods.container("probed")["ready"]
    (tmp,) = pods._folder.glob("default_probed_*/volumes/tmp")
    (tmp / "ready").touch()
    eventually(lambda: pods.container("probed")["ready"])
    (tmp / "ready").unlink()
    eventually(lambda: not pods.container("probed")["ready"])
    (tmp / "dead").touch()
    eventually(lambda: pods.container("probed")["restartCount"] == 1)


def test_a_deleted_pod_gets_its_hook_then_sigterm_then_sigkill(pods: Pods) -> None:
    pods.create(
        "ends",
        "trap 'echo hook' USR1; trap 'echo term' TERM; echo up; while :; do sleep 0.1; done",
        lifecycle={"preStop": {"exec": {"command": ["sh", "-c", "kill -USR1 1"]}}},
        # Enough for both handlers; SIGTERM does not end the process.
        spec={"terminationGracePeriodSeconds": 10},
    )
    eventually(lambda: pods.status("ends")["phase"] == "Running" and "up" in pods.output("ends"))
    assert pods.api.delete(f"{PODS}/ends").status == 200
    eventually(lambda: pods.api.get(f"{PODS}/ends").status == 404)
    assert pods.output("ends").split() == ["up", "hook", "term"]


def test_a_cluster_ip_and_a_name_lead_to_ready_pods_only(pods: Pods) -> None:
    for name, probe in (("serves", {}), ("unready", {"readinessProbe": {"exec": {"command": ["false"]}}})):
        pods.create(
            name,
            "cd /tmp; hostname > index.html; exec python -m http.server 8000",
            ports=[{"name": "http", "containerPort": 8000}],
            **probe,
        )
    for name in ("serves", "unready"):
        for suffix, fields in (("", {}), ("-headless", {"clusterIP": "None"})):
            port = {"port": 80 if not suffix else 8000, "targetPort": "http"}
            service = {
                "metadata": {"name": name + suffix},
                "spec": {"selector": {"app": name}, "ports": [port], **fields},
            }
            assert pods.api.create("/api/v1/namespaces/default/services", service).status == 201
    script = """
import socket, urllib.request
for url in ("http://serves", "http://serves-headless.default.svc:8000"):
    while True:
        try:
            print(urllib.request.urlopen(url).read().decode().strip())
            break
        except OSError:
            pass
print(socket.gethostbyname("unready") != "", end=" ")
try:
    urllib.request.urlopen("http://unready")
except OSError:
    print("refused")
"""
    found = pods.run("client", "", command=["python", "-c", script])
    assert found.split() == ["serves", "serves", "True", "refused"]


def test_a_job_runs_to_its_completion(pods: Pods) -> None:
    jobs = "/apis/batch/v1/namespaces/default/jobs"
    for name, status in (("good", 0), ("bad", 1)):
        main = {"name": "main", "image": IMAGE, "command": ["sh", "-c", f"exit {status}"]}
        template = {"spec": {"restartPolicy": "Never", "containers": [main]}}
        document = {"metadata": {"name": name}, "spec": {"backoffLimit": 0, "template": template}}
        assert pods.api.create(jobs, document).status == 201

    def conditions(name: str) -> set[str]:
        found = pods.api.get(f"{jobs}/{name}").document["status"].get("conditions", [])
        return {each["type"] for each in found if each["status"] == "True"}

    eventually(lambda: "Complete" in conditions("good"))
    eventually(lambda: "Failed" in conditions("bad"))


def test_kubectl_shows_the_log_of_a_container(pods: Pods) -> None:
    printed = pods.run("talks", "echo one; echo two >&2")
    shown = pods.cluster.kubectl("logs", "talks")
    assert (shown.stdout, printed) == ("one\ntwo\n", "one\ntwo\n"), shown.stderr


def test_nothing_of_a_deleted_pod_remains(pods: Pods) -> None:
    pods.create("leaves", "sleep 1234567 & exec sleep 1234567", spec={"terminationGracePeriodSeconds": 0})
    pods.wait_for_phase("leaves", "Running")
    assert pods.api.delete(f"{PODS}/leaves").status == 200
    eventually(lambda: pods.api.get(f"{PODS}/leaves").status == 404)

    def processes() -> str:
        return subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout

    # Without a grace period the API server does not wait for the kubelet.
    eventually(lambda: "1234567" not in processes())
    eventually(lambda: "leaves" not in Path("/proc/mounts").read_text())

    def interfaces() -> int:
        listed = subprocess.run(["ip", "-json", "link"], capture_output=True, check=True).stdout
        return sum(link["ifname"] not in ("lo", "pods") for link in json.loads(listed))

    eventually(lambda: interfaces() == len(pods.api.get(PODS).document["items"]))
