"""``http.get`` of Kyverno's policies: which requests they make, and what they get for the answers."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.base.errors import ConfigError
from gateway.config.merge.load import load
from gateway.pure.admission_policies.backend_gets import MAX_GETS, BackendGets
from gateway.pure.admission_policies.objects import ObjectReads
from gateway.pure.admission_policies.params import FixedParams, UnresolvedError
from gateway.pure.cel.errors import EvaluationError
from gateway.pure.cel.meter import begin
from gateway.pure.core.conditions import BackendAnswer, BackendGet
from tests.kyverno.documents import condition, mutating, validating
from tests.policies.documents import decided, written

if TYPE_CHECKING:
    from pathlib import Path

    Json = dict[str, Any]

INVENTORY: Final = {"name": "inventory", "url": "https://inventory.example:8443/v1/"}
SETTINGS: Final = {
    "apiVersion": "admission-gateway.io/v1alpha1",
    "kind": "GatewayConfiguration",
    "policies": {"backends": [INVENTORY, {"name": "other", "url": "https://other.example"}]},
}
URL: Final = "https://inventory.example:8443/v1/teams"
GET: Final = f"http.get('{URL}')"


def asked(
    folder: Path, *validations: str, body: bytes = b"{}", status: int = 200, error: str = "", **spec: Any
) -> tuple[str, list[BackendGet]]:
    """Return the message of a denial by a policy with *validations*, and what it requests."""
    requests: list[BackendGet] = []

    def get(request: BackendGet) -> BackendAnswer:
        requests.append(request)
        return BackendAnswer(error=error) if error else BackendAnswer(status, body)

    found = decided(folder, [SETTINGS, validating(*validations, **spec)], get=get).decision.status
    return "" if found is None else found.message, requests


# What github.com/kyverno/sdk of August 2026 makes of such answers.
@pytest.mark.parametrize(
    ("body", "status", "expression"),
    [
        (b'{"a":1}', 200, "x.a == 1 && type(dyn(x.a)) == double && x.statusCode == 200 && size(x) == 2"),
        (b'{"a":1} and more', 200, "x.a == 1"),
        (b'{"statusCode":7}', 404, "x.statusCode == 404"),
        (b'[1,"b"]', 200, "x.body == [dyn(1), dyn('b')] && x.statusCode == 200"),
        (b"no JSON", 500, "x.body == null && x.statusCode == 500"),
        (b"", 204, "x.body == null"),
        (b"NaN", 200, "x.body == null"),
        (b'"\xff"', 200, "x.body == '\ufffd'"),
        (b'"\\ud800"', 200, "x.body == '\ufffd'"),
        (b"[" * 5000, 200, "x.body == null"),
        (b"1e999", 200, "x.body == null"),
        (b" \n true", 200, "x.body == true"),
    ],
)
def test_an_answer_is_as_in_go(tmp_path: Path, body: bytes, status: int, expression: str) -> None:
    for get in (GET, GET.replace("get", "Get")):
        variables = [{"name": "x", "expression": get}]
        expected = expression.replace("x.", "variables.x.").replace("(x)", "(variables.x)")
        found = asked(tmp_path, expected, body=body, status=status, variables=variables)
        assert found == ("", [BackendGet("inventory", "/v1/teams")])


@pytest.mark.parametrize(
    ("call", "request_"),
    [
        (f"http.get('{URL}?a=b&c=%20')", BackendGet("inventory", "/v1/teams?a=b&c=%20")),
        (f"http.get('{URL}?q=/../x')", BackendGet("inventory", "/v1/teams?q=/../x")),
        ("http.get('https://inventory.example:8443/v1')", BackendGet("inventory", "/v1")),
        ("http.get('https://INVENTORY.example.:8443/v1/')", BackendGet("inventory", "/v1/")),
        ("http.get('https://other.example')", BackendGet("other", "/")),
        ("http.get('https://other.example:443/?x')", BackendGet("other", "/?x")),
        (
            f"http.get('{URL}', {{'X-B': 'c', 'Accept': 'text/plain'}})",
            BackendGet("inventory", "/v1/teams", (("Accept", "text/plain"), ("X-B", "c"))),
        ),
        (
            f"http.get('{URL}/' + string(object.metadata.name))",
            BackendGet("inventory", "/v1/teams/web"),
        ),
    ],
)
def test_a_request_has_path_query_and_fields(tmp_path: Path, call: str, request_: BackendGet) -> None:
    # The same one for all expressions.
    assert asked(tmp_path, f"{call}.statusCode == 200", f"{call} != null") == ("", [request_])


PERMITTED: Final = "no backend in policies.backends of the GatewayConfiguration is at or above it"
ODD: Final = "is not an https URL without user, fragment and dot segments"


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("https://inventory.example:8443/v2", PERMITTED),
        ("https://inventory.example:8443/v10", PERMITTED),
        ("https://inventory.example:8443", PERMITTED),
        ("https://inventory.example/v1", PERMITTED),
        ("https://169.254.169.254/v1", PERMITTED),
        ("https://inventory.example.evil:8443/v1", PERMITTED),
        ("http://inventory.example:8443/v1", ODD),
        ("https://inventory.example:8443@evil/v1", ODD),
        ("https://u:p@inventory.example:8443/v1", ODD),
        ("https://inventory.example:8443/v1/../v2", ODD),
        ("https://inventory.example:8443/v1/%2e%2E/v2", ODD),
        ("https://inventory.example:8443/v1/.%2e/v2", ODD),
        ("https://inventory.example:8443/v1/..%2fv2", ODD),
        ("https://inventory.example:8443/v1/a%2fb", ODD),
        ("https://inventory.example:8443/v1/..%5cv2", ODD),
        ("https://inventory.example:8443/v1\\\\..\\\\v2", ODD),
        ("https://inventory.example:8443/v1//a", ODD),
        ("https://inventory.example:8443/v1#x", ODD),
        ("https://inventory.example:8443/v1/a b", ODD),
        ("https://inventory.example:8443/v1/%zz", ODD),
        ("https://inventory.example:99999/v1", ODD),
        ("https://inventory.example:8443/v1/\\r\\nX: y", ODD),
        ("https://inv\u00e9ntory.example:8443/v1", ODD),
        ("https:///v1", ODD),
        ("//inventory.example:8443/v1", ODD),
        ("https://[::1/v1", ODD),
        ("https://inventory.example:8443/v1/" + "a" * 5000, ODD),
    ],
)
def test_no_other_server_and_path_is_asked(tmp_path: Path, url: str, problem: str) -> None:
    message, requests = asked(tmp_path, f"http.get('{url}' + string(object.metadata.name == '')) != null")
    assert requests == []
    if problem == PERMITTED and "8443" in url and "evil" not in url and "/v1" not in url:
        return
    assert message.startswith('Policy p error: error: request failed: URL "')
    assert "is not permitted" in message
    with pytest.raises(ConfigError, match=r"calls http\.get, whose URL .* is not permitted") as error:
        asked(tmp_path, f"http.get('{url}') != null")
    assert problem in str(error.value)


SEGMENTS: Final = st.lists(
    st.sampled_from(["v1", "v2", "..", ".", "%2e%2e", "%2E.", "..%2f", "%5c..", "a", "", "%252e%252e", "~"]),
    max_size=5,
)
HOSTS: Final = st.sampled_from(
    [
        "inventory.example:8443",
        "INVENTORY.EXAMPLE:8443",
        "inventory.example",
        "u@inventory.example:8443",
        "evil",
    ]
)


@given(host=HOSTS, segments=SEGMENTS, query=st.sampled_from(["", "?a", "?a=/../b", "#b"]))
def test_however_a_server_reads_a_path_it_is_below_the_backend(
    host: str, segments: list[str], query: str
) -> None:
    url = f"https://{host}/{'/'.join(segments)}{query}"
    begin()
    with pytest.raises((EvaluationError, UnresolvedError)) as found:
        BackendGets({"inventory": INVENTORY["url"]}, {}).get(url, {})
    if isinstance(found.value, UnresolvedError):
        (request,) = found.value.unresolved.gets
        path = urlsplit(request.target).path
        for read in (path, posixpath.normpath(path), posixpath.normpath(unquote(path).replace("\\", "/"))):
            assert f"{read}/".startswith("/v1/")
        assert host.lower() == "inventory.example:8443"


@pytest.mark.parametrize(
    ("headers", "problem"),
    [
        ({"Host": "evil"}, 'the header field "Host" belongs to the connection'),
        ({"transfer-encoding": "chunked"}, "belongs to the connection"),
        ({"a b": "c"}, 'the header field "a b" cannot be sent'),
        ({"": "c"}, "cannot be sent"),
        ({"a": "b\r\nc: d"}, "cannot be sent"),
        ({"a": "\u00e9"}, "cannot be sent"),
        ({"a": "b" * 5000}, "found header fields of more than"),
    ],
)
def test_fields_that_are_not_sent(headers: dict[str, str], problem: str) -> None:
    begin()
    with pytest.raises(EvaluationError, match="request failed: ") as error:
        BackendGets({"inventory": INVENTORY["url"]}, {}).get(URL, headers)
    assert problem in str(error.value)


def test_an_error_is_one_of_the_expression(tmp_path: Path) -> None:
    message, _ = asked(tmp_path, f"{GET} != null", error="backend inventory: no answer in time")
    assert message == "Policy p error: error: request failed: backend inventory: no answer in time"


def test_requests_of_one_review_are_bounded(tmp_path: Path) -> None:
    """All policies together have them."""
    for number, is_refused in ((MAX_GETS, False), (MAX_GETS + 1, True)):
        requests: list[BackendGet] = []

        def get(request: BackendGet, requests: list[BackendGet] = requests) -> BackendAnswer:
            requests.append(request)
            return BackendAnswer(200, b"{}")

        policies = [
            validating(f"http.get('{URL}/{each}') != null", name=f"p{each}") for each in range(number)
        ]
        status = decided(tmp_path, [SETTINGS, *policies], get=get).decision.status
        assert len(requests) == MAX_GETS
        assert (status is not None) == is_refused
        if status is not None:
            assert "request failed: found more than 8 different requests in one review" in status.message


def test_conditions_and_mutations_request(tmp_path: Path) -> None:
    message, requests = asked(tmp_path, "false", matchConditions=condition(f"{GET}.statusCode == 404"))
    assert (message, len(requests)) == ("", 1)
    change = f"[JSONPatch{{op: 'add', path: '/metadata/labels', value: {{'n': string({GET}.team)}}}}]"
    pod = {"object": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}}}
    answer = BackendAnswer(200, b'{"team":"a"}')
    found = decided(tmp_path, [SETTINGS, mutating(change)], pod, phase="mutate", get=lambda _: answer)
    assert found.decision.patch == b'[{"op":"add","path":"/metadata/labels","value":{"n":"a"}}]'


@pytest.mark.parametrize(
    ("expression", "namespace", "problem"),
    [
        (f"{GET} != null", "a", "calls http.get, which is not allowed in policies of one namespace"),
        ("http.post('https://x', 1) != null", "", "http.post sends data to a server"),
        ("http.client('pem').get('https://x') != null", "", "http.client trusts a certificate"),
        ("http.get(1) != null", "", "found no matching overload for 'http.get'"),
        ("http == null", "", "undeclared reference to 'http'"),
    ],
)
def test_what_is_refused(tmp_path: Path, expression: str, namespace: str, problem: str) -> None:
    with pytest.raises(ConfigError) as error:
        asked(tmp_path, expression, namespace=namespace)
    assert problem in str(error.value)


def test_a_policy_of_the_cluster_requests_nothing() -> None:
    found = ObjectReads({}, FixedParams([]), gets=[(URL,)])
    assert found.wrong_calls == ("calls http.get, which only policies in files may; put it into a file",)


@pytest.mark.parametrize(
    ("backend", "problem"),
    [
        ({"name": "a"}, "backends[0].url: is required"),
        ({"name": "a", "url": "http://a"}, "backends[0].url: "),
        ({"name": "A", "url": "https://a"}, "backends[0].name: "),
        ({"name": "a", "url": "https://a", "timeoutSeconds": 31}, "backends[0].timeoutSeconds: "),
        ({"name": "a", "url": "https://a", "caBundle": "x"}, "backends[0].caBundle: "),
        ({"name": "a", "url": "https://a", "caFile": "none.pem"}, "backends[0].caFile: "),
        (
            {"name": "a", "url": "https://a", "caBundleFrom": {"secret": {"namespace": "a", "name": "b"}}},
            "backends[0].caBundleFrom: requires kubernetes",
        ),
    ],
)
def test_a_wrong_backend_is_refused(tmp_path: Path, backend: Json, problem: str) -> None:
    written(tmp_path, [{**SETTINGS, "policies": {"backends": [backend]}}])
    with pytest.raises(ConfigError) as error:
        load([tmp_path])
    assert problem in str(error.value)
