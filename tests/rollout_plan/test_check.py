"""``admission-gateway check`` names the stages of a plan that concern none of the known namespaces."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.kit import call_command
from tests.replay.kit import configure

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.process
def test_a_percentage_of_few_namespaces_may_be_none_of_them(tmp_path: Path) -> None:
    gates = {"maxNewlyDenied": 0}
    stages = [
        {"mode": "Warn", "percentOfNamespaces": 1, "for": "1h", "gates": gates},
        {"mode": "Warn", "percentOfNamespaces": 100, "for": "1h", "gates": gates},
        {"mode": "Enforce"},
    ]
    config = configure(tmp_path / "c", "dns:///a:1", "validate", {}, rollout={"plan": {"stages": stages}})
    names = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"team-{n}"}} for n in range(3)]
    (config / "n.yaml").write_text("".join(f"---\n{json.dumps(one)}\n" for one in names))
    done = call_command("check", "--config", config)
    assert done.returncode == 0
    (warning,) = [line for line in done.stderr.splitlines() if "percent" in line]
    assert warning == (
        f'warning: {config / "c.yaml"}:3:444: ValidatingWebhookConfiguration "v": '
        "webhooks[0].rollout.plan.stages[0].percentOfNamespaces: 1 percent of 3 namespaces, those in the "
        "configuration, are none of them"
    )
