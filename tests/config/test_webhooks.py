"""Validation and defaults of webhook configurations: a row for every rule of the API server."""

from __future__ import annotations

import base64
import ssl
from typing import TYPE_CHECKING, Any

import pytest
import trustme

from gateway.base.errors import ConfigError
from gateway.config.merge.model import ca_bundle_sources
from gateway.pure.core.labels import Requirement, Selector
from gateway.pure.core.webhook import CaBundleSource, HttpsClient, Rule, WorkerRef
from tests.config.documents import change, load_documents, problems_of

if TYPE_CHECKING:
    from gateway.config.merge.model import Config
    from gateway.pure.core.webhook import Webhook

POOL = {
    "apiVersion": "admission-gateway.io/v1alpha1",
    "kind": "WorkerPool",
    "metadata": {"name": "pods"},
    "spec": {"target": "dns:///pods.policies.svc:50051"},
}
RULE = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
WEBHOOK = {
    "name": "images.policies.example.com",
    "clientConfig": {"worker": {"pool": "pods", "policy": "images"}},
    "rules": [RULE],
    "sideEffects": "None",
    "admissionReviewVersions": ["v1"],
}
MUTATING: dict[str, Any] = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "MutatingWebhookConfiguration",
    "metadata": {"name": "policies"},
    "webhooks": [WEBHOOK],
}
VALIDATING = MUTATING | {"kind": "ValidatingWebhookConfiguration"}
LONG_LABEL = "a" * 64
LONG_SUBDOMAIN = ".".join(["a" * 63] * 4)

SECRET = {"secret": {"namespace": "cert-manager", "name": "ca"}}
ABSENT = object()


def altered(document: dict[str, Any], path: str, value: object) -> Any:
    return change(document, path) if value is ABSENT else change(document, path, value)


HOOK_VALUES_ALLOWED = [
    ("name", "a.b.c"),
    ("name", "0-1.2.3"),
    ("name", ("a" * 63 + ".") * 3 + "a" * 61),
    ("rules", []),
    ("admissionReviewVersions", ["v1", "v1beta1"]),
    ("admissionReviewVersions", ["v2", "v1beta1"]),
    ("matchConditions", []),
    ("namespaceSelector", {}),
    ("objectSelector", {"matchLabels": None, "matchExpressions": None}),
    ("objectSelector", {"matchLabels": {"example.com/a": "", "b": "C_1.d-e"}}),
    ("objectSelector", {"matchExpressions": [{"key": "a", "operator": "Exists", "values": []}]}),
    ("rules.0.operations", ["*"]),
    ("rules.0.operations", ["CREATE", "UPDATE", "DELETE", "CONNECT"]),
    ("rules.0.apiGroups", ["*"]),
    ("rules.0.apiGroups", ["", "apps"]),
    ("rules.0.apiVersions", ["*"]),
    ("rules.0.apiVersions", ["v1", "v1beta1"]),
    ("rules.0.resources", ["*/*"]),
    ("rules.0.resources", ["*"]),
    ("rules.0.resources", ["*", "pods/exec"]),
    ("rules.0.resources", ["pods/exec", "*"]),
    ("rules.0.resources", ["*", "*/scale"]),
    ("rules.0.resources", ["pods", "pods/*"]),
    ("rules.0.resources", ["pods/*", "pods"]),
    ("rules.0.resources", ["pods/*", "nodes/*"]),
    ("rules.0.resources", ["*/scale", "*/status"]),
    # Only what follows a wildcard is compared with it, and only the last plain entry counts.
    ("rules.0.resources", ["pods/exec", "pods/*"]),
    ("rules.0.resources", ["pods/scale", "*/scale"]),
    ("rules.0.resources", ["pods", "*"]),
    ("rules.0.resources", ["pods", "*", "nodes/status"]),
    ("rules.0.apiGroups", [None]),
    ("rules.0.apiGroups", ["apps", None]),
    ("objectSelector.matchLabels", {"a": None}),
    ("namespaceSelector.matchExpressions", [{"key": "a", "operator": "In", "values": [None]}]),
]


@pytest.mark.parametrize(("path", "value"), HOOK_VALUES_ALLOWED)
def test_values_the_api_server_accepts_are_accepted(path: str, value: object) -> None:
    config = load_documents(POOL, altered(MUTATING, f"webhooks.0.{path}", value))
    assert len(config.mutating) == 1


