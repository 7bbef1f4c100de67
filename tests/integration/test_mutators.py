"""Mutating webhooks of a running gateway: their order, and what becomes of conflicts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.kit import pool_document, webhook_document

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
