from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Any

import orjson
import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from gateway.base.errors import ConfigError
from gateway.config.kinds.gateway_configuration import GatewaySettings
from gateway.config.kinds.serving_settings import Authentication, ServerTls
from gateway.config.kinds.worker_pool import Hedge, WorkerTls
from gateway.config.merge import load
from tests.config.documents import load_documents, problems_of

if TYPE_CHECKING:
    from pathlib import Path

    from gateway.config.merge.model import Config

VERSION = "admission-gateway.io/v1alpha1"


def pool(**spec: object) -> dict[str, Any]:
    return {"apiVersion": VERSION, "kind": "WorkerPool", "metadata": {"name": "pods"}, "spec": spec}


def gateway(**fields: object) -> dict[str, Any]:
    return {"apiVersion": VERSION, "kind": "GatewayConfiguration"} | fields


def namespace(**fields: object) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}} | fields


TARGETS = [
    "dns:///pods.policies.svc:50051",
    "dns:pods.policies.svc.cluster.local.:50051",
    "dns:///[::1]:50051",
    "pods:1",
    "127.0.0.1:65535",
    "[::1]:50051",
    "a_b-c.D:50051",
    "unix:/run/a.sock",
    "unix:///run/a.sock",
    "unix-abstract:a",
    "ipv4:10.0.0.1:50051",
    "ipv4:10.0.0.1:50051,10.0.0.2:50052",
    "ipv6:[::1]:50051",
    "ipv6:[fd00::1]:50051,[fd00::2]:50051",
]


@pytest.mark.parametrize("target", TARGETS)
def test_grpc_names_are_accepted(target: str) -> None:
    assert load_documents(pool(target=target)).pools["pods"].targets == (target,)


def test_a_pool_may_have_several_targets() -> None:
    assert load_documents(pool(target=TARGETS)).pools["pods"].targets == tuple(TARGETS)


@pytest.mark.parametrize(
    ("target", "fragment"),
    [
        ("pods", "expected dns:///HOST:PORT"),
        ("", "expected dns:///HOST:PORT"),
        ("pods:", "expected dns:///HOST:PORT"),
        (":50051", "expected dns:///HOST:PORT"),
        ("pods:0", "port from 1 to 65535"),
        ("pods:65536", "expected dns:///HOST:PORT"),
        ("pods:http", "expected dns:///HOST:PORT"),
        ("-pods:1", "expected dns:///HOST:PORT"),
        ("10.0.0.256:1", "expected dns:///HOST:PORT"),
        ("::1:50051", "expected dns:///HOST:PORT"),
        ("[::1]", "expected dns:///HOST:PORT"),
        ("[pods]:1", "expected dns:///HOST:PORT"),
        ("dns:///pods", "expected dns:///HOST:PORT"),
        ("dns:pods", "expected dns:///HOST:PORT"),
        ("dns:///", "expected dns:///HOST:PORT"),
        ("dns://1.1.1.1/pods:1", "names a DNS server; expected the system's: dns:///HOST:PORT"),
        ("dns://pods:50051", "with three slashes"),
        ("unix:", "expected 1 to 107"),
        ("unix://run/a.sock", "unix:///PATH with an absolute path"),
        ("unix:/" + "a" * 107, "a name of 108 bytes, expected 1 to 107"),
        ("unix:/a b", "without blanks"),
        ("unix:/a%20b", "without blanks"),
        ("unix-abstract:", "expected 1 to 107"),
        ("ipv4:10.0.0.1", "ipv4:ADDRESS:PORT"),
        ("ipv4:pods:1", "ipv4:ADDRESS:PORT"),
        ("ipv4:10.0.0.1:1,", "ipv4:ADDRESS:PORT"),
        ("ipv4:10.0.0.1:0", "port from 1 to 65535"),
        ("ipv6:::1:50051", "ipv6:[ADDRESS]:PORT"),
        ("ipv6:[::1]", "ipv6:[ADDRESS]:PORT"),
        ("ipv6:[10.0.0.1]:1", "ipv6:[ADDRESS]:PORT"),
        ("xds:///pods", 'unknown scheme "xds"'),
        ("https://pods:443", 'unknown scheme "https"'),
    ],
)
def test_other_names_are_refused(target: str, fragment: str) -> None:
    [(field, message)] = problems_of(pool(target=target))
    assert field == "spec.target"
    assert fragment in message
    [(field, _)] = problems_of(pool(target=["pods:1", target]))
    assert field == "spec.target[1]"