HOOK_VALUES_REFUSED = [
    ("name", "", "name", "is required"),
    ("name", "images.example", "name", "three or more parts"),
    ("name", "images", "name", "three or more parts"),
    ("name", "Images.example.com", "name", "lower-case"),
    ("name", "a_b.example.com", "name", "lower-case"),
    ("name", "a.b.c.", "name", "lower-case"),
    ("name", "a..b.c", "name", "lower-case"),
    ("name", "a.b.c\n", "name", "lower-case"),
    ("name", LONG_SUBDOMAIN, "name", "at most 253"),
    (
        "clientConfig",
        {},
        "clientConfig",
        "found none of them, expected exactly one of worker, url, service or imageReview",
    ),
    ("clientConfig.url", "https://a", "clientConfig", "found worker and url, expected exactly one"),
    ("clientConfig.service", {"name": "a", "namespace": "b"}, "clientConfig", "found worker and service"),
    ("clientConfig.caBundle", "aGk=", "clientConfig.caBundle", "spec.tls.caFile of the WorkerPool"),
    ("clientConfig", {"url": "https://a", "caBundle": "a b"}, "clientConfig.caBundle", "is not base64"),
    (
        "clientConfig",
        {"url": "https://a", "caBundle": "YQ==\n"},
        "clientConfig.caBundle",
        "holds no PEM certificate that can be read; expected PEM certificates in base64",
    ),
    ("clientConfig.caBundleFrom", SECRET, "clientConfig.caBundleFrom", "spec.tls.caFile of the WorkerPool"),
    (
        "clientConfig",
        {"url": "https://a", "caBundle": "", "caBundleFrom": SECRET},
        "clientConfig.caBundleFrom",
        "is not allowed together with caBundle",
    ),
    *(
        (
            "clientConfig",
            {"url": "https://a", "caBundleFrom": source},
            f"clientConfig.caBundleFrom{place}",
            said,
        )
        for source, place, said in (
            ({}, "", "found none of them, expected exactly one of secret, configMap or webhook"),
            ({**SECRET, "configMap": SECRET["secret"]}, "", "found secret and configMap, expected"),
            ({"secret": {"namespace": "../a", "name": "a"}}, ".secret.namespace", "lower-case"),
            ({"secret": {"namespace": "a", "name": "a/b"}}, ".secret.name", "lower-case"),
            (
                {"configMap": {"namespace": "a", "name": "a", "key": "a b"}},
                ".configMap.key",
                "expected a key",
            ),
        )
    ),
    ("clientConfig.worker.policy", "", "clientConfig.worker.policy", "is required"),
    (
        "clientConfig.worker.pool",
        "podz",
        "clientConfig.worker.pool",
        'no WorkerPool "podz"; did you mean "pods"?',
    ),
    ("clientConfig.worker.polcy", "x", "clientConfig.worker.polcy", 'unknown field; did you mean "policy"?'),
    ("clientConfig.workers", "x", "clientConfig.workers", 'unknown field; did you mean "worker"?'),
    ("rules.0.operations", [None], "rules[0].operations[0]", 'found "", expected CREATE'),
    ("rules.0.resources", [None], "rules[0].resources[0]", "is empty, expected a name"),
    ("rules.0.operations", ["CREATE", "*"], "rules[0].operations", 'found "*" together with other values'),
    ("rules.0.apiGroups", ["", "*"], "rules[0].apiGroups", 'found "*" together with other values'),
    ("rules.0.apiVersions", ["v1", ""], "rules[0].apiVersions[1]", "is empty"),
    ("rules.0.apiVersions", ["v1", "*"], "rules[0].apiVersions", 'found "*" together with other values'),
    ("rules.0.resources", ["pods", ""], "rules[0].resources[1]", "is empty"),
    ("rules.0.resources", ["*/*", "pods"], "rules[0].resources", 'found "*/*" together with other resources'),
    ("rules.0.resources", ["pods", "*/*"], "rules[0].resources", 'found "*/*" together with other resources'),
    ("rules.0.resources", ["*", "pods"], "rules[0].resources", 'found "*" together with resources'),
    (
        "rules.0.resources",
        ["nodes/x", "*", "pods"],
        "rules[0].resources",
        'found "*" together with resources',
    ),
    (
        "rules.0.resources",
        ["pods/*", "a", "pods/exec"],
        "rules[0].resources[2]",
        'the earlier "pods/*" covers',
    ),
    ("rules.0.resources", ["pods/*", "pods/*"], "rules[0].resources[1]", 'the earlier "pods/*" covers'),
    (
        "rules.0.resources",
        ["*/scale", "pods/scale"],
        "rules[0].resources[1]",
        'the earlier "*/scale" covers',
    ),
    ("rules.0.kinds", ["Pod"], "rules[0].kinds", "unknown field; known fields: operations, "),
    ("admissionReviewVersions", ["v1", "v1"], "admissionReviewVersions[1]", 'found "v1" twice'),
    ("admissionReviewVersions", ["v1", "1v"], "admissionReviewVersions[1]", "with a letter first"),
    ("admissionReviewVersions", ["v1", "V2"], "admissionReviewVersions[1]", "lower-case"),
    ("admissionReviewVersions", ["v1", LONG_LABEL], "admissionReviewVersions[1]", "at most 63"),
    (
        "admissionReviewVersions",
        ["v2"],
        "admissionReviewVersions",
        'found "v2", expected at least v1 or v1beta1',
    ),
    (
        "namespaceSelector.matchLabels",
        {"a b": "c"},
        'namespaceSelector.matchLabels["a b"]',
        "letters, digits",
    ),
    ("namespaceSelector.matchLabels", {"": "c"}, 'namespaceSelector.matchLabels[""]', "1 to 63"),
    ("namespaceSelector.matchLabels", {"/a": "c"}, 'namespaceSelector.matchLabels["/a"]', "one slash"),
    ("namespaceSelector.matchLabels", {"x/y/a": "c"}, 'namespaceSelector.matchLabels["x/y/a"]', "one slash"),
    (
        "namespaceSelector.matchLabels",
        {"A.io/a": "c"},
        'namespaceSelector.matchLabels["A.io/a"]',
        "one slash",
    ),
    (
        "namespaceSelector.matchLabels",
        {LONG_LABEL: "c"},
        f"namespaceSelector.matchLabels.{LONG_LABEL}",
        "1 to 63",
    ),
    (
        "namespaceSelector.matchLabels",
        {"a": "-b"},
        "namespaceSelector.matchLabels.a",
        "nothing or at most 63",
    ),
    (
        "namespaceSelector.matchLabels",
        {"a": LONG_LABEL},
        "namespaceSelector.matchLabels.a",
        "nothing or at most 63",
    ),
    ("namespaceSelector.matchLabel", {}, "namespaceSelector.matchLabel", 'did you mean "matchLabels"?'),
    *(
        (
            "objectSelector.matchExpressions",
            [expression],
            f"objectSelector.matchExpressions[0].{field}",
            fragment,
        )
        for expression, field, fragment in (
            ({"key": "a b", "operator": "Exists"}, "key", "letters, digits"),
            ({"key": "a", "operator": "In"}, "values", "is required with the operator In"),
            (
                {"key": "a", "operator": "NotIn", "values": []},
                "values",
                "is required with the operator NotIn",
            ),
            (
                {"key": "a", "operator": "Exists", "values": ["b"]},
                "values",
                "not allowed with the operator Exists",
            ),
            (
                {"key": "a", "operator": "DoesNotExist", "values": ["b"]},
                "values",
                "not allowed with the operator",
            ),
            ({"key": "a", "operator": "In", "values": ["b", "c d"]}, "values[1]", "nothing or at most 63"),
        )
    ),
    (
        "matchConditions",
        [{"name": "a b", "expression": "true"}],
        "matchConditions[0].name",
        "letters, digits",
    ),
    ("matchConditions", [{"name": "a", "expression": " \n"}], "matchConditions[0].expression", "is required"),
    (
        "matchConditions",
        [{"name": "a", "expression": "true"}] * 2,
        "matchConditions[1].name",
        'found "a" again',
    ),
    (
        "matchConditions",
        [{"name": f"a{n}", "expression": "true"} for n in range(65)],
        "matchConditions",
        "found 65, expected at most 64",
    ),
    (
        "matchConditions",
        [{"name": "a", "expression": "true"}, {"name": "b", "expression": "true\n  && b"}],
        "matchConditions[1].expression",
        "2:6: undeclared reference to 'b'",
    ),
    *(
        ("matchConditions", [{"name": "a", "expression": text}], f"matchConditions{place}", said)
        for text, place, said in (
            ("object.metadata.labels.size()", "[0].expression", "must evaluate to bool but got int"),
            ("object.metadata.name ==", "[0].expression", "1:"),
            ("authorizer.path('/x').check('get').allowed()", "", "GatewayConfiguration.kubernetes"),
        )
    ),
    ("failurepolicy", "Fail", "failurepolicy", 'unknown field; did you mean "failurePolicy"?'),
]


