"""The conformance kit with the worker programs of other engines, as far as they are built."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.gatekeeper.documents import constraint, rego_template
from tests.kit import ROOT
from tests.kubewarden.guests import wapc_guest
from tests.languages.test_conformance import checked
from tests.languages.toolchains import PROGRAMS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.languages.toolchains import Language

Json = dict[str, Any]

REGO = 'package x\nviolation[{"msg": "no name"}] { not input.review.name }'
RULE: Json = {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}
DOCUMENTS: dict[str, list[Json]] = {
    "gatekeeper": [rego_template(rego=REGO), constraint()],
    "kyverno": [
        {
            "apiVersion": "kyverno.io/v1",
            "kind": "ClusterPolicy",
            "metadata": {"name": "team"},
            "spec": {
                "rules": [
                    {
                        "name": "label",
                        "match": {"any": [{"resources": {"kinds": ["*"]}}]},
                        "validate": {"message": "no team", "pattern": {"metadata": {"name": "?*"}}},
                    }
                ]
            },
        }
    ],
    "kubewarden": [
        {
            "apiVersion": "policies.kubewarden.io/v1",
            "kind": "ClusterAdmissionPolicy",
            "metadata": {"name": "p"},
            "spec": {"module": "file:guest.wat", "mutating": False, "rules": [RULE]},
        }
    ],
}


@pytest.mark.process
@pytest.mark.parametrize("program", PROGRAMS, ids=[each.name for each in PROGRAMS])
def test_the_program_keeps_to_every_rule(tmp_path: Path, program: Language) -> None:
    worker = ROOT / program.product
    if not worker.is_file():
        pytest.skip(f"{program.name}: not built")
    (tmp_path / "all.yaml").write_text(yaml.safe_dump_all(DOCUMENTS[program.name]))
    (tmp_path / "guest.wat").write_text(wapc_guest({"accepted": True}))
    report = checked("--command", str(worker), "--policies", str(tmp_path))
    assert [rule for rule in report["rules"] if rule["result"] == "fails"] == []
    counts = [rule["result"] for rule in report["rules"]].count("holds")
    # Without policies of the samples, the kit leaves out some.
    assert counts >= 20, report
