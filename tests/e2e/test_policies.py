"""ValidatingAdmissionPolicies: the API server answers as recorded, and so does a gateway in its place.

Changes of policies come into force in the API server, and in `tests/recorded/` in a gateway.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.e2e import policy_requests, policy_scenarios
from tests.e2e.changing_policies import STAGES, is_expected, object_named
from tests.e2e.policy_comparison import PATHS, Comparison, follow_config_maps
from tests.e2e.policy_subjects import CONTROLS, VALIDATING
from tests.e2e.record import compare, differences, furnished, record, stored, version_of
from tests.e2e.setups import REGISTRATIONS
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.e2e.cluster import Cluster
    from tests.e2e.policy_subjects import Subject

    Json = dict[str, Any]

PART: Final = replace(
    VALIDATING,
    scenarios=(
        *VALIDATING.scenarios[::8],
        *policy_scenarios.WITH_PARAMS,
        *policy_scenarios.MATCHING,
        *policy_requests.SCENARIOS,
    ),
)
"""All that a registration has a part in, and some of the rest."""
CORE: Final = "/api/v1/namespaces/default"


@pytest.mark.parametrize("subject", [VALIDATING, CONTROLS], ids=lambda each: each.name)
def test_the_api_server_answers_as_recorded(
    cluster: Cluster, widgets: None, subject: Subject, tmp_path: Path
) -> None:
    compare(subject, record(cluster, subject, tmp_path))


def test_a_gateway_in_place_of_the_policies_answers_as_recorded(
    cluster: Cluster, widgets: None, tmp_path: Path
) -> None:
    recording = stored(PART, version_of(cluster))
    known = tuple({one.name: one for one in PART.scenarios if one.name in recording.operations}.values())
    subject = replace(PART, scenarios=known)
    with ExitStack() as stack:
        stack.enter_context(furnished(cluster, subject))
        comparison = Comparison(cluster, subject.name, known, subject.canary)
        found = comparison.behind(tmp_path, subject.documents(subject.name))
    assert differences(found, recording.operations, version_of(cluster)) == []


@pytest.fixture
def change(cluster: Cluster) -> Iterator[Callable[[tuple[Json, ...]], None]]:
    """Yield a function that makes these documents, and no others, exist in the API server."""
    held: dict[str, Json] = {}

    def place(document: Json) -> str:
        name = document["metadata"]["name"]
        if document["kind"] in PATHS:
            return f"{REGISTRATIONS}/{PATHS[document['kind']]}/{name}"
        return f"{CORE}/{document['kind'].lower()}s/{name}"

    def to(documents: tuple[Json, ...]) -> None:
        wanted = {place(document): document for document in documents}
        for path in held.keys() - wanted.keys():
            assert cluster.api.delete(path).status == 200
            del held[path]
        for path, document in wanted.items():
            if path not in held:
                assert cluster.api.create(path.rpartition("/")[0], document).status == 201
            elif held[path] != document:
                current = cluster.api.get(path).document["metadata"]["resourceVersion"]
                metadata = {**document["metadata"], "resourceVersion": current}
                assert cluster.api.update(path, {**document, "metadata": metadata}).status == 200
            held[path] = document

    yield to
    to(())


def test_a_change_comes_into_force(cluster: Cluster, change: Callable[[tuple[Json, ...]], None]) -> None:
    follow_config_maps(cluster)

    def in_force(expected: dict[str, str]) -> bool:
        path = f"{CORE}/configmaps?dryRun=All"
        answers = {name: cluster.api.create(path, object_named(name)) for name in expected}
        messages = {name: "" if each.status == 201 else each.message for name, each in answers.items()}
        return is_expected(messages, expected)

    for stage, documents, expected in STAGES:
        change(documents)
        eventually(partial(in_force, expected), stage)