@pytest.mark.parametrize(("path", "value", "field", "fragment"), HOOK_VALUES_REFUSED)
def test_values_the_api_server_refuses_are_refused(
    path: str, value: object, field: str, fragment: str
) -> None:
    problems = problems_of(POOL, altered(MUTATING, f"webhooks.0.{path}", value))
    [(where, message)] = problems
    assert where == f"webhooks[0].{field}"
    assert fragment in message


@pytest.mark.parametrize(
    ("url", "fragment"),
    [
        ("http://a", 'found the scheme "http", but only https is allowed'),
        ("a.example.com", "only https is allowed"),
        ("", "only https is allowed"),
        ("https://", "has no host"),
        ("https:///path", "has no host"),
        ("https://u:p@a", "user and password are not allowed"),
        ("https://u@", "has no host"),
        ("https://a/#b", "fragment"),
        ("https://a/?b=c", "query"),
        ("https://a:port/", "is not a URL"),
        ("https://[::1/", "is not a URL"),
        ("https://a/\n", "characters that a URL must not have"),
        ("https://a b/", "characters that a URL must not have"),
        (f"https://{'ü' * 64}/", "whose host is not a name"),
        ("https://a/%zz", "characters that a URL must not have"),
        (" https://a/", "characters that a URL must not have"),
        # An ideographic space, which IDNA makes a plain one of.
        ("https://a\u3000b/", "whose host is not a name"),
        ("https://a{b}/", "whose host is not a name"),
        ("https://a:0/", "found the port 0"),
    ],
)
def test_urls_that_cannot_be_called_are_refused(url: str, fragment: str) -> None:
    problems = problems_of(change(MUTATING, "webhooks.0.clientConfig", {"url": url}))
    assert {field for field, _ in problems} == {"webhooks[0].clientConfig.url"}
    assert any(fragment in message for _, message in problems)


