"""One fault at a time in a registration, and its finding."""

from __future__ import annotations

import base64
import datetime
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from gateway.config.kinds.worker_pool import WorkerPool, WorkerTls
from gateway.pure.core.labels import Requirement, Selector
from gateway.pure.core.webhook import HttpsClient
from gateway.tools.inspection.certificates import distrusted
from gateway.tools.inspection.model import ClusterState
from gateway.tools.inspection.registration import inspect
from gateway.tools.registration.plan import RegistrationOptions, plan
from tests.core.build import webhook
from tests.deploy.cluster import REGISTRATION, objects
from tests.deploy.cluster import configured as shipped
from tests.inspection.kit import HOST, NOW, PODS, SERVICE, Registered, certificates, issue
from tests.registration.kit import rule

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ENTRY = (
    "ValidatingWebhookConfiguration/admission-gateway: webhooks[0] mandatory.validate.admission-gateway.io"
)
B = "validate policies/b.policies.test"


def change(**members: Any) -> Callable[[Registered], object]:
    """Change fields of the validating entry."""
    return lambda case: case.entry().update(members)


def mutating(**members: Any) -> Callable[[Registered], object]:
    return lambda case: case.entry("mutate").update(members)


def to_path(path: str) -> Callable[[Registered], object]:
    return lambda case: case.entry()["clientConfig"]["service"].update(path=path)


def configure(**members: Any) -> Callable[[Registered], object]:
    """Change the configuration of the validating webhook after its registration."""

    def spoil(case: Registered) -> None:
        case.hooks = (case.hooks[0], replace(case.hooks[1], **members))

    return spoil


def select(**requirement: Any) -> dict[str, Any]:
    return {"matchExpressions": [requirement]}


def directly(case: Registered) -> None:
    case.seen.configurations.append(
        {
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "policies"},
            "webhooks": [{"name": "b.policies.test", "clientConfig": {"url": "https://b.test/"}}],
        }
    )


def once_more(case: Registered) -> None:
    case.seen.configurations.append(
        {
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "by-hand"},
            "webhooks": [{**case.entry(), "name": "again.example.com"}],
        }
    )


NOT_LED = "no registered entry leads to it"
EXACT_RULES = [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]


