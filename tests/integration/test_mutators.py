"""Mutating webhooks of a running gateway: their order, and what becomes of conflicts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.kit import REVIEWS, call_command, pool_document, webhook_document
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kit import StartGateway
    from tests.worker.server import StartWorker

pytestmark = pytest.mark.process
SETTINGS = {"apiVersion": "admission-gateway.io/v1alpha1", "kind": "GatewayConfiguration"}


def labelled(value: str, **webhook: Any) -> dict[str, Any]:
    """The script of a webhook that sets the label ``team``."""
    patch = [{"op": "add", "path": "/metadata/labels", "value": {"team": value}}]
    return {"patch": patch, "webhook": webhook}


def test_after_orders_webhooks_and_lets_them_overwrite_what_others_may_not(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    pools = pool_document("pool", start_worker().target)
    found = []
    for conflicts in ("Allow", "Reject"):
        for after in ([], ["h0.z.test"]):
            folder = tmp_path / f"{conflicts}{len(after)}"
            folder.mkdir()
            first = labelled("a", **({"after": after} if after else {}))
            documents = [
                pools,
                webhook_document("mutate", "a", "pool", first),
                webhook_document("mutate", "z", "pool", labelled("z")),
                json.dumps({**SETTINGS, "conflicts": conflicts}),
            ]
            (folder / "c.yaml").write_text("".join(documents))
            response = start_gateway(folder).review("/mutate", "pod-create-mutate")
            found.append(response.get("status", {}).get("message") or response["patch"])
    patch_of_z, patch_of_a, message, patch_again = found
    assert patch_of_a == patch_again != patch_of_z
    assert message == (
        "h0.z.test: overwrites metadata.labels.team, which h0.a.test wrote, and conflicts are rejected"
    )


def update(uid: str, runs: int) -> bytes:
    """The review of an UPDATE that changes nothing of a stored Pod, whose annotation says how often."""
    document = json.loads((REVIEWS / "pod-create-mutate.json").read_bytes())
    request = document["request"]
    metadata = {"resourceVersion": str(runs), "annotations": {"runs": str(runs)}}
    metadata = {**request["object"]["metadata"], **metadata}
    stored = {**request["object"], "metadata": metadata}
    request |= {"uid": uid, "operation": "UPDATE", "object": stored, "oldObject": stored}
    return json.dumps(document).encode()


def test_a_webhook_that_changes_its_own_result_is_in_metrics_log_and_status(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    target = start_worker().target
    scripts: list[dict[str, Any]] = [{"label": "team"}, {"count": "runs"}]
    text = pool_document("pool", target) + webhook_document("mutate", "m", "pool", *scripts)
    (tmp_path / "c.yaml").write_text(text)
    gateway = start_gateway(tmp_path)
    for runs in range(4):
        gateway.post("/mutate?timeout=10s", update(f"u-{runs}", runs))
    metric = "admission_gateway_mutation_disputes_total"
    labels = {"name": "h1.m.test", "kind": "own_result", "path": "metadata.annotations.runs"}
    eventually(lambda: gateway.metric(metric, **labels) == 2)
    line = "h1.m.test changes metadata.annotations.runs again at each UPDATE"
    # As on the page about mutators, with other names.
    gateway.expect(
        f"Z WARNING mutating webhooks do not come to rest: {line}; reviews: 1, the last of pods default/p1"
    )
    status, overview = gateway.admin("/?format=json")
    assert status == 200
    (found,) = (one for one in json.loads(overview)["disputes"] if one["webhook"] == "h1.m.test")
    assert (found["message"], found["reviews"], found["lastObject"]) == (line, 2, "pods default/p1")
    shown = call_command("status", "--admin", f"127.0.0.1:{gateway.admin_port}")
    assert "mutating webhooks do not come to rest" in shown.stdout
    assert f"{line}; reviews: 2, the last of pods default/p1" in shown.stdout