SERVICE = {"name": "policies", "namespace": "gate"}


@pytest.mark.parametrize(
    ("service", "field", "fragment"),
    [
        # The API server names the other of the two fields.
        ({"name": "policies", "namespace": ""}, "service.namespace", "is required"),
        (SERVICE | {"path": "//"}, "service.path", "no empty part"),
        (SERVICE | {"path": "/a//b"}, "service.path", "no empty part"),
        (SERVICE | {"path": "a"}, "service.path", 'start with "/"'),
        (SERVICE | {"path": "/A"}, "service.path", "is not a DNS name"),
        (SERVICE | {"path": "/a_b"}, "service.path", "is not a DNS name"),
    ],
)
def test_services_that_cannot_be_called_are_refused(service: object, field: str, fragment: str) -> None:
    [(where, message)] = problems_of(change(MUTATING, "webhooks.0.clientConfig", {"service": service}))
    assert where == f"webhooks[0].clientConfig.{field}"
    assert fragment in message


@pytest.mark.parametrize(
    ("config", "url"),
    [
        ({"url": "https://a.example.com"}, "https://a.example.com/"),
        ({"url": "HTTPS://A:8443/x/y/"}, "https://A:8443/x/y"),
        ({"url": "https://[::1]:443//a/./b/../c"}, "https://[::1]:443/a/c"),
        ({"url": "https://a/%2Fb%C3%A9(c)"}, "https://a/b%C3%A9%28c%29"),
        ({"url": "https://a/../.."}, "https://a/"),
        ({"url": "https://bücher.example:8443/"}, "https://xn--bcher-kva.example:8443/"),
        ({"url": "https://a:/b"}, "https://a/b"),
        ({"service": SERVICE}, "https://policies.gate.svc:443/"),
        (
            {"service": SERVICE | {"port": 65535, "path": "/a/b.c/d-1/"}},
            "https://policies.gate.svc:65535/a/b.c/d-1",
        ),
        ({"service": SERVICE | {"path": ""}}, "https://policies.gate.svc:443/"),
        ({"service": SERVICE | {"port": None, "path": None}}, "https://policies.gate.svc:443/"),
    ],
)
def test_servers_are_called_where_the_api_server_calls_them(config: dict[str, Any], url: str) -> None:
    pem = trustme.CA().cert_pem.bytes()
    config = config | {"caBundle": base64.encodebytes(pem).decode()}
    (webhook,) = load_documents(change(MUTATING, "webhooks.0.clientConfig", config)).mutating
    assert webhook.client == HttpsClient(url, pem)


