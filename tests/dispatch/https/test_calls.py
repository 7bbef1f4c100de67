"""Calls of HTTPS webhooks over real sockets and TLS: the request, and the verdict of each kind of answer."""

from __future__ import annotations

import asyncio
import base64
import json
import tracemalloc
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from gateway.engine.dispatch.https.large_answers import MAX_LARGE
from gateway.pure.core.verdict import ALLOWED, Allowed, Cause, Denied, Details, Failed, FailureReason
from tests.kit import REVIEWS
from tests.waiting import until
from tests.world import in_world, opened_world

if TYPE_CHECKING:
    from gateway.pure.core.webhook import HttpsClient
    from tests.dispatch.https.conftest import InVirtualTime
    from tests.webhook_process import WebhookProcess
    from tests.world import World


EVENT_LOOPS = ("asyncio", "uvloop")

PATCH = [{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]


async def test_the_request_is_the_api_servers(webhook: WebhookProcess) -> None:
    client = webhook.client({"answer": {"warnings": ["the request"]}})
    recorded = (REVIEWS / "pod-create-mutate.json").read_bytes()

    async with opened_world() as world:
        await world.add_server(client)
        assert await world.ask({"client": client, "timeout_s": 7}) == Allowed(warnings=("the request",))
    (request,) = webhook.requests(client)[-1:]
    assert request["target"].endswith("?timeout=7s")
    assert [line for line in request["lines"] if not line.startswith("Content-Length")] == [
        f"Host: localhost:{webhook.ports['good']}",
        "User-Agent: kube-apiserver-admission",
        "Accept: application/json, */*",
        "Content-Type: application/json",
        "Accept-Encoding: gzip",
    ]
    sent, was = json.loads(request["body"]), json.loads(recorded)
    assert list(sent) == ["kind", "apiVersion", "request"]
    assert uuid.UUID(sent["request"]["uid"]).version == 4
    assert sent["request"]["uid"] != was["request"]["uid"]
    was["request"]["uid"] = sent["request"]["uid"]
    assert (
        request["body"].encode()
        == json.dumps(was, separators=(",", ":"), ensure_ascii=False)
        .encode()
        .replace(b"<", b"\\u003c")
        .replace(b">", b"\\u003e")
        .replace(b"&", b"\\u0026")
        + b"\n"
    )


ENCODED = base64.b64encode(json.dumps(PATCH).encode()).decode()
INVALID, CALL = "received invalid webhook response: ", "failed to call webhook: "
MALFORMED, STATUS = FailureReason.MALFORMED, FailureReason.STATUS

ERROR_STATUS = '{"kind":"Status","apiVersion":"v1","status":"Failure","message":"so it is","code":%d}'
CHUNKED = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"

ANSWERS: list[tuple[str, dict[str, Any], Any]] = [
    ("allowed", {}, ALLOWED),
    ("in chunks", {"chunked": 7}, ALLOWED),
    ("packed", {"gzip": True}, ALLOWED),
    ("a byte at a time", {"pace_s": 0}, ALLOWED),
    ("until closed", {"until_closed": True}, ALLOWED),
    ("HTTP/1.0", {"http10": True, "close": True}, ALLOWED),
    ("after 100 Continue", {"interim": 3}, ALLOWED),
    ("without a Content-Type", {"headers": {"Content-Type": None}}, ALLOWED),
    ("of another Content-Type", {"headers": {"Content-Type": "text/plain; charset=utf-8"}}, ALLOWED),
    ("206", {"status": 206}, ALLOWED),
    ("with its request", {"review": {"request": {"uid": "x", "object": {"a": [1, 2]}}}}, ALLOWED),
    ("patch", {"answer": {"patch": ENCODED, "patchType": "JSONPatch"}}, Allowed(json.dumps(PATCH).encode())),
    (
        "all members",
        {"answer": {"warnings": ["w"], "auditAnnotations": {"b": "2", "a": "1"}}},
        Allowed(b"", ("w",), (("a", "1"), ("b", "2"))),
    ),
    ("denied", {"answer": {"allowed": False}}, Denied()),
    ("neither allowed nor denied", {"answer": {"allowed": None}}, Denied()),
    (
        "denied with a status",
        {
            "answer": {
                "allowed": False,
                "warnings": ["w"],
                "status": {
                    "code": 422,
                    "reason": "Invalid",
                    "message": "no",
                    "details": {"causes": [{"field": "spec.a", "message": "m", "reason": "R"}]},
                },
            }
        },
        Denied(422, "Invalid", "no", (Cause("R", "m", "spec.a"),), ("w",)),
    ),
    (
        "denied with all that a Status may have",
        {
            "answer": {
                "allowed": False,
                "status": {
                    "kind": "Status",
                    "apiVersion": "v1",
                    "metadata": {"resourceVersion": "7", "continue": "", "remainingItemCount": 0},
                    "status": "Odd",
                    "message": "no",
                    "reason": "TooManyRequests",
                    "details": {
                        "name": "web",
                        "group": "apps",
                        "kind": "Deployment",
                        "uid": "u-2",
                        "causes": [{"field": "spec"}],
                        "retryAfterSeconds": 30,
                    },
                    "code": 999,
                },
            }
        },
        Denied(
            999,
            "TooManyRequests",
            "no",
            (Cause(field="spec"),),
            details=Details("web", "apps", "Deployment", "u-2", 30),
            status="Odd",
            metadata=(("resourceVersion", "7"), ("remainingItemCount", 0)),
        ),
    ),
    (
        "denied with a code that no HTTP answer can have",
        {"answer": {"allowed": False, "status": {"code": 1000}}},
        Denied(400),
    ),
    (
        "denied with a reason",
        {"answer": {"allowed": False, "status": {"code": 200, "reason": "Because"}}},
        Denied(400, "Because", "Because"),
    ),
    (
        "denied with nonsense",
        {"answer": {"allowed": False, "warnings": 5, "patch": "!", "status": {"message": "no"}}},
        Denied(400, "", "no"),
    ),
    ("denied with a status of nonsense", {"answer": {"allowed": False, "status": 7}}, Denied()),
    # Row 6: an error status.
    ("404", {"status": 404}, (STATUS, CALL + "the server could not find the requested resource", 404)),
    (
        "500",
        {"status": 500, "headers": {"Content-Type": "text/plain"}, "body": " it's \n broken "},
        (STATUS, CALL + 'an error on the server ("it\'s \\n broken") has prevented the request', 500),
    ),
    (
        "a Status",
        {"status": 500, "body": ERROR_STATUS % 503},
        (STATUS, CALL + "so it is", 503),
    ),
    (
        "a Status of the lowest error",
        {"status": 500, "body": ERROR_STATUS % 400},
        (STATUS, CALL + "so it is", 400),
    ),
    (
        "a Status of no error",
        {"status": 500, "body": ERROR_STATUS % 399},
        (STATUS, CALL + "so it is", 500),
    ),
    ("302", {"status": 302, "headers": {"Location": "/"}}, (STATUS, "status 302 to /: such", 503)),
    # Row 7.
    (
        "no media type",
        {"headers": {"Content-Type": ";;"}},
        (STATUS, CALL + "Internal error occurred: mime: ", 500),
    ),
    # Row 8.
    (
        "empty",
        {"body": ""},
        (STATUS, CALL + "0-length response with status code: 200 and content type: application/json", 503),
    ),
    ("204", {"status": 204, "body": ""}, (STATUS, "0-length response with status code: 204", 503)),
    # Row 9.
    ("no JSON", {"body": "kind: AdmissionReview"}, (STATUS, CALL + "the answer cannot be decoded", 503)),
    ("half of it", {"body": '{"kind":'}, (STATUS, CALL + "the answer cannot be decoded", 503)),
    ("another kind", {"review": {"kind": "Pod"}}, (STATUS, CALL + "the answer cannot be decoded", 503)),
    (
        "another version",
        {"review": {"apiVersion": "admission.k8s.io/v1beta1"}},
        (STATUS, 'got "AdmissionReview" of "admission.k8s.io/v1beta1"', 503),
    ),
    (
        "no base64",
        {"answer": {"patch": "!", "patchType": "JSONPatch"}},
        (STATUS, CALL + "the answer cannot be decoded: response.patch: illegal base64 data", 503),
    ),
    ("allowed is text", {"answer": {"allowed": "yes"}}, (STATUS, "cannot be decoded", 503)),
    ("warnings is text", {"answer": {"warnings": "yes"}}, (STATUS, "cannot be decoded", 503)),
    ("very deep", {"body": '{"response":' + "[" * 100_000}, (STATUS, "cannot be decoded", 503)),
    ("too much", {"answer": {"warnings": ["w"] * 90_000}}, (STATUS, "more than 20000 warnings", 503)),
    # Row 10.
    (
        "no response",
        {"review": {"response": None}},
        (MALFORMED, INVALID + "webhook response was absent", 503),
    ),
    ("another uid", {"answer": {"uid": "x"}}, (MALFORMED, INVALID + 'expected response.uid="', 503)),
    ("denied for another uid", {"answer": {"uid": "x", "allowed": False}}, (MALFORMED, INVALID, 503)),
    (
        "no kind",
        {"review": {"kind": "LEFT OUT", "apiVersion": "LEFT OUT"}},
        (
            MALFORMED,
            INVALID + "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got /, Kind=",
            503,
        ),
    ),
    (
        "patch without type",
        {"answer": {"patch": ENCODED}},
        (MALFORMED, INVALID + "webhook returned response.patch but not response.patchType", 503),
    ),
    (
        "type without patch",
        {"answer": {"patchType": "JSONPatch"}},
        (MALFORMED, INVALID + "webhook returned response.patchType but not response.patch", 503),
    ),
    (
        "patch of no type",
        {"answer": {"patch": ENCODED, "patchType": ""}},
        (MALFORMED, INVALID + 'webhook returned invalid response.patchType of ""', 503),
    ),
    # Row 15.
    (
        "patch of another type",
        {"answer": {"patch": ENCODED, "patchType": "MergePatch", "status": {"code": 418}}},
        (FailureReason.PATCH_INVALID, 'unsupported patch type "MergePatch"', 418),
    ),
    # Row 5.
    ("nothing", {"hang_up": True}, (STATUS, ": EOF", 503)),
    ("garbage", {"raw": "SSH-2.0-x\r\n\r\n"}, (STATUS, "malformed HTTP response", 503)),
    ("half an answer", {"length": 10_000, "close": True}, (STATUS, "unexpected EOF", 503)),
    ("half of it packed", {"gzip": True, "cut": 20}, (STATUS, "gzip: unexpected EOF", 503)),
    ("not packed", {"headers": {"Content-Encoding": "gzip"}}, (STATUS, "gzip: ", 503)),
    ("many members", {"gzip": True, "again": 17}, (STATUS, "more than 16 members", 503)),
    ("two members", {"gzip": True, "empty_first": True}, ALLOWED),
    (
        "a thousand chunks of a byte",
        {"chunked": 1, "answer": {"warnings": ["w" * 700]}},
        Allowed(warnings=("w" * 700,)),
    ),
    (
        "more chunks of a byte",
        {"chunked": 1, "zeros": 100_000},
        (STATUS, "an answer in over 1024 chunks, of less than 128 bytes on average", 503),
    ),
    (
        "later chunks of a byte",
        {"chunked": 127, "zeros": 1_000_000},
        (STATUS, "an answer in over 1024 chunks, of less than 128 bytes on average", 503),
    ),
    (
        "many fair chunks",
        {"chunked": 128, "answer": {"patch": " " * 300_000}},
        (STATUS, "illegal base64", 503),
    ),
    (
        "chunk extensions",
        {"raw": f"{CHUNKED}2;a={'b' * 1000}", "pad": 20_000_000, "stay": True},
        (STATUS, "bytes of headers and chunk extensions", 503),
    ),
    (
        "a short extension of each chunk",
        {"raw": CHUNKED + f"2;{'b' * 200}\r\nab\r\n" * 1024, "stay": True},
        (STATUS, "bytes of headers and chunk extensions", 503),
    ),
    (
        "trailers",
        {"raw": f"{CHUNKED}0\r\n" + f"A: {'b' * 1000}\r\n" * 100, "stay": True},
        (STATUS, "more than 65536 bytes of headers", 503),
    ),
    (
        "headers by the thousand",
        {"raw": "HTTP/1.1 200 OK\r\n" + "A:b\r\n" * 10_000, "stay": True},
        (STATUS, "more than 256 headers", 503),
    ),
    (
        "interim answers without end",
        {"raw": "HTTP/1.1 103 Early Hints\r\n\r\n" * 1000, "stay": True},
        (STATUS, "more than 5 answers of status 1xx", 503),
    ),
    ("a bomb", {"gzip": True, "zeros": 20_000_000}, (STATUS, "more than 8388608 bytes once unpacked", 503)),
    ("endless", {"until_closed": True, "endless": "x"}, (STATUS, "more than 8388608 bytes", 503)),
    (
        "endless headers",
        {"raw": "HTTP/1.1 200 OK\r\nX: ", "pad": 66_000, "stay": True},
        (STATUS, "of headers", 503),
    ),
    (
        "another protocol",
        {"raw": "HTTP/1.1 101 Sw\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"},
        (STATUS, "status code 101", 101),
    ),
    (
        "101 of no protocol",
        {"raw": "HTTP/1.1 101 Sw\r\n\r\n", "stay": True},
        (STATUS, "status code 101", 101),
    ),
    ("no end of 1xx", {"interim": 6}, (STATUS, "more than 5 answers of status 1xx", 503)),
]


@pytest.mark.parametrize(("script", "expected"), [pytest.param(*case[1:], id=case[0]) for case in ANSWERS])
@in_world
async def test_the_verdict_of_an_answer(
    world: World, webhook: WebhookProcess, script: dict[str, Any], expected: Any
) -> None:
    client = webhook.client(script)
    await world.add_server(client)
    verdict = await world.ask({"client": client}, phase="mutate")
    if not isinstance(expected, tuple):
        assert verdict == expected
        return
    reason, text, code = expected
    assert isinstance(verdict, Failed)
    assert text in verdict.cause
    assert (verdict.reason, verdict.code) == (reason, code)
    assert "\n" not in verdict.cause


async def test_calls_share_connections(webhook: WebhookProcess) -> None:
    client = webhook.client({"answer": {"warnings": ["kept"]}})

    before = len(webhook.requests(client))
    async with opened_world() as world:
        await world.add_server(client)
        for _ in range(3):
            await world.settle({"client": client}, {"client": client})
    connections = [request["connection"] for request in webhook.requests(client)[before:]]
    assert len(connections) == 6
    assert len(set(connections)) == 2


async def test_a_review_in_v1beta1(webhook: WebhookProcess) -> None:
    script = {
        "answer": {"uid": "", "patchType": "x"},
        "review": {"kind": "LEFT OUT", "apiVersion": "LEFT OUT"},
    }
    client = webhook.client(script)

    async with opened_world() as world:
        await world.add_server(client)
        assert await world.ask({"client": client, "review_version": "v1beta1"}) == ALLOWED
    assert webhook.requests(client)[-1]["body"].startswith(
        '{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1beta1","request":{"uid":"'
    )


@pytest.mark.parametrize(
    "script",
    [{"delay_s": 60}, {"pace_s": 60}, {"status": 503, "headers": {"Retry-After": "60"}}],
    ids=["nothing", "a byte", "later"],
)
def test_a_slow_answer_fails_at_the_deadline(in_virtual_time: InVirtualTime, script: dict[str, Any]) -> None:
    async def test(world: World, client: HttpsClient) -> None:
        await world.add_server(client)
        verdict = await world.ask({"client": client, "timeout_s": 10}, budget_s=0.05)
        assert isinstance(verdict, Failed)
        assert verdict.cause == "DEADLINE_EXCEEDED: no answer within 50ms"
        assert world.calls("DEADLINE_EXCEEDED") == 1

    in_virtual_time(script, test)


@in_world
async def test_a_withdrawn_call_is_aborted(world: World, webhook: WebhookProcess) -> None:
    client = webhook.client({"delay_s": 60, "answer": {"warnings": ["withdrawn"]}})
    await world.add_server(client)
    cancel = world.start([{"client": client}], lambda _: pytest.fail("an answer"))
    report = await asyncio.to_thread(webhook.report)
    while not any(client.url.endswith(r["target"].partition("?")[0]) for r in report["requests"][-1:]):
        report = await asyncio.to_thread(webhook.report)
    cancel()
    assert world.is_clean()
    assert world.calls("CANCELLED") == 1


async def test_retry_after_is_obeyed(webhook: WebhookProcess) -> None:
    again: dict[str, Any] = {"status": 429, "headers": {"Retry-After": "0"}}
    for number, script in enumerate(
        ({"sequence": [again] * 9 + [{"status": 500, "headers": {"Retry-After": "0"}}, {}]}, again)
    ):
        client = webhook.client({**script, "once": str(uuid.uuid4())})

        before = len(webhook.requests(client))
        async with opened_world() as world:
            await world.add_server(client)
            verdict = await world.ask({"client": client})
            if number:
                assert isinstance(verdict, Failed)
                assert verdict.code == 429
            else:
                assert verdict == ALLOWED
        requests = webhook.requests(client)[before:]
        assert len(requests) == 11
        assert len({request["body"] for request in requests}) == 1


async def test_redirects(webhook: WebhookProcess) -> None:
    there = webhook.client({"answer": {"warnings": ["there"]}})
    path = "/" + there.url.split("/", 3)[3]
    here = f"https://localhost:{webhook.ports['good']}"
    for status, location, expected in (
        (307, path, ("there",)),
        (308, f"{here}{path}?a=b", ("there",)),
        (
            307,
            f"https://127.0.0.1:{webhook.ports['good']}{path}",
            "to other servers are not followed",
        ),
        (
            307,
            f"http://localhost:{webhook.ports['good']}{path}",
            "to other servers are not followed",
        ),
        (301, path, "would not repeat"),
        (303, path, "would not repeat"),
        (
            303,
            "https://user:S3CRET@elsewhere/?S3CRET#S3CRET",
            "303 to https://…@elsewhere/?…: such a redirect",
        ),
        (307, "https://user:S3CRET@elsewhere/?S3CRET#S3CRET", "307 to https://…@elsewhere/?…: redirects to"),
        (307, f"{path}?S3CRET\xe9", "?…: not a URL"),
    ):
        client = webhook.client({"status": status, "headers": {"Location": location}})

        async with opened_world() as world:
            await world.add_server(client)
            verdict = await world.ask({"client": client})
            if isinstance(verdict, Allowed):
                assert verdict.warnings == expected
            else:
                assert expected in verdict.cause  # type: ignore[union-attr]
                assert "S3CRET" not in verdict.cause  # type: ignore[union-attr]


async def test_a_reused_connection_that_was_closed(webhook: WebhookProcess) -> None:
    for side_effects, count in (("None", 3), ("NoneOnDryRun", 2)):
        sequence = [{}, {"hang_up": True}, {}]
        client = webhook.client({"sequence": sequence, "once": str(uuid.uuid4())})

        async with opened_world() as world:
            await world.add_server(client)
            script = {"client": client, "side_effects": side_effects}
            assert await world.ask(script) == ALLOWED
            verdict = await world.ask(script)
            if side_effects == "None":
                assert verdict == ALLOWED
            else:
                assert isinstance(verdict, Failed)
                assert verdict.cause.endswith(": EOF")
        assert len(webhook.requests(client)) == count


async def test_a_connection_with_an_unsolicited_answer_is_not_reused(webhook: WebhookProcess) -> None:
    client = webhook.client({"extra": True, "answer": {"warnings": ["extra"]}})

    before = len(webhook.requests(client))
    async with opened_world() as world:
        server = await world.add_server(client)
        for _ in range(3):
            assert isinstance(await world.ask({"client": client}), Allowed)
            await until(lambda: not server.connections.idle, "no idle connection")
    assert len({request["connection"] for request in webhook.requests(client)[before:]}) == 3


@pytest.mark.parametrize("script", [{}, {"gzip": True}], ids=["plain", "packed"])
@in_world
async def test_many_large_answers_at_once_take_the_memory_of_a_few(
    world: World, webhook: WebhookProcess, script: dict[str, Any]
) -> None:
    """The server's other calls wait, and each gets its answer."""
    client = webhook.client({"repeat": ["[", "[],", "0]"], "count": 2_000_000, **script})
    await world.add_server(client)
    tracemalloc.start(1)
    try:
        calls = (world.ask({"client": client, "timeout_s": 30}) for _ in range(32))
        verdicts = await asyncio.gather(*calls)
        _, max_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert all(isinstance(verdict, Failed) for verdict in verdicts)
    assert not any("deadline" in verdict.cause for verdict in verdicts if isinstance(verdict, Failed))
    # 32 answers of 6 MB are 192 MB, before any copy.
    assert max_bytes < 120_000_000


@in_world
async def test_cancelled_calls_release_their_slots(world: World, webhook: WebhookProcess) -> None:
    """Those answers are large and never end."""
    raw = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 8000000\r\n\r\n"
    endless = webhook.client({"raw": raw, "pad": 200_000, "stay": True})
    slots = (await world.add_server(endless))._slots
    cancels = [world.start([{"client": endless}], lambda _: pytest.fail("an answer")) for _ in range(12)]
    await until(lambda: len(slots._holders) + len(slots._waiting) == 12, "all hold a slot or wait")
    assert len(slots._holders) == MAX_LARGE
    for cancel in cancels:
        cancel()
    await until(lambda: slots.is_empty, "no slot is held")