def test_the_path_of_a_socket_is_relative_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(orjson.dumps(pool(target=["unix:run/a.sock", "unix:../b"])))
    targets = load.load([tmp_path / "a.json"]).pools["pods"].targets
    assert targets == (f"unix:{tmp_path}/run/a.sock", f"unix:{tmp_path}/../b")


def test_a_pool_may_have_a_list_of_targets_and_its_roots_in_it() -> None:
    pem = trustme.CA().cert_pem.bytes()
    bundle = base64.encodebytes(pem).decode()
    config = load_documents(pool(targets=["a:1", "dns:///b:2"], tls={"caBundle": bundle}))
    assert config.pools["pods"].targets == ("a:1", "dns:///b:2")
    assert config.pools["pods"].tls == WorkerTls(ca_bundle=pem)


def test_a_socket_whose_folder_makes_it_too_long_is_refused(tmp_path: Path) -> None:
    file = tmp_path / ("a" * 100) / "a.json"
    file.parent.mkdir()
    file.write_bytes(orjson.dumps(pool(target="unix:a.sock")))
    with pytest.raises(ConfigError, match=r"spec\.target: .* bytes, expected 1 to 107"):
        load.load([file])


@pytest.mark.parametrize(
    ("spec", "field", "fragment"),
    [
        ({}, "spec", "found none of them, expected exactly one of target, targets or command"),
        ({"target": "a:1", "command": ["a"]}, "spec", "found target and command, expected exactly one"),
        ({"target": []}, "spec.target", "is empty, expected at least one gRPC name"),
        ({"targets": []}, "spec.targets", "is empty, expected at least one gRPC name"),
        ({"target": "a:1", "targets": ["b:1"]}, "spec", "found target and targets, expected exactly one"),
        ({"target": "a:1", "tls": {"caBundle": "*"}}, "spec.tls.caBundle", "is not base64"),
        ({"target": "a:1", "tls": {"caBundle": "YQ=="}}, "spec.tls.caBundle", "holds no PEM certificate"),
        ({"target": ["a:1", "a:1"]}, "spec.target[1]", 'found "a:1" twice'),
        ({"target": ["a:1", 5]}, "spec.target[1]", "found the number 5, expected a string"),
        ({"target": {}}, "spec.target", "found a mapping, expected a string"),
        ({"command": []}, "spec.command", "is empty, expected a program"),
        ({"command": ["", "a"]}, "spec.command", "is empty, expected a program"),
        ({"command": "python -m a"}, "spec.command", "expected a list"),
        ({"command": ["a", "b\0"]}, "spec.command[1]", "NUL"),
        ({"command": ["a", 1]}, "spec.command[1]", "found the number 1, expected a string; put it in quotes"),
        ({"target": "a:1", "hedge": {"afer": "p95"}}, "spec.hedge.afer", 'did you mean "after"?'),
        ({"target": "unix:/a", "tls": {}}, "spec.tls", "not allowed with a command or a unix socket"),
        (
            {"target": ["a:1", "unix-abstract:a"], "tls": {}},
            "spec.tls",
            "not allowed with a command or a unix",
        ),
        ({"command": ["a"], "tls": {}}, "spec.tls", "not allowed with a command or a unix socket"),
        ({"target": "a:1", "tls": {"serverName": "a b"}}, "spec.tls.serverName", "expected a DNS name"),
        ({"target": "a:1", "tls": {"caFile": ""}}, "spec.tls.caFile", "is empty"),
        (
            {"target": "a:1", "tls": {"caFile": "none.pem"}},
            "spec.tls.caFile",
            "none.pem cannot be read: No such",
        ),
        ({"target": "a:1", "tls": {"caFile": "."}}, "spec.tls.caFile", "is not a file"),
        ({"target": "a:1", "tls": {"caFile": "a\0"}}, "spec.tls.caFile", "cannot be read"),
        ({"target": "a:1", "tls": {"cafile": "x"}}, "spec.tls.cafile", 'did you mean "caFile"?'),
    ],
)
def test_worker_pools_are_checked(spec: dict[str, Any], field: str, fragment: str) -> None:
    [(where, message)] = problems_of(pool(**spec))
    assert where == field
    assert fragment in message