ROOTS = [trustme.CA().cert_pem.bytes() for _ in range(2)]
NO_CERTIFICATE = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"


@pytest.mark.parametrize(
    ("bundle", "count"),
    [
        (b"".join(ROOTS), 2),
        (b"".join(ROOTS).replace(b"\n", b"\r\n"), 2),
        ("# Ünlesbar\n".encode() + ROOTS[0] + b"\xff\n" + ROOTS[1] + b"\0", 2),
        (ROOTS[0].replace(b"\n", b" \n\n"), 1),
        (ROOTS[0].rstrip(), 1),
        (ROOTS[0] + NO_CERTIFICATE + ROOTS[1], 2),
        (ROOTS[0][:200] + b"\n" + ROOTS[1], 1),
        (ROOTS[0] + ROOTS[1][:200], 1),
        (ROOTS[0].replace(b"CERTIFICATE", b"TRUSTED CERTIFICATE") + ROOTS[1], 1),
        (ROOTS[0].rstrip() + ROOTS[1], 0),
        (b" " + ROOTS[0], 0),
        (NO_CERTIFICATE, 0),
    ],
)
def test_roots_are_those_that_go_finds(bundle: bytes, count: int) -> None:
    config = {"url": "https://a.example", "caBundle": base64.b64encode(bundle).decode()}
    document = change(MUTATING, "webhooks.0.clientConfig", config)
    if not count:
        with pytest.raises(ConfigError, match="holds no PEM certificate that can be read"):
            load_documents(document)
        return
    (webhook,) = load_documents(document).mutating
    assert isinstance(webhook.client, HttpsClient)
    context = ssl.create_default_context(cadata=webhook.client.ca_pem.decode())
    assert len(context.get_ca_certs()) == count


@pytest.mark.parametrize(
    ("versions", "version"),
    [(["v1"], "v1"), (["v2", "v1beta1", "v1"], "v1beta1"), (["v1", "v1beta1"], "v1")],
)
def test_the_first_known_version_is_sent(versions: list[str], version: str) -> None:
    document = change(MUTATING, "webhooks.0.admissionReviewVersions", versions)
    (webhook,) = load_documents(POOL, document).mutating
    assert webhook.review_version == version


@pytest.mark.parametrize(
    ("path", "value", "field", "fragment"),
    [
        ("metadata", ABSENT, "metadata", "is required"),
        ("metadata.name", ABSENT, "metadata.name", "is required"),
        ("metadata.name", "A", "metadata.name", "lower-case"),
        ("metadata.name", "x.static.k8s.io", "metadata.name", "reserved for kube-apiserver"),
        ("metadata.namespace", "default", "metadata.namespace", "is not allowed"),
        ("metadata.label", {}, "metadata.label", 'did you mean "labels"?'),
        ("metadata.labels", {"a": "b c"}, "metadata.labels.a", "nothing or at most 63"),
        (
            "metadata.labels",
            {"a": 1},
            "metadata.labels.a",
            "found the number 1, expected a string; put it in quotes",
        ),
        ("metadata.annotations", {"a b": "c"}, 'metadata.annotations["a b"]', "letters, digits"),
        ("metadata.annotations", {"a": "b" * 262144}, "metadata.annotations", "found 262145 bytes"),
        ("webhook", [], "webhook", 'did you mean "webhooks"?'),
        (
            "webhooks",
            [WEBHOOK, WEBHOOK],
            "webhooks[1].name",
            "the name of webhooks[0]; expected unique names",
        ),
    ],
)
def test_the_configuration_object_is_checked(path: str, value: object, field: str, fragment: str) -> None:
    problems = problems_of(POOL, altered(MUTATING, path, value))
    assert any(where == field and fragment in message for where, message in problems), problems