@pytest.mark.parametrize(
    ("spoil", "severity", "place", "message"),
    [
        (change(rules=[]), "error", B, 'rules[0]: never sent to the gateway: CREATE of ""/v1 pods'),
        (change(rules=[{**EXACT_RULES[0], "scope": "Cluster"}]), "warning", B, "if such resources exist"),
        (change(rules=[{**EXACT_RULES[0], "apiVersions": ["v2"]}]), "warning", B, "another version"),
        (change(matchPolicy="Exact"), "warning", B, "does not get versions that no rule names"),
        (configure(rules=(PODS, rule("nodes"))), "error", B, "rules[1]: never sent to the gateway"),
        (
            configure(name="c.policies.test", failure_policy="Ignore"),
            "error",
            "validate policies/c.policies.test",
            NOT_LED,
        ),
        (
            change(namespaceSelector=select(key="team", operator="Exists")),
            "error",
            B,
            "namespaceSelector requires team Exists, which the webhook does not",
        ),
        (
            change(objectSelector={"matchLabels": {"team": "a"}}),
            "error",
            B,
            "objectSelector requires team In a, which the webhook does not",
        ),
        (
            change(matchConditions=[{"name": "watchdog.admission-gateway.io", "expression": "false"}]),
            "error",
            ENTRY,
            "the watchdog has relaxed it",
        ),
        (
            change(matchConditions=[{"name": "some", "expression": "false"}]),
            "warning",
            ENTRY,
            "matchCondition some may exclude requests",
        ),
        (to_path("/validate/gone"), "error", ENTRY, "the gateway answers 404 at its path /validate/gone"),
        (to_path("/mutate"), "error", ENTRY, "is for the other phase"),
        (to_path("/other"), "error", ENTRY, "the gateway answers 404 at its path /other"),
        (change(failurePolicy="Ignore"), "error", ENTRY, "failurePolicy is Ignore: while no gateway"),
        (
            mutating(timeoutSeconds=9),
            "warning",
            "",
            "timeoutSeconds is 9, and 12 are needed: the timeouts of",
        ),
        (change(timeoutSeconds=11), "warning", ENTRY, "timeoutSeconds is 11, and 12 are needed: the longest"),
        (
            configure(side_effects="NoneOnDryRun"),
            "warning",
            ENTRY,
            "sideEffects is None, and that of policies/b",
        ),
        (change(sideEffects="Some"), "warning", ENTRY, "the API server refuses every dry run"),
        (mutating(reinvocationPolicy="IfNeeded"), "warning", "", "calls webhooks with Never twice"),
        (change(admissionReviewVersions=["v2"]), "error", ENTRY, "admissionReviewVersions has none"),
        (
            change(
                namespaceSelector=select(
                    key="kubernetes.io/metadata.name", operator="NotIn", values=["policies"]
                )
            ),
            "warning",
            ENTRY,
            "also in the namespace kube-system",
        ),
        (
            change(
                namespaceSelector=select(
                    key="kubernetes.io/metadata.name", operator="NotIn", values=["kube-system"]
                )
            ),
            "warning",
            ENTRY,
            "also in the gateway's own namespace policies",
        ),
        (directly, "warning", "ValidatingWebhookConfiguration/policies", "is called twice, directly and by"),
        (once_more, "warning", B, "is called twice, by"),
        (
            lambda case: case.seen.services.update({SERVICE: None}),
            "error",
            "Service policies/gateway",
            "does not exist",
        ),
        (
            lambda case: case.seen.services.update({SERVICE: {"spec": {"ports": [{"port": 80}]}}}),
            "error",
            "Service policies/gateway",
            "port 443 is registered, but it has 80",
        ),
        (
            lambda case: case.seen.ready.update({SERVICE: 0}),
            "error",
            "Service policies/gateway",
            "no ready end",
        ),
        (
            lambda case: case.seen.unread.append("the right to x is missing"),
            "warning",
            "rights",
            "the right to x",
        ),
    ],
)
def test_each_fault_has_exactly_its_finding(
    tmp_path: Path, spoil: Callable[[Registered], object], severity: str, place: str, message: str
) -> None:
    case = Registered(tmp_path)
    assert case.found() == []
    spoil(case)
    # An entry that leads nowhere has a second finding: its webhooks are never called.
    (finding,) = [one for one in case.found() if message == NOT_LED or NOT_LED not in one.message]
    assert finding.severity == severity
    assert finding.place.startswith(place)
    assert message in finding.message
    assert finding.advice
    assert "\n" not in str(finding)


def test_no_registration_at_all_is_an_error_unless_nothing_is_configured(tmp_path: Path) -> None:
    case = Registered(tmp_path)
    case.seen.configurations.clear()
    (finding,) = case.found()
    assert (finding.severity, finding.place) == ("error", "cluster")
    case.hooks = (webhook(rules=()),)
    assert [one.message for one in case.found()] == [finding.message]


def test_a_missing_reinvocation_policy_is_found(tmp_path: Path) -> None:
    case = Registered(tmp_path, webhook(rules=(PODS,), reinvocation_policy="IfNeeded"))
    case.entry("mutate")["reinvocationPolicy"] = "Never"
    assert [one.message for one in case.found()] == [
        "reinvocationPolicy is Never, and all webhooks behind it have IfNeeded"
    ]


def test_a_selector_that_the_webhook_has_too_excludes_nothing(tmp_path: Path) -> None:
    team = Selector((Requirement("team", "In", frozenset("a")),))
    case = Registered(
        tmp_path, webhook("b.policies.test", phase="validate", rules=(PODS,), namespace_selector=team)
    )
    case.seen.configurations[1]["webhooks"][0]["namespaceSelector"]["matchExpressions"].append(
        {"key": "team", "operator": "NotIn", "values": ["b"]}
    )
    assert case.found() == []
    both = Selector(
        (Requirement("team", "In", frozenset("ab")), Requirement("team", "NotIn", frozenset("b")))
    )
    case.hooks = (replace(case.hooks[0], namespace_selector=both),)
    assert case.found() == []


def test_a_condition_that_excludes_a_rule_is_an_error(tmp_path: Path) -> None:
    everything = rule("*", "*", "*", "*")
    case = Registered(tmp_path, webhook("b.policies.test", phase="validate", rules=(everything,)))
    leases = rule("leases", "v1", "coordination.k8s.io")
    case.hooks = (replace(case.hooks[0], rules=(everything, leases)),)
    finding = case.found()[0]
    assert finding.severity == "error"
    assert "exclude-leases excludes requests that a rule of the webhook names" in finding.message