def test_a_worker_pool_has_a_name_and_a_spec() -> None:
    fields = {field for field, _ in problems_of({"apiVersion": VERSION, "kind": "WorkerPool"})}
    assert fields == {"metadata", "spec"}


def test_defaults_and_fields_of_a_worker_pool() -> None:
    plain = load_documents(pool(target="a:1")).pools["pods"]
    assert (plain.transport, plain.max_in_flight, plain.tls, plain.command) == ("Auto", 1024, None, ())
    full = load_documents(pool(command=["python", "-m", "a"], transport="Unary", maxInFlight=7)).pools["pods"]
    assert (full.transport, full.max_in_flight, full.command) == ("Unary", 7, ("python", "-m", "a"))
    assert full.targets == ()
    tls = load_documents(pool(target="a:1", tls={"serverName": "b"})).pools["pods"].tls
    assert tls == WorkerTls(server_name="b")


@pytest.mark.parametrize(
    ("hedge", "expected"),
    [
        ({}, Hedge(after_s=None, percentile=95.0, budget_percent=5.0)),
        ({"after": None, "budgetPercent": None}, Hedge(None, 95.0, 5.0)),
        ({"after": "p95"}, Hedge(None, 95.0, 5.0)),
        ({"after": "p50"}, Hedge(None, 50.0, 5.0)),
        ({"after": "p99.9"}, Hedge(None, 99.9, 5.0)),
        ({"after": "p99.999999"}, Hedge(None, 99.999999, 5.0)),
        ({"after": "20ms"}, Hedge(0.02, 95.0, 5.0)),
        ({"after": "1ns"}, Hedge(1e-9, 95.0, 5.0)),
        ({"after": "30s"}, Hedge(30.0, 95.0, 5.0)),
        ({"after": "1.5s", "budgetPercent": 100}, Hedge(1.5, 95.0, 100.0)),
        ({"budgetPercent": 0.5}, Hedge(None, 95.0, 0.5)),
    ],
)
def test_when_and_how_often_a_pool_hedges(hedge: dict[str, Any], expected: Hedge) -> None:
    config = load_documents(pool(target="a:1", hedge=hedge))
    assert config.pools["pods"].hedge == expected
    assert config.warnings == ()


def test_a_pool_does_not_hedge_by_default() -> None:
    for spec in ({}, {"hedge": None}):
        assert load_documents(pool(target="a:1", **spec)).pools["pods"].hedge is None


@pytest.mark.parametrize(
    "after",
    [
        *("", "0", "0s", "0.4ns", "-20ms", "30.001s", "20", "95"),
        *(
            "p",
            "p5",
            "p49",
            "p49.9",
            "p100",
            "p99.9999999",
            "p95.",
            "p+95",
            "p 95",
            "p95%",
            "P95",
            "p\u0669\u0665",
        ),
        *(95, 20, 0.5, True, [], {}),
    ],
)
def test_other_times_to_hedge_after_are_refused(after: object) -> None:
    [(field, message)] = problems_of(pool(target="a:1", hedge={"after": after}))
    assert field == "spec.hedge.after"
    assert message.startswith("found ")
    assert "expected a duration such as 20ms, more than 0 and at most 30s, or a percentile" in message


@pytest.mark.parametrize(
    ("percent", "fragment"),
    [
        (0, "found the number 0, expected more than 0; leave out hedge for no hedges"),
        (0.0, "found the number 0.0, expected more"),
    ],
)
def test_a_budget_of_hedges_is_checked(percent: object, fragment: str) -> None:
    [(field, message)] = problems_of(pool(target="a:1", hedge={"budgetPercent": percent}))
    assert field == "spec.hedge.budgetPercent"
    assert fragment in message