def test_metadata_as_kubectl_prints_it_is_accepted() -> None:
    metadata = {
        "name": "policies",
        "generateName": "p-",
        "uid": "8d7a",
        "resourceVersion": "1",
        "generation": 2,
        "selfLink": "/apis",
        "creationTimestamp": None,
        "deletionTimestamp": "2025-01-01T00:00:00Z",
        "deletionGracePeriodSeconds": 0,
        "labels": {"app.kubernetes.io/name": "policies"},
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}\n", "Example.com/A": "b"},
        "ownerReferences": [
            {"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "b", "controller": True}
        ],
        "finalizers": ["example.com/x"],
        "managedFields": [
            {"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:webhooks": {".": {}}}}
        ],
    }
    load_documents(POOL, change(MUTATING, "metadata", metadata))


def hook(config: Config) -> Webhook:
    [webhook] = [*config.mutating, *config.validating]
    return webhook


def test_defaults_of_v1() -> None:
    webhook = hook(load_documents(POOL, MUTATING))
    assert webhook.phase == "mutate"
    assert webhook.configuration == "policies"
    assert webhook.name == "images.policies.example.com"
    assert webhook.client == WorkerRef("pods", "images")
    assert webhook.rules == (Rule(("CREATE",), ("",), ("v1",), ("pods",), "*"),)
    assert webhook.namespace_selector == webhook.object_selector == Selector()
    assert (webhook.failure_policy, webhook.match_policy, webhook.timeout_s) == ("Fail", "Equivalent", 10)
    assert (webhook.side_effects, webhook.reinvocation_policy) == ("None", "Never")


V1BETA1 = VALIDATING | {"apiVersion": "admissionregistration.k8s.io/v1beta1"}


def test_defaults_of_v1beta1() -> None:
    document = change(change(V1BETA1, "webhooks.0.sideEffects"), "webhooks.0.admissionReviewVersions")
    webhook = hook(load_documents(POOL, document))
    assert webhook.phase == "validate"
    assert (webhook.failure_policy, webhook.match_policy, webhook.timeout_s) == ("Ignore", "Exact", 30)
    assert (webhook.side_effects, webhook.reinvocation_policy) == ("Unknown", "Never")
    assert webhook.rules[0].scope == "*"


@pytest.mark.parametrize("value", ["None", "NoneOnDryRun", "Some", "Unknown"])
def test_v1beta1_allows_all_side_effects(value: str) -> None:
    assert hook(load_documents(POOL, change(V1BETA1, "webhooks.0.sideEffects", value))).side_effects == value


def test_v1beta1_lists_all_side_effects_when_one_is_wrong() -> None:
    [(_, message)] = problems_of(POOL, change(V1BETA1, "webhooks.0.sideEffects", "Any"))
    assert message == 'found "Any", expected None, NoneOnDryRun, Some or Unknown'


def test_an_empty_list_of_review_versions_is_refused() -> None:
    [(field, _)] = problems_of(POOL, change(V1BETA1, "webhooks.0.admissionReviewVersions", []))
    assert field == "webhooks[0].admissionReviewVersions"


def test_every_field_of_a_webhook_is_kept() -> None:
    written = WEBHOOK | {
        "failurePolicy": "Ignore",
        "matchPolicy": "Exact",
        "sideEffects": "NoneOnDryRun",
        "timeoutSeconds": 5,
        "reinvocationPolicy": "IfNeeded",
        "rules": [RULE | {"scope": "Namespaced"}, RULE | {"operations": ["*"], "resources": ["*/*"]}],
        "namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["x", "y"]}]},
        "objectSelector": {
            "matchLabels": {"b": "c"},
            "matchExpressions": [{"key": "d", "operator": "DoesNotExist"}],
        },
    }
    webhook = hook(load_documents(POOL, change(MUTATING, "webhooks.0", written)))
    assert (webhook.failure_policy, webhook.match_policy, webhook.timeout_s) == ("Ignore", "Exact", 5)
    assert (webhook.side_effects, webhook.reinvocation_policy) == ("NoneOnDryRun", "IfNeeded")
    assert [rule.scope for rule in webhook.rules] == ["Namespaced", "*"]
    assert webhook.rules[1].operations == ("*",)
    assert webhook.namespace_selector == Selector((Requirement("a", "NotIn", frozenset({"x", "y"})),))
    assert webhook.object_selector == Selector(
        (Requirement("b", "In", frozenset({"c"})), Requirement("d", "DoesNotExist"))
    )


