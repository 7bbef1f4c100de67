"""Under Kyverno's policies the gateway answers as Kyverno's own code did when it was recorded.

Kyverno joins the denials of a webhook; the gateway has a line for each policy. Of several policies the parts
are compared. ``DIFFERENT`` has what is otherwise not the same.
"""

from __future__ import annotations

import json
import re
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

import pytest

from gateway.base.errors import ConfigError
from gateway.pure.core.response import encode
from gateway.pure.core.review import V1
from tests.recorded.engine import RecordedEngine
from tests.recorded.other_engines import cel_rules, drawn, extraction, mutating, validating
from tests.recorded.other_engines.cases import recorded
from tests.recorded.recording import Surroundings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from _pytest.mark.structures import ParameterSet

    from tests.recorded.other_engines.cases import Case

    Json = dict[str, Any]

_UNKNOWN: Final = "The API server refuses requests in unknown namespaces itself; the gateway says so, too."
_LABELS: Final = (
    "Kyverno reads the labels only if some policy for the request has a namespaceSelector in match."
)
_VARIANT: Final = "The gateway refuses documents whose expressions do not compile."
_VERSIONS: Final = "The gateway takes versions as equivalent: the API server converts them before Kyverno."
DIFFERENT: Final[dict[str, dict[str, str]]] = {
    "validating": {
        "match-other-version": _VERSIONS,
        "match-equivalent": _VERSIONS,
        "match-object-selector-absence": "The API server selects objects before Kyverno, and no absent ones.",
        "match-namespace-selector-unknown": _UNKNOWN,
        "match-namespace-selector-unknown-no": _UNKNOWN,
        "exception-variables": "The gateway refuses conditions of exceptions with variables.",
        "exception-values-in-exceptions": "The gateway refuses conditions that use what exceptions allow.",
        "exception-values-of-one-policy-twice": "An exception that names a policy twice counts once.",
    },
    "extraction": {"other-version": _VERSIONS},
    "mutating": {
        "apply-kind": "The gateway says of which kind there is no schema.",
        "namespaced-after": "Namespaced policies have no webhook of their own, so request.object stays.",
    },
    "cel-rules": {
        "message-expression-dyn": _VARIANT,
        "compile-error": _VARIANT,
        "type-error": _VARIANT,
        "library": _VARIANT,
        "see-params": _VARIANT,
        "variant-request-object": _VARIANT,
        "see-unknown-namespace": _UNKNOWN,
        "see-unknown-namespace-ignore": _UNKNOWN,
        "match-kind-all-parts": "The gateway takes a kind that no API server has.",
        "override-selector-enforce": _LABELS,
        "override-both-enforce": _LABELS,
        "warn-deny": "Warnings of one webhook are lost with a denial; the gateway has one for each policy.",
    },
}
_BEGIN: Final = "\n\nresource "


def rows() -> Iterator[ParameterSet]:
    for module in (validating, drawn, extraction, mutating, cel_rules):
        answers = recorded(module.FILE)
        different = DIFFERENT.get(module.FILE.stem, {})
        assert different.keys() <= answers.keys()
        for case in module.CASES:
            reason = different.get(case.name)
            marks = [pytest.mark.xfail(reason=reason, strict=True)] if reason else []
            names = f"{module.FILE.stem}-{case.name}"
            yield pytest.param(case, answers[case.name][1], id=names, marks=marks)


def parts(messages: Sequence[str]) -> list[str]:
    """Return the parts of denials by policy, sorted."""
    found: list[str] = []
    for message in messages:
        if message.startswith(_BEGIN):
            # Blocks of YAML, each after a line that names the object.
            bodies = re.split(r"\n\nresource [^\n]*\n\n", message)
            found += [line for body in bodies for line in re.split(r"\n(?=\S)", body.strip("\n"))]
        elif message.startswith("Resource: "):
            found += re.findall(r"Policy \S+: .*?(?=]$|]\n| Policy \S+: )", message)
        else:
            found += re.split(r"(?:\n|; )(?=Policy )", message)
    return sorted(filter(None, found))


@pytest.mark.parametrize(("case", "answer"), list(rows()))
def test_a_request_is_answered_as_by_kyverno(tmp_path: Path, case: Case, answer: Json) -> None:
    question = case.question
    documents = [*question["policies"], *question.get("exceptions", ()), *question.get("bindings", ())]
    resources = []
    for each in question.get("objects", ()):
        documents.append(each["object"])
        kind = {name: each["object"][name] for name in ("apiVersion", "kind")}
        resources.append({**kind, "resource": each["resource"]})
    surroundings = Surroundings("1.36", question["namespaces"], [])
    is_mutating = question["policies"][0]["kind"].endswith("MutatingPolicy")
    with closing(RecordedEngine(tmp_path, [], surroundings, denied)) as engine:
        if "refused" in answer:
            with pytest.raises(ConfigError):
                engine.change(documents)
            return
        engine.change(documents, resources)
        run = engine.review("/mutate" if is_mutating else "/validate", question["request"])
    found = json.loads(encode(V1, "u", run.decision))["response"]
    expected: list[Json] = answer["webhooks"]
    denials = [each["message"] for each in expected if not each["allowed"]]
    assert found["allowed"] is (not denials)
    warnings = sorted(text for each in expected for text in each.get("warnings", ()))
    assert sorted(found.get("warnings", [])) == warnings
    if denials:
        status = found["status"]
        # Kyverno has no code: the API server makes it 400.
        assert status["code"] == 400
        if len(answer["policies"]) == 1:
            assert [status["message"]] == denials
        else:
            assert parts([status["message"]]) == parts(denials)
    elif is_mutating and "object" in answer:
        assert run.final_object == answer["object"]


def denied(spec: Json) -> Json:
    del spec
    return {"allowed": False, "reason": "", "error": ""}
