"""The scenarios of policies by subject: each subject is a file of recorded answers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from tests.e2e import (
    mutating_cases,
    mutating_scenarios,
    policy_cases,
    policy_comparison,
    policy_requests,
    policy_scenarios,
)
from tests.e2e.controls import CONTROLS as LIBRARY
from tests.e2e.objects import within
from tests.recorded.recording import path_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.policy_comparison import Scenario

Json = dict[str, Any]


@dataclass(frozen=True)
class Subject:
    """Scenarios, and what exists before them."""

    name: str
    """That of the file, and of the namespace in which they are recorded."""
    phase: Literal["mutate", "validate"]
    scenarios: tuple[Scenario, ...]
    canary: Scenario
    params: tuple[Json, ...] = ()
    """Created in the namespace, and written into the configuration of the gateway."""
    existing: tuple[tuple[str, Json], ...] = ()
    """Objects in the namespace, each with the path of its collection."""
    rights: tuple[tuple[str, Json], ...] = ()
    """Objects without a namespace, likewise."""

    @property
    def sent(self) -> dict[str, list[object]]:
        """The documents of the operations of each scenario."""
        return {each.name: [one.document for one in each.operations] for each in self.scenarios}

    def documents(self, namespace: str) -> list[Json]:
        """Return the policies, bindings and parameters of a gateway for operations in *namespace*."""
        policies = [one for each in (*self.scenarios, self.canary) for one in each.documents]
        placed = json.dumps([*policies, *self.params_in(namespace)]).replace("{namespace}", namespace)
        return list(json.loads(placed))

    def params_in(self, namespace: str) -> list[Json]:
        """Return the parameters in *namespace*."""
        return [{**each, "metadata": {**each["metadata"], "namespace": namespace}} for each in self.params]

    def placed(self, namespace: str) -> Iterator[tuple[str, Json]]:
        """Yield all objects that exist in *namespace*, each with the path of its collection."""
        of_params = ((within(RESOURCES[one["kind"]], one["apiVersion"]), one) for one in self.params)
        for path, document in (*self.existing, *of_params):
            yield path.replace("{namespace}", namespace), document


RESOURCES: Final = {"ConfigMap": "configmaps", "Widget": "widgets"}
VALIDATING: Final = Subject(
    "validating-policies",
    "validate",
    (*policy_cases.CASES, *policy_scenarios.SCENARIOS, *policy_requests.SCENARIOS),
    policy_comparison.CANARY,
    (*policy_cases.PARAMS, *policy_scenarios.PARAMS),
    policy_requests.EXISTING,
    policy_requests.RIGHTS,
)
CONTROLS: Final = Subject(
    "controls",
    "validate",
    tuple(each.scenario() for each in LIBRARY),
    policy_comparison.CANARY,
    policy_cases.PARAMS,
)
MUTATING: Final = Subject(
    "mutating-policies",
    "mutate",
    (*mutating_cases.SCENARIOS, *mutating_scenarios.SCENARIOS),
    mutating_cases.CANARY,
    (*mutating_cases.PARAMS, *mutating_scenarios.PARAMS),
)
SUBJECTS: Final = {each.name: each for each in (VALIDATING, CONTROLS, MUTATING)}
OLDEST: Final = "1.33"
FILES: Final = {
    **{path_of(name): subject for name, subject in SUBJECTS.items()},
    path_of(VALIDATING.name, OLDEST): VALIDATING,
}
"""The files of recorded answers. Before 1.37, values of expressions have other types."""