def test_validating_webhooks_have_no_reinvocation_policy() -> None:
    [(field, message)] = problems_of(POOL, change(VALIDATING, "webhooks.0.reinvocationPolicy", "Never"))
    assert field == "webhooks[0].reinvocationPolicy"
    assert "only mutating webhooks" in message


def test_a_configuration_without_webhooks_has_a_name() -> None:
    config = load_documents(change(MUTATING, "webhooks"), change(VALIDATING, "webhooks", []))
    assert config.configurations == {("mutate", "policies"), ("validate", "policies")}
    assert config.mutating == config.validating == ()


def test_all_problems_of_a_configuration_are_reported() -> None:
    document = MUTATING
    for path, value in (
        ("metadata.name", "A"),
        ("webhooks.0.name", "a"),
        ("webhooks.0.timeoutSeconds", 31),
        ("webhooks.0.rules.0.scope", "x"),
        ("webhooks.0.extra", "x"),
    ):
        document = change(document, path, value)
    assert {field for field, _ in problems_of(POOL, document)} == {
        "metadata.name",
        "webhooks[0].name",
        "webhooks[0].timeoutSeconds",
        "webhooks[0].rules[0].scope",
        "webhooks[0].extra",
    }


@pytest.mark.parametrize(
    ("groups", "resources", "named"),
    [
        (["authentication.k8s.io"], ["tokenreviews"], ["tokenreviews.authentication.k8s.io"]),
        (
            ["authorization.k8s.io", "apps"],
            ["deployments", "subjectaccessreviews", "localsubjectaccessreviews"],
            ["subjectaccessreviews.authorization.k8s.io", "localsubjectaccessreviews.authorization.k8s.io"],
        ),
        (["*"], ["tokenreviews"], []),
        (["authentication.k8s.io"], ["*"], []),
    ],
)
def test_a_rule_for_an_excluded_resource_is_a_warning(
    groups: list[str], resources: list[str], named: list[str]
) -> None:
    rule = RULE | {"apiGroups": groups, "resources": resources}
    config = load_documents(POOL, change(VALIDATING, "webhooks.0.rules", [rule]))
    warnings = [(warning.field, warning.message) for warning in config.warnings]
    # Another warning is about resources that are in none of the groups.
    assert [warning for warning in warnings if "resources" not in warning[0]] == [
        (
            "webhooks[0].rules[0]",
            f"{name} is excluded from admission webhooks; this rule will have no effect",
        )
        for name in named
    ]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (SECRET, ("Secret", "cert-manager", "ca", "ca.crt")),
        (
            {"configMap": {"namespace": "a", "name": "b", "key": "Roots_1.pem"}},
            ("ConfigMap", "a", "b", "Roots_1.pem"),
        ),
        (
            {
                "webhookConfiguration": {
                    "kind": "MutatingWebhookConfiguration",
                    "name": "a",
                    "webhook": "a.b.c",
                }
            },
            ("MutatingWebhookConfiguration", "", "a", "a.b.c"),
        ),
    ],
)
def test_a_ca_bundle_is_followed_in_a_cluster_only(source: Any, expected: tuple[str, ...]) -> None:
    config = {"url": "https://a.example", "caBundleFrom": source}
    document = change(MUTATING, "webhooks.0.clientConfig", config)
    (problem,) = problems_of(document)
    assert problem[0] == "webhooks[0].clientConfig.caBundleFrom"
    assert "expected GatewayConfiguration.kubernetes to name one" in problem[1]
    head = {"apiVersion": "admission-gateway.io/v1alpha1", "kind": "GatewayConfiguration"}
    loaded = load_documents(document, {**head, "kubernetes": {}})
    assert loaded.mutating[0].client == HttpsClient("https://a.example/", b"", CaBundleSource(*expected))
    assert ca_bundle_sources(loaded) == {CaBundleSource(*expected)}