def test_a_registration_by_url_is_found_below_the_path_of_the_url(tmp_path: Path) -> None:
    case = Registered(tmp_path, url="https://gateway.policies.svc:8443/here")
    assert case.found() == []
    case.entry()["clientConfig"]["url"] = "https://gateway.policies.svc:8443/here/validate/gone"
    assert "404 at its path /here/validate/gone" in case.found()[0].message


def test_an_object_with_other_entries_is_not_deleted(tmp_path: Path) -> None:
    case = Registered(tmp_path)
    direct = {"name": "b.policies.test", "clientConfig": {"url": "https://elsewhere/"}}
    case.seen.configurations.append(
        {
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "policies"},
            "webhooks": [direct, {**case.entry(), "name": "x.admission-gateway.io"}],
        }
    )
    advice = {one.advice for one in case.found() if "is called twice, directly" in one.message}
    assert advice == {"once the gateway serves it: kubectl edit validatingwebhookconfiguration policies"}
    case.seen.configurations[-1]["webhooks"].pop()
    (finding,) = case.found()
    assert "kubectl delete validatingwebhookconfiguration policies" in finding.advice


def test_a_url_that_cannot_be_read_leads_nowhere(tmp_path: Path) -> None:
    case = Registered(tmp_path)
    case.entry()["clientConfig"] = {"url": "https://[bad/", "caBundle": case.ca_bundle}
    assert any("the gateway answers 404" in one.message for one in case.found())


# -- certificates ---------------------------------------------------------------------------------


def test_a_bundle_of_another_ca_does_not_verify(tmp_path: Path) -> None:
    case = Registered(tmp_path)
    case.entry()["clientConfig"]["caBundle"] = certificates(tmp_path / "..", "x")[1]
    (finding,) = case.found()
    assert (finding.severity, finding.place) == ("error", ENTRY)
    assert finding.message.startswith("caBundle does not verify the serving certificate: ")


def test_the_name_of_the_service_has_to_be_in_the_certificate(tmp_path: Path) -> None:
    case = Registered(tmp_path)
    case.entry()["clientConfig"]["service"]["name"] = "other"
    assert "the serving certificate is not for other.policies.svc: it has gateway.policies.svc" in [
        one.message for one in case.found()
    ]


@pytest.mark.parametrize(
    ("bundle", "message"),
    [
        ("", "caBundle is empty"),
        ("!", "caBundle holds no PEM certificate"),
        (base64.b64encode(b"nothing").decode(), "caBundle holds no PEM certificate"),
    ],
)
def test_a_bundle_without_certificates_is_an_error(tmp_path: Path, bundle: str, message: str) -> None:
    case = Registered(tmp_path)
    case.entry()["clientConfig"]["caBundle"] = bundle
    (finding,) = case.found()
    assert finding.severity == "error"
    assert finding.message.startswith(message)


def test_certificates_that_end_are_found_wherever_they_are(tmp_path: Path) -> None:
    case = Registered(tmp_path)
    (tmp_path / "pool").mkdir()
    soon, pool_bundle = certificates(tmp_path / "pool", "w", ends=NOW + datetime.timedelta(days=10))
    ca_pem = base64.b64decode(pool_bundle)
    config = replace(
        case.config, pools={"p": WorkerPool("p", ("w:1",), tls=WorkerTls(ca_file=soon, cert_file=soon))}
    )
    hook = replace(case.hooks[0], client=HttpsClient("https://w/", ca_pem))
    config = replace(config, mutating=(hook,))

    def places(days: int, now: datetime.datetime = NOW) -> list[tuple[str, str]]:
        return [
            (one.severity, one.place.split(" /")[0])
            for one in inspect(config, case.seen, now, days)
            if "expire" in one.message
        ]

    pool = [("warning", "WorkerPool p: tls.caFile"), ("warning", "WorkerPool p: tls.certFile")]
    assert places(30) == pool
    assert places(5) == []
    assert places(30, NOW + datetime.timedelta(days=11)) == [("error", place) for _, place in pool]
    late = [place for _, place in places(30, NOW + datetime.timedelta(days=366 * 2000))]
    assert "mutate policies/a.policies.test: caBundle" in late
    assert f"{ENTRY}: caBundle" in late
    assert "GatewayConfiguration: tls.certFile" in late


def test_of_several_roots_one_that_has_expired_is_no_error(tmp_path: Path) -> None:
    case = Registered(tmp_path)
    old = certificates(tmp_path / "..", "x", ends=NOW - datetime.timedelta(days=1))[0].read_bytes()
    both = base64.b64decode(case.ca_bundle) + old
    case.entry()["clientConfig"]["caBundle"] = base64.b64encode(both).decode()
    (finding,) = case.found()
    assert (finding.severity, finding.place) == ("warning", f"{ENTRY}: caBundle")
    assert "has expired on" in finding.message


