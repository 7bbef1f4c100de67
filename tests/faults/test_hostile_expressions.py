"""Expressions that make a small object large: other reviews go on, and the gateway's memory is bounded.

An attack would not end, or would take all memory of the machine, if anything walked its value to the end.
While it is under way, honest reviews have to be answered.
"""

from __future__ import annotations

import json
import re
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.faults.hostile import HostileClient, post
from tests.faults.kit import SOME_PORT, all_well, configure, wait_until_ready
from tests.faults.test_hostile_objects import review
from tests.kit import GatewayProcess, WorkerProcess, pool_document, webhook_document
from tests.load import Load

if TYPE_CHECKING:
    from collections.abc import Iterator

    import trustme

pytestmark = pytest.mark.process

LEVELS = 60
ANSWERS = 20
"""Honest reviews that are answered during each attack."""
MAX_BYTES = 700 * 1024 * 1024
"""Of the gateway's process, which has about 100 MB before the attacks. A value that is written takes all."""
RULES = {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}
TWICE = "".join(f".map(v{n}, dyn({{'x': v{n}, 'y': v{n}}}))" for n in range(LEVELS))
SUM = "".join(f".map(v{n}, v{n} + v{n})" for n in range(LEVELS))
CONDITIONS = {
    "compared": f"[dyn(object)]{TWICE}.all(z, z == z)",
    "wanted": f"[dyn(object)]{TWICE}.all(z, [z, z].indexOf(z.x) < 0)",
    "formatted": f"[dyn(object)]{TWICE}.all(z, '%s'.format([z]) == '')",
    "texts": f"[dyn(object.text)]{SUM}.size() == 1",
    "lists": f"[dyn(object.list)]{SUM}.size() == 1",
    "searched": "object.list.all(x, !object.text.contains('ab'))",
    "trimmed": "object.list.all(x, object.spaces.trim() == '')",
    "patterns": r"object.list.all(x, !'a'.matches('\\pL{1000}' + string(x)) || true)",
}
VARIABLES = [
    {
        "name": f"v{n}",
        "expression": f"{{'x': variables.v{n - 1}, 'y': variables.v{n - 1}}}" if n else "object",
    }
    for n in range(LEVELS)
]
TOP = f"variables.v{LEVELS - 1}"
VALIDATIONS: dict[str, dict[str, Any]] = {
    "variables": {"variables": VARIABLES, "validations": [{"expression": f"{TOP} == {TOP}"}]},
    "annotated": {
        "auditAnnotations": [{"key": "k", "valueExpression": f"'%s'.format([dyn(object)]{TWICE})"}],
    },
    "message": {
        "validations": [{"expression": "false", "messageExpression": f"[dyn(object.text)]{SUM}[0] + ''"}],
    },
}
ADD = '[JSONPatch{op: "add", path: "/spec/%s", value: %s}]'
MUTATIONS = {
    "doubled": [ADD % (f"a{n}", "object.spec") for n in range(30)],
    "shared": [ADD % ("x", f"[dyn(object.spec)]{TWICE}")],
}


def document(kind: str, name: str, **spec: Any) -> str:
    head = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}}
    return json.dumps({**head, "spec": spec}) + "\n---\n"


def validating(name: str, **spec: Any) -> str:
    everything = {"resourceRules": [RULES]}
    return document("ValidatingAdmissionPolicy", name, matchConstraints=everything, **spec) + document(
        "ValidatingAdmissionPolicyBinding", name, policyName=name, validationActions=["Deny"]
    )


def mutating(name: str, expressions: list[str]) -> str:
    mutations = [{"patchType": "JSONPatch", "jsonPatch": {"expression": each}} for each in expressions]
    spec = {
        "matchConstraints": {"resourceRules": [RULES]},
        "reinvocationPolicy": "Never",
        "mutations": mutations,
    }
    return document("MutatingAdmissionPolicy", name, **spec) + document(
        "MutatingAdmissionPolicyBinding", name, policyName=name
    )


@pytest.fixture(scope="module")
def gateway(
    tmp_path_factory: pytest.TempPathFactory, certificate: tuple[Path, Path], authority: trustme.CA
) -> Iterator[GatewayProcess]:
    with ExitStack() as processes:
        worker = WorkerProcess(SOME_PORT)
        processes.callback(worker.stop)
        conditions = [
            webhook_document(
                "validate",
                name,
                "pool",
                {},
                failurePolicy="Ignore",
                timeoutSeconds=1,
                matchConditions=[{"name": "c", "expression": expression}],
            )
            for name, expression in CONDITIONS.items()
        ]
        folder = configure(
            tmp_path_factory.mktemp("expressions"),
            pool_document("pool", worker.target),
            webhook_document("validate", "good", "pool", {}),
            *conditions,
            *(validating(name, **spec) for name, spec in VALIDATIONS.items()),
            *(mutating(name, expressions) for name, expressions in MUTATIONS.items()),
        )
        started = GatewayProcess(folder, certificate, authority)
        processes.callback(started.stop)
        wait_until_ready(started, 1)
        yield started


def peak_bytes(gateway: GatewayProcess) -> int:
    """The most memory that the process has had. Source: proc(5), ``VmHWM``."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{gateway.child.pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


OBJECT = json.dumps(
    {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "x"},
        "spec": {"a": 1},
        "text": "a" * 500_000,
        "spaces": " " * 500_000,
        "list": list(range(50_000)),
    }
)
SMALL = json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": {"a": "x" * 3_000}})
ATTACKS = {
    **{f"/validate/{name}": OBJECT for name in CONDITIONS},
    **{f"/validate.only/{name}/{name}": OBJECT for name in VALIDATIONS},
    **{f"/mutate.only/{name}/{name}": SMALL for name in MUTATIONS},
}


@pytest.mark.parametrize("path", ATTACKS)
def test_an_expression_that_makes_a_value_large_delays_nobody(gateway: GatewayProcess, path: str) -> None:
    with Load(gateway, "/validate/good?timeout=25s", "pod-create-validate", connections=2) as load:
        load.wait_for(1)
        with HostileClient(gateway) as client:
            client.send(post(f"{path}?timeout=2s", review(ATTACKS[path])))
            load.wait_for(ANSWERS)
            status, _ = client.answer()
        load.wait_for(ANSWERS)
    assert status == 200
    assert all_well(load.tally), load.tally
    assert "Traceback" not in gateway.log
    assert peak_bytes(gateway) < MAX_BYTES
