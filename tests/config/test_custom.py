"""Custom resources beside files: which valid, invalid, changed and deleted resources are in force."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.kinds.worker_pool import WorkerPool
from gateway.config.merge.custom_resource import CustomResource, read_resource
from gateway.config.merge.merged import Merged, merge
from gateway.config.merge.model import Config
from gateway.pure.core.webhook import HttpsClient, WorkerRef

RULE = {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}
POOL, MUTATING, VALIDATING = "WorkerPool", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"


def hook(name: str = "a.hooks.test", pool: str = "p", **fields: Any) -> dict[str, Any]:
    return {
        "name": name,
        "clientConfig": {"worker": {"pool": pool, "policy": "x"}},
        "rules": [RULE],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        **fields,
    }


def resource(kind: str, name: str, /, uid: str = "u", generation: int = 1, **content: Any) -> CustomResource:
    metadata = {"name": name, "uid": uid, "generation": generation}
    return CustomResource(kind, name, {"kind": kind, "metadata": metadata, **content})


def pool(name: str = "p", target: str = "workers:1", **spec: Any) -> CustomResource:
    return resource(POOL, name, spec={"target": target, **spec})


def validating(name: str = "v", *hooks: dict[str, Any], **more: Any) -> CustomResource:
    return resource(VALIDATING, name, webhooks=list(hooks or [hook()]), **more)


def reasons(merged: Merged) -> dict[str, str]:
    return {one.resource.name: one.reason for one in merged.statuses}


def asked(merged: Merged) -> list[tuple[str, str]]:
    return [
        (one.name, one.client.pool) for one in merged.config.validating if isinstance(one.client, WorkerRef)
    ]


def test_resources_and_files_are_one_configuration_in_the_order_of_names() -> None:
    files = merge(Config(), [pool("f"), validating("m", hook("m.hooks.test", "f"))], None).config
    both = merge(files, [validating("z", hook("z.hooks.test", "f")), pool(), validating("a")], None)
    assert [one.configuration for one in both.config.validating] == ["a", "m", "z"]
    assert set(both.config.pools) == {"f", "p"}
    assert both.config.configurations == {("validate", name) for name in "amz"}
    assert reasons(both) == {"a": "Accepted", "p": "Accepted", "z": "Accepted"}


def test_an_unused_pool_is_validated_but_not_connected_to() -> None:
    merged = merge(Config(), [pool("idle"), pool("bad", target="nonsense")], None)
    assert merged.config.pools == {}
    assert reasons(merged) == {"idle": "Accepted", "bad": "Invalid"}


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"command": ["sh", "-c", "id"]}, "spec.command"),
        ({"target": "a:1", "command": ["sh"]}, "spec.command"),
        ({"target": "unix:/run/docker.sock"}, "spec.target"),
        ({"target": "unix-abstract:x"}, "spec.target"),
        ({"targets": ["a:1", "unix:///run/x"]}, "spec.targets[1]"),
        ({"target": "a:1", "tls": {"caFile": "/etc/shadow"}}, "spec.tls.caFile"),
        ({"target": "a:1", "tls": {"certFile": "/a", "keyFile": "/b"}}, "spec.tls.keyFile"),
        ({"target": "a:1", "tls": {"caBundle": "bm9uZQ=="}}, "spec.tls.caBundle"),
    ],
)
def test_a_pool_of_the_cluster_cannot_use_files_or_sockets(spec: dict[str, Any], path: str) -> None:
    merged = merge(Config(), [resource(POOL, "p", spec=spec), validating()], None)
    problems = {one.resource.name: [problem.field for problem in one.problems] for one in merged.statuses}
    assert path in problems["p"]
    assert merged.config.pools == {}


def test_no_file_is_read_for_a_custom_resource(tmp_path: Any) -> None:
    """Otherwise the message would show its author whether the file exists."""
    texts = set()
    for file in (tmp_path / "missing", tmp_path):
        read = read_resource(pool(tls={"caFile": str(file), "certFile": str(file), "keyFile": str(file)}))
        texts.add(tuple(one.message for one in read.problems))
    assert len(texts) == 1


def test_servers_of_custom_resources_are_marked() -> None:
    client_config = {"url": "https://h.example"}
    merged = merge(Config(), [validating("v", hook(clientConfig=client_config))], None)
    (webhook,) = merged.config.validating
    assert webhook.client == HttpsClient("https://h.example/", is_custom=True)


def test_a_custom_resource_cannot_take_a_name_of_a_file() -> None:
    files = Config(
        pools={"p": WorkerPool("p", ("workers:1",))}, configurations=frozenset({("validate", "v")})
    )
    before = merge(Config(), [pool(target="evil:1"), validating()], None)
    for earlier in (None, before):
        merged = merge(files, [pool(target="evil:1"), validating()], earlier)
        assert reasons(merged) == {"p": "NameInFiles", "v": "NameInFiles"}
        assert merged.config == files


def test_the_last_valid_version_stays_in_force() -> None:
    good = merge(Config(), [pool(), validating()], None)
    bad = [pool(target="nonsense"), validating("v", hook(timeoutSeconds=99))]
    merged = merge(Config(), bad, good)
    assert reasons(merged) == {"p": "Invalid", "v": "Invalid"}
    assert merged.config == good.config
    assert [one.effect for one in merged.statuses if one.resource.name == "v"] == [
        "generation 1 stays in force"
    ]
    mended = merge(Config(), [pool(target="workers:2"), validating()], merged)
    assert set(reasons(mended).values()) == {"Accepted"}
    assert mended.config.pools["p"].targets == ("workers:2",)


def test_the_last_valid_version_of_a_deleted_object_is_not_used() -> None:
    good = merge(Config(), [pool(), validating()], None)
    again = merge(Config(), [pool(), validating("v", hook(timeoutSeconds=99), uid="other")], good)
    assert [one[1] for one in asked(again)] == ["for the refused ValidatingWebhookConfiguration"]


def test_webhooks_fail_after_their_pool_is_deleted() -> None:
    good = merge(Config(), [pool(), validating()], None)
    without_pool = merge(Config(), [validating()], good)
    assert reasons(without_pool) == {"v": "NoWorkerPool"}
    assert asked(without_pool) == [("a.hooks.test", "p")]
    assert without_pool.config.pools == {}
    assert merge(Config(), [pool()], good).config == Config()


def test_identified_webhooks_of_a_configuration_that_was_never_valid_fail_closed() -> None:
    broken = [
        hook("one.hooks.test", timeoutSeconds=99),
        hook("two.hooks.test"),
        hook("three.hooks.test", rules=[{**RULE, "operations": ["WRITE"]}]),
        hook("four.hooks.test", objectSelector={"matchLabels": {"no label": "x"}}),
        hook("five.hooks.test", failurePolicy="Maybe"),
        hook("six.hooks.test", failurePolicy="Ignore"),
        hook("no-name"),
    ]
    merged = merge(Config(), [pool(), validating("v", *broken)], None)
    assert [(name, of) for name, of in asked(merged) if of == "p"] == []
    assert [(one.name, one.failure_policy) for one in merged.config.validating] == [
        ("one.hooks.test", "Fail"),
        ("two.hooks.test", "Fail"),
        ("six.hooks.test", "Ignore"),
    ]
    assert merged.statuses[0].effect == "3 of its webhooks fail by their failurePolicy, 4 are inactive"


def test_webhooks_fail_closed_until_their_pool_exists() -> None:
    merged = merge(Config(), [validating("v", hook(pool="pods")), pool("pod")], None)
    (status,) = [one for one in merged.statuses if one.resource.name == "v"]
    (problem,) = status.problems
    assert problem.field == "webhooks[0].clientConfig.worker.pool"
    assert problem.message == 'there is no WorkerPool "pods" in force; did you mean "pod"?'
    assert asked(merged)[0][1] == "for the refused ValidatingWebhookConfiguration"
    there = merge(Config(), [validating("v", hook(pool="pods")), pool("pods")], merged)
    assert asked(there) == [("a.hooks.test", "pods")]


def test_only_webhooks_of_the_cluster_can_use_pools_of_both_origins() -> None:
    files = Config(pools={"f": WorkerPool("f", ("workers:1",))})
    assert reasons(merge(files, [validating("v", hook(pool="f"))], None)) == {"v": "Accepted"}


def test_an_unchanged_resource_is_not_read_again() -> None:
    """A written status changes the object, but not the configuration."""
    resources = [pool(), validating(), validating("w", hook("w.hooks.test", timeoutSeconds=0))]
    first = merge(Config(), resources, None)
    newer = [
        CustomResource(one.kind, one.name, {**one.document, "status": {"conditions": [{"type": "Ready"}]}})
        for one in resources
    ]
    second = merge(Config(), newer, first)
    assert second.config == first.config
    assert [one.resource for one in second.statuses] == [newer[1], newer[2], newer[0]]


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.just("p") | st.just("a.hooks.test"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "name",
                    "webhooks",
                    "spec",
                    "target",
                    "targets",
                    "tls",
                    "rules",
                    "clientConfig",
                    "worker",
                    "pool",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
documents = st.dictionaries(st.sampled_from(["spec", "webhooks", "status", "other"]), values)
steps = st.lists(
    st.dictionaries(
        st.sampled_from([(POOL, "p"), (POOL, "q"), (VALIDATING, "v"), (MUTATING, "v")]),
        st.tuples(st.sampled_from("ab"), st.one_of(st.sampled_from(["good", "bad", "poolless"]), documents)),
    ),
    max_size=5,
)


def _made(kind: str, name: str, uid: str, content: Any) -> CustomResource:
    if isinstance(content, dict):
        return resource(kind, name, uid=uid, **content)
    if kind == POOL:
        return resource(kind, name, uid=uid, spec={"target": "w:1" if content == "good" else "bad"})
    fields: dict[str, Any] = {"timeoutSeconds": 99} if content == "bad" else {}
    return resource(
        kind, name, uid=uid, webhooks=[hook(pool="z" if content == "poolless" else "p", **fields)]
    )


@given(steps=steps)
def test_resources_do_not_affect_each_other(steps: list[dict[Any, Any]]) -> None:
    before: Merged | None = None
    for step in steps:
        resources = [_made(kind, name, uid, content) for (kind, name), (uid, content) in step.items()]
        merged = merge(Config(), resources, before)
        # Order of arrival does not count.
        assert reasons(merge(Config(), resources[::-1], before)) == reasons(merged)
        for status in merged.statuses:
            alone = read_resource(status.resource)
            if status.reason == "Accepted":
                assert not alone.problems
            elif status.reason == "Invalid":
                assert alone.problems == status.problems
            else:
                assert status.reason == "NoWorkerPool"
                assert not alone.problems
        # Nothing is in force of a resource that is not there.
        there = {(one.kind, one.name) for one in resources}
        kinds = {"mutate": MUTATING, "validate": VALIDATING}
        for one in (*merged.config.mutating, *merged.config.validating):
            assert (kinds[one.phase], one.configuration) in there
        before = merged