def test_a_certificate_that_is_its_own_root_is_trusted(tmp_path: Path) -> None:
    case = Registered(tmp_path)
    assert case.settings.tls.cert_file is not None
    leaf = base64.b64encode(case.settings.tls.cert_file.read_bytes()).decode()
    for phase in ("mutate", "validate"):
        case.entry(phase)["clientConfig"]["caBundle"] = leaf
    assert case.found() == []


def test_without_a_serving_certificate_trust_is_not_checked(tmp_path: Path) -> None:
    case = Registered(tmp_path)
    case.settings = replace(case.settings, tls=replace(case.settings.tls, cert_file=None))
    (finding,) = case.found()
    assert finding.severity == "warning"
    assert finding.message.startswith("no tls.certFile")


@pytest.mark.parametrize("kind", ["rsa", "ecdsa", "ed25519"])
@pytest.mark.parametrize("intermediates", [0, 1])
def test_kinds_of_keys_that_go_accepts(kind: str, intermediates: int) -> None:
    root = authority = issue(kind, is_ca=True)
    between = []
    for _ in range(intermediates):
        authority = issue(kind, authority, is_ca=True)
        between.append(authority[0])
    leaf = issue(kind, authority)[0]
    assert distrusted([root[0]], [leaf, *between], HOST, NOW) == ""
    for roots, chain in (
        ([issue(kind, is_ca=True)[0]], [leaf, *between]),
        ([issue(kind)[0]], [leaf, *between]),
        ([root[0]], [issue(kind, authority, days=-1)[0], *between]),
        ([root[0]], [issue(kind, issue(kind, root, is_ca=True, days=-1))[0]]),
    ):
        assert distrusted(roots, chain, HOST, NOW).startswith("caBundle does not verify")


def test_a_certificate_for_clients_alone_is_not_for_servers() -> None:
    authority = issue("ecdsa", is_ca=True)
    usages = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
    leaf = issue("ecdsa", authority, usages)[0]
    assert "lacks serverAuth" in distrusted([authority[0]], [leaf], HOST, NOW)


def test_a_host_with_an_underscore_is_a_name_too() -> None:
    authority = issue("ecdsa", is_ca=True)
    leaf = issue("ecdsa", authority, x509.SubjectAlternativeName([x509.DNSName("a_b.test")]))[0]
    assert distrusted([authority[0]], [leaf], "a_b.test", NOW) == ""


def test_the_shipped_registration_matches_the_shipped_configuration(
    tmp_path: Path, certificate: tuple[Path, Path]
) -> None:
    config = shipped(tmp_path, certificate)
    seen = ClusterState(configurations=objects(REGISTRATION))
    left_out = ("kube-system", "kube-public", "kube-node-lease")
    found = [
        one for one in inspect(config, seen, NOW, 30, accepted=left_out) if "caBundle" not in one.message
    ]
    assert [one.place for one in found if "certificate" not in one.message] == [
        "namespaces admission-gateway, kube-node-lease, kube-public, kube-system"
    ]


def test_an_order_that_the_registered_entries_break_is_an_error(tmp_path: Path) -> None:
    hooks = (
        webhook("a.policies.test", rules=(PODS,), failure_policy="Ignore"),
        webhook("b.policies.test", rules=(PODS,), after=("a.policies.test",)),
    )
    case = Registered(tmp_path, *hooks)
    assert not [one for one in case.found() if "its after names" in one.message]
    split = RegistrationOptions(case.backend, split_mutating=True)
    case.seen = replace(case.seen, configurations=plan(case.config, split).documents)
    (found,) = (one for one in case.found() if "its after names" in one.message)
    first, second = (
        f"MutatingWebhookConfiguration/admission-gateway: webhooks[{number}] "
        f"{policy}.mutate.admission-gateway.io"
        for number, policy in enumerate(("mandatory", "optional"))
    )
    assert (found.severity, found.place) == ("error", "mutate policies/b.policies.test")
    assert found.message == (
        f"is called before policies/a.policies.test, which its after names: {first} comes before {second}"
    )
    case.hooks = (hooks[0], replace(hooks[1], rules=(rule("nodes"),)))
    assert not [one for one in case.found() if "its after names" in one.message]
