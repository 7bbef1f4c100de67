"""Laws of loading: invalid input raises only ``ConfigError``; a loaded configuration loads again."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import orjson
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gateway.base.errors import ConfigError
from gateway.pure.core.durations import format_duration
from gateway.pure.core.webhook import WorkerRef
from tests.config.documents import load_documents, load_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.base.errors import Problem
    from gateway.config.kinds.gateway_configuration import GatewaySettings
    from gateway.config.kinds.worker_pool import Hedge, WorkerPool
    from gateway.config.merge.model import Config
    from gateway.pure.core.labels import Selector
    from gateway.pure.core.webhook import HttpsClient, Webhook

labels = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,5}[a-z0-9])?", fullmatch=True)
subdomains = st.lists(labels, min_size=1, max_size=3).map(".".join)
label_values = st.from_regex(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,5}[A-Za-z0-9])?)?", fullmatch=True)
label_keys = st.builds(lambda prefix, name: prefix + name, subdomains.map("{}/".format) | st.just(""), labels)
string_maps = st.dictionaries(label_keys, label_values, max_size=3)
ports = st.integers(1, 65535)


def some_of(**optional: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional={name: st.none() | values for name, values in optional.items()})


def unique(values: st.SearchStrategy[str]) -> st.SearchStrategy[list[str]]:
    return st.lists(values, min_size=1, max_size=3, unique=True)


expressions = st.builds(
    lambda key, operator, values: (
        {"key": key, "operator": operator} | ({"values": values} if operator.endswith("In") else {})
    ),
    label_keys,
    st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]),
    unique(label_values),
)
selectors = some_of(matchLabels=string_maps, matchExpressions=st.lists(expressions, max_size=2))
rules = st.builds(
    lambda required, optional: required | optional,
    st.fixed_dictionaries(
        {
            "operations": unique(st.sampled_from(["CREATE", "UPDATE", "DELETE", "CONNECT"])) | st.just(["*"]),
            "apiGroups": unique(subdomains | st.just("")) | st.just(["*"]),
            "apiVersions": unique(labels) | st.just(["*"]),
            "resources": unique(labels)
            | st.just(["*/*"])
            | st.just(["pods", "*"])
            | st.just(["*", "a/*", "b/c"]),
        }
    ),
    some_of(scope=st.sampled_from(["Cluster", "Namespaced", "*"])),
)


urls = st.builds(
    "https://{}{}".format,
    st.builds("{}:{}".format, subdomains, ports),
    st.sampled_from(["", "/", "/a/", "/a//b/../c", "/a%20b/%C3%A9"]),
)
services = st.builds(
    lambda required, more: required | more,
    st.fixed_dictionaries({"name": subdomains, "namespace": subdomains}),
    some_of(port=ports, path=st.sampled_from(["", "/", "/a/b.c/"])),
)


def webhooks(pools: list[str], *, mutating: bool, beta: bool) -> st.SearchStrategy[dict[str, Any]]:
    optional: dict[str, st.SearchStrategy[Any]] = {
        "failurePolicy": st.sampled_from(["Fail", "Ignore"]),
        "matchPolicy": st.sampled_from(["Exact", "Equivalent"]),
        "timeoutSeconds": st.integers(1, 30),
        "namespaceSelector": selectors,
        "objectSelector": selectors,
    }
    if mutating:
        optional["reinvocationPolicy"] = st.sampled_from(["Never", "IfNeeded"])
    side_effects = ["None", "NoneOnDryRun", "Some", "Unknown"][: 4 if beta else 2]
    worker = st.fixed_dictionaries(
        {"pool": st.sampled_from(pools), "policy": st.text(min_size=1, max_size=5)},
        optional={
            "parameters": st.dictionaries(st.text(max_size=3), st.integers(0, 9) | st.text(max_size=3)),
            "parametersFrom": st.builds(lambda key: {"namespaceAnnotation": key}, label_keys),
        },
    )
    required = st.fixed_dictionaries(
        {
            "clientConfig": st.one_of(
                st.fixed_dictionaries({"worker": worker}),
                st.fixed_dictionaries({"url": urls}),
                st.fixed_dictionaries({"service": services}),
            ),
            "rules": st.lists(rules, max_size=3),
            "sideEffects": st.sampled_from(side_effects),
            "admissionReviewVersions": st.permutations(["v1", "v1beta1", "v2"]),
        }
    )
    return st.builds(lambda some, more: some | more, required, some_of(**optional))


@st.composite
def configurations(draw: st.DrawFn, pools: list[str]) -> dict[str, Any]:
    mutating, beta = draw(st.booleans()), draw(st.booleans())
    hooks = draw(st.lists(webhooks(pools, mutating=mutating, beta=beta), max_size=3))
    return {
        "apiVersion": f"admissionregistration.k8s.io/{'v1beta1' if beta else 'v1'}",
        "kind": f"{'Mutating' if mutating else 'Validating'}WebhookConfiguration",
        "metadata": {"name": draw(subdomains), "labels": draw(string_maps)},
        "webhooks": [{"name": f"w{index}.example.com"} | hook for index, hook in enumerate(hooks)],
    }


hosts = (
    subdomains.map("{}.svc".format) | st.ip_addresses(v=4).map(str) | st.ip_addresses(v=6).map("[{}]".format)
)
targets = st.builds("{}{}:{}".format, st.sampled_from(["dns:///", "dns:", ""]), hosts, ports) | st.from_regex(
    r"unix:/[a-z]{1,20}", fullmatch=True
)
specs = st.builds(
    lambda way, more: way | more,
    st.fixed_dictionaries({"target": targets})
    | st.fixed_dictionaries({"target": unique(targets)})
    | st.fixed_dictionaries({"command": st.lists(st.from_regex(r"[^\0]{1,5}", fullmatch=True), min_size=1)}),
    some_of(
        transport=st.sampled_from(["Auto", "Stream", "Unary"]),
        maxInFlight=st.integers(1, 5000),
        hedge=some_of(
            after=st.integers(1, 30_000_000_000).map(lambda ns: format_duration(ns / 1e9))
            | st.floats(50, 100, exclude_max=True).map(lambda p: f"p{int(p * 1e4) / 1e4}"),
            budgetPercent=st.floats(0, 100, exclude_min=True) | st.integers(1, 100),
        ),
    ),
)
gateways = some_of(
    listen=st.builds("{}:{}".format, hosts, st.integers(1, 30000)),
    adminListen=st.builds("{}:{}".format, hosts, st.integers(30001, 65535)),
    processes=st.integers(1, 64),
    limits=some_of(
        maxRequestBytes=st.integers(1024, 2**26),
        maxConcurrentReviews=st.integers(1, 10000),
        maxBytesInFlight=st.integers(2**26, 2**40),
    ),
    deadlineReserve=st.integers(0, 30_000_000_000).map(lambda ns: format_duration(ns / 1e9)),
    drainSeconds=st.integers(0, 3600) | st.floats(0, 3600),
    auditLevel=st.sampled_from(["None", "Metadata", "Request"]),
    decisionReference=st.sampled_from(["None", "Warning", "Message"]),
    conflicts=st.sampled_from(["Allow", "Reject"]),
)


@st.composite
def wholes(draw: st.DrawFn) -> list[dict[str, Any]]:
    gateway = "admission-gateway.io/v1alpha1"
    pools = draw(unique(subdomains))
    documents = [
        {"apiVersion": gateway, "kind": "WorkerPool", "metadata": {"name": pool}, "spec": draw(specs)}
        for pool in pools
    ]
    documents += draw(
        st.lists(
            configurations(pools), max_size=3, unique_by=lambda each: (each["kind"], each["metadata"]["name"])
        )
    )
    if draw(st.booleans()):
        documents.append({"apiVersion": gateway, "kind": "GatewayConfiguration"} | draw(gateways))
    for name in draw(st.lists(labels, max_size=2, unique=True)):
        metadata = {"name": name, "labels": draw(string_maps)}
        documents.append({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    return draw(st.permutations(documents))


def comparable(config: Config) -> object:
    """The configuration as plain values: webhooks compare by identity, warnings and clients name files."""
    warnings = sorted((warning.field, warning.message) for warning in config.warnings)
    values = dataclasses.asdict(config, dict_factory=lambda pairs: dict(p for p in pairs if p[0] != "place"))
    return values | {"warnings": warnings, "source": b"", "documents": {}}


def dumped(config: Config) -> list[dict[str, Any]]:
    """Documents with all values of *config*, also defaults."""
    documents = [orjson.loads(namespace.json) for namespace in config.namespaces.values()]
    documents += [dumped_pool(pool) for pool in config.pools.values()]
    for phase, name in sorted(config.configurations):
        hooks = config.mutating if phase == "mutate" else config.validating
        documents.append(
            {
                # Only the older version allows every value of sideEffects.
                "apiVersion": "admissionregistration.k8s.io/v1beta1",
                "kind": f"{'Mutating' if phase == 'mutate' else 'Validating'}WebhookConfiguration",
                "metadata": {"name": name},
                "webhooks": [dumped_webhook(hook) for hook in hooks if hook.configuration == name],
            }
        )
    return [*documents, dumped_gateway(config.gateway)]


def dumped_pool(pool: WorkerPool) -> dict[str, Any]:
    way = {"target": list(pool.targets)} if pool.targets else {"command": list(pool.command)}
    return {
        "apiVersion": "admission-gateway.io/v1alpha1",
        "kind": "WorkerPool",
        "metadata": {"name": pool.name},
        "spec": way
        | {"transport": pool.transport, "maxInFlight": pool.max_in_flight}
        | ({} if pool.hedge is None else {"hedge": dumped_hedge(pool.hedge)}),
    }


def dumped_hedge(hedge: Hedge) -> dict[str, Any]:
    after = f"p{hedge.percentile}" if hedge.after_s is None else format_duration(hedge.after_s)
    return {"after": after, "budgetPercent": hedge.budget_percent}


def dumped_gateway(settings: GatewaySettings) -> dict[str, Any]:
    return {
        "apiVersion": "admission-gateway.io/v1alpha1",
        "kind": "GatewayConfiguration",
        "listen": settings.listen,
        "adminListen": settings.admin_listen,
        "processes": settings.processes,
        "limits": {
            "maxRequestBytes": settings.max_request_bytes,
            "maxConcurrentReviews": settings.max_concurrent_reviews,
            "maxBytesInFlight": settings.max_bytes_in_flight,
        },
        "deadlineReserve": format_duration(settings.deadline_reserve_s),
        "drainSeconds": settings.drain_s,
        "auditLevel": settings.audit_level,
        "decisionReference": settings.decision_reference,
        "conflicts": settings.conflicts,
    }


def dumped_client(client: WorkerRef | HttpsClient) -> dict[str, Any]:
    if not isinstance(client, WorkerRef):
        return {"url": client.url}
    worker: dict[str, Any] = {"pool": client.pool, "policy": client.policy}
    if client.parameters:
        worker["parameters"] = orjson.loads(client.parameters)
    if client.parameters_annotation:
        worker["parametersFrom"] = {"namespaceAnnotation": client.parameters_annotation}
    return {"worker": worker}


def dumped_webhook(hook: Webhook) -> dict[str, Any]:
    document = {
        "name": hook.name,
        "clientConfig": dumped_client(hook.clients[0]),
        "admissionReviewVersions": [hook.review_version],
        "rules": [
            {
                "operations": rule.operations,
                "apiGroups": rule.api_groups,
                "apiVersions": rule.api_versions,
                "resources": rule.resources,
                "scope": rule.scope,
            }
            for rule in hook.rules
        ],
        "namespaceSelector": dumped_selector(hook.namespace_selector),
        "objectSelector": dumped_selector(hook.object_selector),
        "failurePolicy": hook.failure_policy,
        "matchPolicy": hook.match_policy,
        "sideEffects": hook.side_effects,
        "timeoutSeconds": hook.timeout_s,
    }
    return document | ({"reinvocationPolicy": hook.reinvocation_policy} if hook.phase == "mutate" else {})


def dumped_selector(selector: Selector) -> dict[str, Any]:
    return {
        "matchExpressions": [
            {"key": each.key, "operator": each.operator, "values": sorted(each.values)}
            for each in selector.requirements
        ]
    }


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=30)
@given(documents=wholes())
def test_a_configuration_that_is_written_and_loaded_is_equal(documents: list[dict[str, Any]]) -> None:
    config = load_documents(*documents)
    assert len(config.configurations) + len(config.pools) + len(config.namespaces) >= len(documents) - 1
    assert comparable(load_documents(*dumped(config))) == comparable(config)


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=30)
@given(documents=wholes(), data=st.data())
def test_the_order_of_documents_is_irrelevant(documents: list[dict[str, Any]], data: st.DataObject) -> None:
    shuffled = data.draw(st.permutations(documents))
    assert comparable(load_documents(*shuffled)) == comparable(load_documents(*documents))


NAMES = st.sampled_from(
    [
        *("apiVersion", "kind", "metadata", "name", "labels", "annotations", "webhooks", "clientConfig"),
        *(
            "worker",
            "pool",
            "policy",
            "parameters",
            "parametersFrom",
            "namespaceAnnotation",
            "url",
            "service",
            "caBundle",
            "rules",
            "operations",
            "apiGroups",
        ),
        *("apiVersions", "resources", "scope", "namespaceSelector", "objectSelector", "matchLabels"),
        *("matchExpressions", "key", "operator", "values", "matchConditions", "expression", "sideEffects"),
        *("timeoutSeconds", "admissionReviewVersions", "spec", "target", "command", "transport", "tls"),
        *("caFile", "certFile", "keyFile", "serverName", "listen", "processes", "limits"),
        *("deadlineReserve", "drainSeconds", "items", "authentication", "tokenFile", "clientNames"),
        *("port", "path", "namespace", "hedge", "after", "budgetPercent"),
    ]
)
WORDS = st.sampled_from(
    [
        *("v1", "List", "Namespace", "WorkerPool", "GatewayConfiguration", "a", "*", "*/*", "a/*", "In"),
        *("dns://", "unix:", "https://", "https://[", "MutatingWebhookConfiguration"),
        *("ValidatingWebhookConfigurationList", "1h", "[::]:1", "admissionregistration.k8s.io/v1"),
        *("admission-gateway.io/v1alpha1", "", ".", "/", "\u0000", "ipv6:[", "None"),
    ]
)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | WORDS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(NAMES | st.text(max_size=3), inner, max_size=6)
    ),
    max_leaves=30,
)
KINDS = st.sampled_from(
    [
        ("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration"),
        ("admissionregistration.k8s.io/v1beta1", "ValidatingWebhookConfiguration"),
        ("admission-gateway.io/v1alpha1", "WorkerPool"),
        ("admission-gateway.io/v1alpha1", "GatewayConfiguration"),
        ("v1", "Namespace"),
        ("v1", "List"),
    ]
)


def loads_or_is_refused(load: Callable[[], Config]) -> None:
    problems: tuple[Problem, ...] = ()
    try:
        load()
    except ConfigError as error:
        problems = error.problems
        is_refused = True
    else:
        is_refused = False
    assert is_refused == bool(problems)
    assert all(problem.where and problem.message and str(problem).isprintable() for problem in problems)


def serialisable(document: object) -> bool:
    try:
        orjson.dumps(document)
    except TypeError:
        return False
    return True


@given(documents=st.lists(anything.filter(serialisable), max_size=2))
def test_any_document_loads_or_is_refused(documents: list[object]) -> None:
    loads_or_is_refused(lambda: load_documents(*documents))


@given(kind=KINDS, fields=st.dictionaries(NAMES, anything, max_size=6).filter(serialisable))
def test_any_content_of_a_known_kind_loads_or_is_refused(
    kind: tuple[str, str], fields: dict[str, Any]
) -> None:
    loads_or_is_refused(lambda: load_documents(fields | {"apiVersion": kind[0], "kind": kind[1]}))


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=30)
@given(documents=wholes(), data=st.data())
def test_any_change_within_a_good_configuration_loads_or_is_refused(
    documents: list[dict[str, Any]], data: st.DataObject
) -> None:
    place: Any = documents
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(keys))
        inner = place[key]
        if isinstance(inner, dict | list) and inner and data.draw(st.integers(0, 4)):
            place = inner
            continue
        place[key] = data.draw(anything.filter(serialisable))
        break
    loads_or_is_refused(lambda: load_documents(*documents))


@given(
    content=st.binary(max_size=100) | st.text(max_size=60).map(str.encode),
    name=st.sampled_from(["a.yaml", "a.json"]),
)
@example(content=b"\xff\xfe", name="a.yaml")
@example(content=b"a: \x00", name="a.yaml")
@example(content=b"&a [*a]", name="a.yaml")
def test_any_bytes_load_or_are_refused(content: bytes, name: str) -> None:
    loads_or_is_refused(lambda: load_text(content, name))


@given(content=st.binary(max_size=50), field=st.sampled_from(["tls", "authentication"]))
@example(content=b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", field="tls")
@example(content=b"-----BEGIN PRIVATE KEY-----\nMAA=\n-----END PRIVATE KEY-----\n", field="tls")
@example(content=b"-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n", field="tls")
def test_any_bytes_in_a_file_that_is_named_are_accepted_or_refused(content: bytes, field: str) -> None:
    loads_or_is_refused(lambda: load_text(content, "secret.pem"))
    names = {"tls": ("certFile", "keyFile", "clientCAFile"), "authentication": ("tokenFile", "basicAuthFile")}
    document = {
        "apiVersion": "admission-gateway.io/v1alpha1",
        "kind": "GatewayConfiguration",
        field: dict.fromkeys(names[field], "secret.pem"),
    }
    loads_or_is_refused(lambda: load_text(orjson.dumps(document)))
