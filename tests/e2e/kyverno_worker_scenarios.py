"""ClusterPolicies and Policies in Kyverno's own language, and operations under them.

Each scenario has a namespace of its own name, and its policies match that namespace only.
"""

from __future__ import annotations

from typing import Final

from tests.e2e.engine_scenarios import post
from tests.e2e.kyverno_drawn import RANDOM
from tests.e2e.kyverno_kinds import KINDS
from tests.e2e.kyverno_mutating import MUTATING
from tests.e2e.kyverno_rules import ALWAYS, labels_of, merge, policy, scenario, validate
from tests.e2e.kyverno_validating import VALIDATING
from tests.e2e.objects import config_map

SCENARIOS: Final = (*VALIDATING, *KINDS, *MUTATING, *RANDOM)
CANARIES: Final = (
    scenario(
        "zz-validating",
        [policy("canary", validate("canary", "ConfigMap", message="in force", deny=ALWAYS))],
        post(config_map(), dry=True),
    ),
    scenario(
        "zz-mutating",
        [
            policy("change", merge("canary", labels_of(changed="yes"), "ConfigMap")),
            policy(
                "canary", validate("canary", "ConfigMap", message="in force", pattern=labels_of(changed="no"))
            ),
        ],
        post(config_map(labels={"changed": "no"}), dry=True),
    ),
)
"""Each refuses its operation, when it and all of its kind are in force: it is made after them."""
