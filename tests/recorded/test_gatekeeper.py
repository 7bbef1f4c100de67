"""Under Gatekeeper's constraints the gateway answers as Gatekeeper's own code did when it was recorded.

Gatekeeper sorts denials by their text, the gateway by the names of constraints: the lines are compared.
"""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

import pytest

from gateway.base.errors import ConfigError
from gateway.pure.core.response import encode
from gateway.pure.core.review import V1
from tests.recorded.engine import RecordedEngine
from tests.recorded.other_engines.cases import recorded
from tests.recorded.other_engines.constraints import CASES, FILE
from tests.recorded.recording import Surroundings

if TYPE_CHECKING:
    from pathlib import Path

    from tests.recorded.other_engines.cases import Case

    Json = dict[str, Any]

_UNKNOWN: Final = "For an unknown namespace Gatekeeper has an error of its own."
DIFFERENT: Final[dict[str, str]] = {
    "match-namespace-unknown": _UNKNOWN,
    "match-namespace-labels-unknown": _UNKNOWN,
}
ANSWERS: Final = recorded(FILE)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_request_is_answered_as_by_gatekeeper(
    tmp_path: Path, case: Case, request: pytest.FixtureRequest
) -> None:
    if reason := DIFFERENT.get(case.name):
        request.applymarker(pytest.mark.xfail(reason=reason, strict=True))
    question, (_, answer) = case.question, ANSWERS[case.name]
    config = [question["config"]] if "config" in question else []
    documents = [*question["templates"], *question["constraints"], *config]
    surroundings = Surroundings("1.36", question["namespaces"], [])
    with closing(RecordedEngine(tmp_path, [], surroundings, denied)) as engine:
        if "refused" in answer:
            with pytest.raises(ConfigError):
                engine.change(documents)
            return
        engine.change(documents)
        run = engine.review("/validate", question["request"])
    found = json.loads(encode(V1, "u", run.decision))["response"]
    assert found["allowed"] is answer["allowed"]
    # A client shows a warning once.
    assert sorted(found.get("warnings", [])) == sorted(set(answer.get("warnings", [])))
    if not answer["allowed"]:
        status = found["status"]
        assert (status["code"], status.get("reason", "")) == (answer["code"], answer.get("reason", ""))
        assert sorted(status["message"].split("\n")) == sorted(answer["message"].split("\n"))


def denied(spec: Json) -> Json:
    del spec
    return {"allowed": False, "reason": "", "error": ""}