@pytest.mark.parametrize("way", [{"command": ["a"]}, {"target": "unix:/a"}, {"target": ["unix-abstract:a"]}])
def test_a_hedge_without_a_second_endpoint_is_a_warning(way: dict[str, Any]) -> None:
    config = load_documents(pool(hedge={}, **way))
    assert config.pools["pods"].hedge == Hedge()
    assert [(warning.field, warning.message) for warning in config.warnings] == [
        ("spec.hedge", "has no effect: the pool has only one endpoint")
    ]


def test_parameters_of_namespaces_where_none_is_known_are_a_warning() -> None:
    worker = {"pool": "pods", "policy": "p", "parametersFrom": {"namespaceAnnotation": "x.example/p"}}
    webhook = {
        "name": "a.x.example",
        "clientConfig": {"worker": worker},
        "rules": [],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    configuration = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "c"},
        "webhooks": [webhook],
    }
    documents = pool(target="unix:/a"), configuration
    (warning,) = load_documents(*documents).warnings
    assert re.search(r':1:\d+: ValidatingWebhookConfiguration "c"$', warning.where)
    assert "no namespace is known" in warning.message
    assert warning.field == "webhooks[0].clientConfig.worker.parametersFrom"
    assert not load_documents(*documents, namespace()).warnings
    assert not load_documents(*documents, gateway(kubernetes={})).warnings


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ca.pem, two pairs (a.pem with its chain, a.key, b.pem, b.key), junk.pem, locked.key."""
    folder = tmp_path_factory.mktemp("certificates")
    ca = trustme.CA()
    ca.cert_pem.write_to_path(folder / "ca.pem")
    for name in ("a", "b"):
        pair = ca.issue_cert(f"{name}.example.com")
        chain = [*pair.cert_chain_pems, ca.cert_pem] if name == "a" else pair.cert_chain_pems
        (folder / f"{name}.pem").write_bytes(b"".join(pem.bytes() for pem in chain))
        pair.private_key_pem.write_to_path(folder / f"{name}.key")
    (folder / "junk.pem").write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    key = load_pem_private_key((folder / "a.key").read_bytes(), None)
    locked = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x"))
    (folder / "locked.key").write_bytes(locked)
    (folder / "tokens").write_text("# callers\n\nsecret-token\n")
    (folder / "passwords").write_text("# callers\nadmin:secret-word\n")
    (folder / "nobody").write_text("# nobody yet\n")
    (folder / "binary").write_bytes(b"\xff\xfe")
    (folder / "no-colon").write_text("# callers\nadmin:x\nsecret-word\n")
    return folder


def load_beside(folder: Path, document: dict[str, Any]) -> Config:
    """Loads the document from a file in *folder*."""
    (folder / "document.json").write_bytes(orjson.dumps(document))
    return load.load([folder / "document.json"])


def problems_beside(folder: Path, document: dict[str, Any]) -> list[tuple[str, str]]:
    with pytest.raises(ConfigError) as caught:
        load_beside(folder, document)
    return [(problem.field, problem.message) for problem in caught.value.problems]


def test_files_are_relative_to_the_file_that_names_them(certificates: Path) -> None:
    tls = {
        "caFile": "ca.pem",
        "certFile": "a.pem",
        "keyFile": str(certificates / "a.key"),
        "serverName": "::1",
    }
    loaded = load_beside(certificates, pool(target="a:1", tls=tls)).pools["pods"].tls
    assert loaded == WorkerTls(
        ca_file=certificates / "ca.pem",
        cert_file=certificates / "a.pem",
        key_file=certificates / "a.key",
        server_name="::1",
    )


@pytest.mark.parametrize(
    ("tls", "field", "fragment"),
    [
        ({"certFile": "a.pem"}, "keyFile", "is required together with certFile"),
        ({"keyFile": "a.key"}, "certFile", "is required together with keyFile"),
        ({"certFile": "a.pem", "keyFile": "b.key"}, "keyFile", "b.key is not the key of the certificate in"),
        ({"certFile": "a.pem", "keyFile": "locked.key"}, "keyFile", "holds an encrypted key"),
        ({"certFile": "a.pem", "keyFile": "ca.pem"}, "keyFile", "holds no PEM private key"),
        ({"certFile": "junk.pem", "keyFile": "a.key"}, "certFile", "holds no PEM certificate"),
        ({"certFile": "tokens", "keyFile": "a.key"}, "certFile", "holds no PEM certificate"),
        ({"certFile": "none", "keyFile": "a.key"}, "certFile", "none cannot be read: No such file"),
    ],
)
def test_a_certificate_must_match_its_key(
    tls: dict[str, str], field: str, fragment: str, certificates: Path
) -> None:
    for document, prefix in ((pool(target="a:1", tls=tls), "spec.tls"), (gateway(tls=tls), "tls")):
        [(where, message)] = problems_beside(certificates, document)
        assert where == f"{prefix}.{field}"
        assert fragment in message


def test_no_message_repeats_a_credential(certificates: Path) -> None:
    authentication = {"tokenFile": "nobody", "basicAuthFile": "no-colon"}
    problems = problems_beside(certificates, gateway(authentication=authentication))
    assert [field for field, _ in problems] == ["authentication.tokenFile", "authentication.basicAuthFile"]
    assert "holds no credential" in problems[0][1]
    assert "line 3 is not USER:PASSWORD" in problems[1][1]
    assert "secret" not in str(problems)


def test_every_field_of_the_gateway_configuration_is_kept(certificates: Path) -> None:
    document = gateway(
        metadata={"name": "gateway"},
        listen="[::]:443",
        adminListen="localhost:9091",
        processes=3,
        tls={
            "certFile": "a.pem",
            "keyFile": "a.key",
            "clientCAFile": "ca.pem",
            "clientNames": ["kube-apiserver"],
        },
        authentication={"tokenFile": "tokens", "basicAuthFile": "passwords"},
        limits={"maxRequestBytes": 1048576, "maxConcurrentReviews": 5, "maxBytesInFlight": 1048576},
        deadlineReserve="1.5s",
        drainSeconds=2.5,
        auditLevel="Request",
    )
    assert load_beside(certificates, document).gateway == GatewaySettings(
        listen="[::]:443",
        admin_listen="localhost:9091",
        processes=3,
        tls=ServerTls(
            certificates / "a.pem", certificates / "a.key", certificates / "ca.pem", ("kube-apiserver",)
        ),
        authentication=Authentication(certificates / "tokens", certificates / "passwords"),
        max_request_bytes=1048576,
        max_concurrent_reviews=5,
        max_bytes_in_flight=1048576,
        deadline_reserve_s=1.5,
        drain_s=2.5,
        audit_level="Request",
    )


@pytest.mark.parametrize(
    ("text", "found"),
    [("1.30", "1.30"), ("v1.36.2", "1.36"), ("1.37.0", "1.37"), ("1.38", "1.37"), ("v1.100", "1.37")],
)
def test_a_version_of_kubernetes_counts_without_its_patch_level(text: str, found: str) -> None:
    settings = load_documents(gateway(kubernetesVersion=text)).gateway
    assert settings.kubernetes_version == found
    assert settings.has_go_types is (found == "1.37")


def test_a_gateway_configuration_is_all_defaults() -> None:
    assert load_documents(gateway()).gateway == GatewaySettings()
    assert load_documents(gateway(tls=None, limits={}, listen=None)).gateway == GatewaySettings()


@pytest.mark.parametrize(
    ("fields", "field", "fragment"),
    [
        ({"listen": "8443"}, "listen", 'found "8443", expected HOST:PORT'),
        ({"listen": ":8443"}, "listen", "0.0.0.0 and [::] stand for all addresses"),
        ({"listen": "::1:8443"}, "listen", "[an IPv6 address]"),
        ({"listen": "a b:8443"}, "listen", "expected HOST:PORT with a name"),
        ({"listen": "a:65536"}, "listen", "a port of at most 65535"),
        ({"listen": "127.0.0.1:9090"}, "adminListen", "the address in listen; expected another one"),
        ({"adminListen": "localhost"}, "adminListen", "expected HOST:PORT"),
        (
            {"limits": {"maxBytesInFlight": 7340031}},
            "limits.maxBytesInFlight",
            "found the number 7340031, expected at least maxRequestBytes (7340032)",
        ),
        ({"limits": {"maxRequests": 0}}, "limits.maxRequests", 'did you mean "maxRequestBytes"?'),
        (
            {"deadlineReserve": "100"},
            "deadlineReserve",
            'found the string "100", expected a duration such as',
        ),
        ({"deadlineReserve": "31s"}, "deadlineReserve", "from 0s to 30s"),
        ({"deadlineReserve": "-1s"}, "deadlineReserve", "from 0s to 30s"),
        *(
            ({"kubernetesVersion": text}, "kubernetesVersion", f'found "{text}", expected a version of Kuber')
            for text in ("1.29", "2.0", "1", "1.36-rc.0", "1.036", "latest")
        ),
        ({"tls": {"clientNames": ["a"]}}, "tls.clientNames", "requires clientCAFile"),
        ({"tls": {"clientCAFile": "none"}}, "tls.clientCAFile", "none cannot be read"),
        ({"tls": {"clientCaFile": "none"}}, "tls.clientCaFile", 'did you mean "clientCAFile"?'),
        ({"authentication": {"tokenFile": "none"}}, "authentication.tokenFile", "none cannot be read"),
        ({"metadata": {"name": "A"}}, "metadata.name", "lower-case"),
        ({"metadata": []}, "metadata", "expected a mapping"),
    ],
)
def test_the_gateway_configuration_is_checked(fields: dict[str, Any], field: str, fragment: str) -> None:
    [(where, message)] = problems_of(gateway(**fields))
    assert where == field
    assert fragment in message


def test_an_empty_client_name_is_refused(certificates: Path) -> None:
    tls = {"clientCAFile": "ca.pem", "clientNames": ["a", ""]}
    [(field, message)] = problems_beside(certificates, gateway(tls=tls))
    assert (field, message) == ("tls.clientNames[1]", "is empty, expected a name")


def test_port_0_can_be_both() -> None:
    settings = load_documents(gateway(listen="127.0.0.1:0", adminListen="127.0.0.1:0")).gateway
    assert settings.listen == settings.admin_listen


def test_a_namespace_keeps_its_document() -> None:
    document = namespace(spec={"finalizers": ["kubernetes"]}, status={"phase": "Active"})
    document["metadata"] |= {"labels": {"team": "a"}, "annotations": {"note": "\u00e4"}, "uid": None}
    loaded = load_documents(document).namespaces["shop"]
    labels = {"team": "a", "kubernetes.io/metadata.name": "shop"}
    assert loaded.labels == labels
    document["metadata"]["labels"] = labels
    assert orjson.loads(loaded.json) == document
    assert loaded.json == orjson.dumps(orjson.loads(loaded.json))


def test_a_namespace_without_labels_has_the_one_with_its_name() -> None:
    loaded = load_documents(namespace()).namespaces["shop"]
    assert (
        loaded.labels
        == orjson.loads(loaded.json)["metadata"]["labels"]
        == {"kubernetes.io/metadata.name": "shop"}
    )


@pytest.mark.parametrize(
    ("fields", "field", "fragment"),
    [
        ({"metadata": None}, "metadata", "is required"),
        ({"metadata": {"name": "a.b"}}, "metadata.name", "at most 63 lower-case"),
        ({"metadata": {"name": "a" * 64}}, "metadata.name", "at most 63 lower-case"),
        ({"metadata": {"name": "a", "labels": {"b": "c d"}}}, "metadata.labels.b", "nothing or at most 63"),
        ({"metadata": {"name": "a", "labels": ["b"]}}, "metadata.labels", "found a list, expected a mapping"),
        ({"spec": "x"}, "spec", "expected a mapping"),
        ({"data": {}}, "data", "unknown field"),
    ],
)
def test_namespaces_are_checked(fields: dict[str, Any], field: str, fragment: str) -> None:
    [(where, message)] = problems_of(namespace(**fields))
    assert where == field
    assert fragment in message


def test_the_first_certificate_of_a_chain_is_the_one_whose_key_has_to_match(certificates: Path) -> None:
    assert len(x509.load_pem_x509_certificates((certificates / "a.pem").read_bytes())) == 2
    tls = {"certFile": "a.pem", "keyFile": "a.key"}
    assert load_beside(certificates, gateway(tls=tls)).gateway.tls.cert_file == certificates / "a.pem"
