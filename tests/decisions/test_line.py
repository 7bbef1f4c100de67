"""Records of the decision log: their schema, their bounds, and hostile texts in them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import fastjsonschema
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission_gateway_worker.json_patch.steps import finish
from gateway.observe.decisions import line
from gateway.observe.decisions.allowed_lines import AllowedLines
from gateway.observe.decisions.document import decision_document
from gateway.observe.decisions.record import DecisionRecord, WebhookRecord, record_of
from gateway.pure.core.conditions import Excluded
from gateway.pure.core.review import decode, decode_in_steps
from gateway.pure.core.verdict import Allowed, Denied, Failed, FailureReason, Verdict
from gateway.pure.core.webhook import PolicyRef
from gateway.server.serving.message import HttpRequest, error_response
from tests.core.build import add, body, patch, request, resource, webhook
from tests.core.build import document as request_document
from tests.decisions.kit import answer
from tests.docs.pages import DOCS, rows, section

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.pure.core.review import AdmissionRequest

SCHEMA = orjson.loads((DOCS / "decision-log.schema.json").read_bytes())
is_valid = fastjsonschema.compile(SCHEMA)
DIGEST = "ab" * 32
HOOKS = [webhook("a.b.c"), webhook("b.b.c", failure_policy="Ignore"), webhook("c.b.c", phase="mutate")]
FAILED = Failed(FailureReason.DEADLINE, "too slow", 504)


def logged(verdicts: dict[str, Verdict], *, secret_names: bool = False, **members: Any) -> dict[str, Any]:
    """Return the record of a review with these verdicts, after a check against the schema."""
    review = request(**{"name": "web", "userInfo": {"username": "ann"}, **members})
    record = record_of(answer(verdicts, HOOKS, review), 0.25, 1_700_000_000.5, DIGEST)
    document: dict[str, Any] = orjson.loads(line.as_json(line.decision(record, secret_names=secret_names)))
    is_valid(document)
    return document


@pytest.mark.parametrize(
    ("verdicts", "outcome", "decided_by", "code", "allowed"),
    [
        ({}, "Allowed", "", 200, True),
        ({"a.b.c": patch(add("/spec/a", 1))}, "Allowed", "", 200, True),
        ({"a.b.c": Denied(403, message="no")}, "Denied", "a.b.c", 403, False),
        ({"a.b.c": FAILED}, "FailedClosed", "a.b.c", 500, False),
        ({"b.b.c": FAILED}, "FailedOpen", "b.b.c", 200, True),
        ({"b.b.c": FAILED, "c.b.c": Denied(422)}, "Denied", "c.b.c", 422, False),
    ],
)
def test_a_record_names_the_webhook_that_decided(
    verdicts: dict[str, Verdict], outcome: str, decided_by: str, code: int, allowed: bool
) -> None:
    found = logged(verdicts)
    assert (found["outcome"], found["webhook"], found["code"], found["allowed"]) == (
        outcome,
        decided_by,
        code,
        allowed,
    )


def test_a_record_says_who_did_what_and_when() -> None:
    found = logged({"b.b.c": FAILED})
    assert found["time"] == "2023-11-14T22:13:20.500Z"
    assert found["user"] == "ann"
    assert [found[name] for name in ("operation", "apiVersion", "kind", "resource")] == [
        *("CREATE", "v1", "Pod", "pods")
    ]
    assert (found["namespace"], found["name"], found["path"]) == ("default", "web", "/mutate")
    assert found["milliseconds"] == 250
    assert found["message"] == "too slow"
    assert [one["webhook"] for one in found["webhooks"]] == ["a.b.c", "b.b.c", "c.b.c"]
    assert found["webhooks"][1]["message"] == "too slow"


def test_a_refused_dry_run_is_in_the_schema() -> None:
    hooks = [webhook("a.b.c", side_effects="Some")]
    record = record_of(answer({}, hooks, request(dryRun=True)), 0.1, 0.0, DIGEST)
    document = orjson.loads(line.as_json(line.decision(record, secret_names=False)))
    is_valid(document)
    assert document["outcome"] == "DryRunRefused"


@pytest.mark.parametrize(
    ("excluded", "outcome", "message", "exception"),
    [
        (Excluded("is-a-pod"), "Excluded", "is-a-pod", ""),
        (Excluded("ns/e", is_exception=True), "Exempted", "", "ns/e"),
    ],
)
def test_a_policy_that_says_why_it_does_not_decide(
    excluded: Excluded, outcome: str, message: str, exception: str
) -> None:
    answers = {"excludes.return_value": False, "evaluate.return_value": excluded}
    policy = Mock(can_allow_fast=False, has_namespace_selectors=False, **answers)
    hooks = [webhook("a", phase="validate", client=PolicyRef("ValidatingPolicy", policy))]
    record = record_of(answer({}, hooks), 0.1, 0.0, DIGEST)
    is_valid(orjson.loads(line.as_json(line.decision(record, secret_names=False))))
    (found,) = record.webhooks
    assert (found.outcome, found.message, found.exception) == (outcome, message, exception)


def test_the_name_of_a_secret_is_logged_only_where_that_is_configured() -> None:
    secret: dict[str, Any] = {
        "kind": {"group": "", "version": "v1", "kind": "Secret"},
        "resource": resource("/v1/secrets"),
    }
    assert logged({}, **secret)["name"] == ""
    assert logged({}, **secret, secret_names=True)["name"] == "web"


def in_steps(content: bytes) -> AdmissionRequest:
    return finish(decode_in_steps(content))


@pytest.mark.parametrize("read", [decode, in_steps])
def test_user_and_name_are_known_without_a_parse_of_the_whole_request(
    read: Callable[[bytes], AdmissionRequest],
) -> None:
    members = {"name": "web", "userInfo": {"username": "ann", "extra": {"a": ["b"]}}}
    found = read(body(request_document(**members)))
    assert (found.user, found.name) == ("ann", "web")
    assert (found._parsed is None) is (read is in_steps)


@pytest.mark.parametrize("read", [decode, in_steps])
@pytest.mark.parametrize("members", [{}, {"userInfo": "ann", "name": 1}, {"userInfo": {"username": ["x"]}}])
def test_a_wrong_user_or_name_is_empty(
    members: dict[str, Any], read: Callable[[bytes], AdmissionRequest]
) -> None:
    found = read(body(request_document(**members)))
    assert (found.user, found.name) == ("", "")


def test_refused_requests_and_dropped_records_are_in_the_schema() -> None:
    asked = HttpRequest(0.0, b"POST", b"/validate?timeout=1s", {})
    refused = line.refusal(1.0, asked, error_response(400, "the body is \x1b[2J"), "")
    for document in (refused, line.dropped(1.0, 17)):
        is_valid(orjson.loads(line.as_json(document)))
    assert b"\\u001b" in line.as_json(refused)
    assert line.as_text(line.dropped(1.0, 17)).endswith(b"17 records were dropped\n")
    assert b"400 at /validate" in line.as_text(refused)


def test_decisions_about_rollout_plans_are_in_the_schema() -> None:
    found = line.rollout(1.0, webhook("a.b.c"), "pause", 2, "jane \x1b[2J", "holidays")
    is_valid(orjson.loads(line.as_json(found)))
    assert b"\\u001b" in line.as_json(found)
    assert b"decision Rollout: pause by" in line.as_text(found)
    assert line.as_text(found).endswith(b"/a.b.c to stage 2: holidays\n")


def test_the_page_has_every_member_of_the_schema() -> None:
    table = section((DOCS / "decision-log.md").read_text(), "Members")
    named = {name.strip("`") for name, _ in rows(table, 2)}
    definitions = SCHEMA["definitions"]
    assert named == {
        name
        for kind in ("decision", "refusal", "dropped", "rollout")
        for name in definitions[kind]["properties"]
    }
    for name in definitions["webhook"]["properties"]:
        assert f"`{name}" in table


HOSTILE = st.text(st.characters(), max_size=40) | st.sampled_from(
    [
        '\n{"log":"decision"}',
        "\x1b[31mred\x1b[0m",
        "\r\n2026-01-01T00:00:00.000Z decision Allowed:",
        "\x9b2J",
        "\u2028\u202e",
        "\ud800",
        "\x7f",
        "x" * 1_000_000,
        "\U000e0001" * 1_000,
    ]
)


@given(HOSTILE, HOSTILE, HOSTILE)
def test_hostile_texts_stay_in_one_printable_line_of_bounded_length(one: str, two: str, three: str) -> None:
    hook = WebhookRecord("c", "a.b.c", "p", "q", "10.0.0.1:1", 0, "Denied", 403, two)
    kind = ("", one, two)
    record = DecisionRecord(
        *(0.0, one, "", one, "CREATE", kind, kind, two, three, one, False, "/mutate", "mutate", False),
        *(403, two, 1.0, DIGEST, (hook,) * 1000),
    )
    document = line.decision(record, secret_names=True)
    for found in (line.as_json(document), line.as_text(document)):
        text = found.decode()
        assert text.endswith("\n")
        assert text[:-1].isprintable()
        assert len(found) <= line.MAX_LINE_BYTES
    shown = (
        orjson.loads(line.as_json(document)) if not re.search("[\ud800-\udfff]", one + two + three) else None
    )
    assert shown is None or shown["webhooksLeftOut"] + len(shown["webhooks"]) == 1000
    assert re.fullmatch(
        r"1970-01-01T00:00:00\.000Z decision Denied: CREATE .*\n", line.as_text(document).decode()
    )


@given(
    verdicts=st.dictionaries(
        st.sampled_from(["a.b.c", "b.b.c", "c.b.c"]), st.sampled_from([Denied(403, message="no"), FAILED])
    ),
    kind=st.sampled_from(["Pod", "Secret"]),
    secret_names=st.booleans(),
)
def test_a_line_has_the_values_of_the_document(
    verdicts: dict[str, Verdict], kind: str, secret_names: bool
) -> None:
    review = request(name="web", kind={"group": "apps", "version": "v1", "kind": kind})
    record = record_of(answer(verdicts, HOOKS, review), 0.25, 1_700_000_000.5, DIGEST)
    document = decision_document(record)
    found = line.decision(record, secret_names=secret_names)
    assert found.keys() - document.keys() == {"log"}
    assert document.keys() <= found.keys()
    assert {name for name in document if found[name] != document.get(name)} <= {"webhooks"}
    for shown, whole in zip(found["webhooks"], document["webhooks"], strict=True):
        assert shown.items() <= whole.items()
        assert (shown.keys() >= {"code", "message"}) is (whole["outcome"] != "Allowed")


def test_an_allowing_webhook_has_no_message() -> None:
    found = logged({"a.b.c": Allowed(warnings=("w",))})
    assert "message" not in found["webhooks"][0]


PATCHES = st.sampled_from([Allowed(), Allowed(warnings=("w",)), patch(add("/spec/a", 1)), patch()])


@given(
    verdicts=st.dictionaries(st.sampled_from(["a.b.c", "b.b.c", "c.b.c"]), PATCHES),
    name=st.sampled_from(["web", "", "x" * 400, 'a"b\\']),
    user=st.sampled_from(["ann", "ünï", "\x7f", "x" * 400]),
    is_dry_run=st.booleans(),
    kind=st.sampled_from(["Pod", "Secret"]),
    secret_names=st.booleans(),
    elapsed_s=st.floats(0, 30),
    reinvocation=st.sampled_from(["Never", "IfNeeded"]),
)
def test_lines_of_allowed_requests_are_those_of_the_general_form(
    verdicts: dict[str, Verdict],
    name: str,
    user: str,
    is_dry_run: bool,
    kind: str,
    secret_names: bool,
    elapsed_s: float,
    reinvocation: str,
) -> None:
    hooks = [webhook(one, reinvocation_policy=reinvocation) for one in ("a.b.c", "b.b.c", "c.b.c")]
    review = request(
        name=name,
        userInfo={"username": user},
        dryRun=is_dry_run,
        kind={"group": "", "version": "v1", "kind": kind},
    )
    given_answer = answer(verdicts, hooks, review)
    for outcome in given_answer.evaluation.outcomes:
        assert outcome.call is not None
        outcome.call.elapsed_s, outcome.call.endpoint = elapsed_s, "10.0.0.1:1"
    lines = AllowedLines(secret_names=secret_names)
    record = record_of(given_answer, elapsed_s, 1.5, DIGEST)
    expected = line.as_json(line.decision(record, secret_names=secret_names))
    for _ in range(2):  # without and with cached parts
        found = lines.line(given_answer, elapsed_s, 1.5, DIGEST)
        is_plain = user == "ann" or (
            user[0] == "x" and (len(name) < 100 or (kind, secret_names) == ("Secret", False))
        )
        assert (found is not None) is is_plain
        assert found is None or orjson.loads(found) == orjson.loads(expected)
        assert found is None or [*orjson.loads(found)] == [*orjson.loads(expected)]
        for _ in range(3):
            lines.add(given_answer, elapsed_s, 1.5, DIGEST)
        assert lines.take() == [found or expected] * 3
        assert lines.take() == []
