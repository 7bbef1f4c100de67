"""``python -m tests.kubernetes.params_memory``: the memory of parameters, a table of docs/sizing.md.

A gateway reads ConfigMaps as the parameters of a policy from an API server on loopback, which makes them page
by page. The memory of a process is that of Linux after the list (``RssAnon``: what no other process shares).
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import trustme

from loadtest.report import machine, markdown_table, versions
from tests.kit import GatewayProcess
from tests.kubernetes.server import ApiServer, Handler
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Sequence

    Json = dict[str, Any]

LIST: Final = "/api/v1/configmaps"
NAMESPACES: Final = 1000
KEYS: Final = 10
RESOURCE: Final = {
    "name": "configmaps",
    "kind": "ConfigMap",
    "namespaced": True,
    "verbs": ["get", "list", "watch"],
}
EXPRESSIONS: Final = {
    "`data.limit`": "int(params.data.limit) >= size(object.metadata.name)",
    "the whole object": "params != {'size': object.metadata.name}",
}


def config_map(number: int) -> Json:
    """Return a ConfigMap as kube-apiserver sends it, of about 1.5 KB."""
    name, namespace = f"team-settings-{number:06d}", f"namespace-{number % NAMESPACES:04d}"
    data = {f"setting-{each}": f"value {number * 17 + each} of a setting" for each in range(KEYS - 1)}
    data["limit"] = str(number % 100 + 100)
    managed = {
        "manager": "kubectl-client-side-apply",
        "operation": "Update",
        "apiVersion": "v1",
        "time": "2026-01-01T00:00:00Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": {
            "f:data": {".": {}, **{f"f:{key}": {} for key in data}},
            "f:metadata": {"f:annotations": {".": {}, "f:note": {}}, "f:labels": {".": {}, "f:team": {}}},
        },
    }
    metadata = {
        "name": name,
        "namespace": namespace,
        "uid": f"00000000-0000-4000-8000-{number:012d}",
        "resourceVersion": str(1_000_000 + number),
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {"team": f"team-{number % 50}", "app.kubernetes.io/managed-by": "platform"},
        "annotations": {"note": f"settings of the team {number}"},
        "managedFields": [managed],
    }
    return {"metadata": metadata, "data": data}


class _Handler(Handler):
    def _list(self, path: str, parameters: dict[str, str]) -> None:
        if path != LIST:
            super()._list(path, parameters)
            return
        assert isinstance(self.server, _Server)
        first, number = int(parameters.get("continue", 0)), self.server.number
        last = min(first + self.server.page, number)
        metadata = {"resourceVersion": "100"} | ({"continue": str(last)} if last < number else {})
        items = [config_map(each) for each in range(first, last)]
        self.answer(200, {"kind": "ConfigMapList", "items": items, "metadata": metadata})


class _Server(ApiServer):
    """An API server with *number* ConfigMaps."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number
        self.resources["/api/v1"] = [RESOURCE]

    def handler(self, reader: Any, writer: Any) -> Handler:
        return _Handler(self, reader, writer)


def write_configuration(folder: Path, kubeconfig: Path, expression: str, processes: int) -> None:
    """Write a policy with *expression* and its binding to all ConfigMaps."""
    rules = [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]
    head = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": "p"}}
    policy = {
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "matchConstraints": {"resourceRules": rules},
        "validations": [{"expression": expression}],
    }
    reference = {"name": "team-settings", "parameterNotFoundAction": "Allow"}
    binding = {"policyName": "p", "validationActions": ["Deny"], "paramRef": reference}
    documents = [
        {**head, "kind": "ValidatingAdmissionPolicy", "spec": policy},
        {**head, "kind": "ValidatingAdmissionPolicyBinding", "spec": binding},
        {
            "apiVersion": "admission-gateway.io/v1alpha1",
            "kind": "GatewayConfiguration",
            "processes": processes,
            "kubernetes": {"kubeconfig": str(kubeconfig)},
        },
    ]
    (folder / "config.yaml").write_text("\n---\n".join(map(json.dumps, documents)))


def measured(number: int, expression: str, processes: int) -> list[tuple[float, float]]:
    """Return the MiB of memory and the seconds of CPU of each process after it has read *number* objects."""
    authority = trustme.CA()
    with tempfile.TemporaryDirectory() as name, _Server(number) as server:
        folder = Path(name)
        leaf, pair = authority.issue_cert("localhost"), (folder / "tls.crt", folder / "tls.key")
        leaf.cert_chain_pems[0].write_to_path(pair[0])
        leaf.private_key_pem.write_to_path(pair[1])
        config = folder / "config"
        config.mkdir()
        write_configuration(config, server.kubeconfig(folder), expression, processes)
        gateway = GatewayProcess(config, pair, authority)
        try:
            # A process watches once it has read the list.
            eventually(lambda: server.asked("watch params") >= processes, "the watches of all processes")
            found = gateway.children() if processes > 1 else [gateway.child.pid]
            return [(_memory_mib(pid), _cpu_s(pid)) for pid in found]
        finally:
            gateway.stop()


def _memory_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("RssAnon:")[1].split()[0]) / 1024


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.kubernetes.params_memory", description=__doc__)
    parser.add_argument("--objects", type=int, nargs="+", default=[0, 10_000, 100_000])
    parser.add_argument("--processes", type=int, nargs="+", default=[2])
    parser.add_argument("--reads", choices=EXPRESSIONS, nargs="+", default=[*EXPRESSIONS])
    parsed = parser.parse_args(arguments)
    rows = []
    for number in parsed.objects:
        for reads in parsed.reads:
            for processes in parsed.processes:
                found = measured(number, EXPRESSIONS[reads], processes)
                row = [f"{number:,}", reads, str(processes)]
                row.append(f"{max(mib for mib, _ in found):.0f} MiB")
                row.append(f"{sum(mib for mib, _ in found):.0f} MiB")
                row.append(f"{max(cpu for _, cpu in found):.1f} s")
                rows.append(row)
                sys.stderr.write(f"{' '.join(row)}\n")
    facts = "".join(f"- {each}\n" for each in (machine(), versions()))
    titles = ["objects", "expressions read", "processes", "a process", "all processes", "CPU until read"]
    sys.stdout.write(f"{facts}\n{markdown_table(titles, rows, [1])}\n")


if __name__ == "__main__":
    main()
