"""What ``review`` says is what ``serve`` says, for drawn configurations and reviews.

A gateway in this process reloads one drawn configuration after the other, and answers at its front end. The
commands' gateway starts anew with each. Both use the same worker and, if there is one, the same cluster.
"""

from __future__ import annotations

import asyncio
import base64
import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar
from unittest.mock import AsyncMock

import jsonpatch
import orjson
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from admission_gateway_worker import Denied, PolicyServer, Review
from gateway.server import cluster_follower, image_review
from gateway.server.app import Gateway
from gateway.server.cluster import ClusterOnce, LiveCluster
from gateway.server.kubernetes.schemas import ClusterSchemas
from gateway.server.options import Options
from gateway.tools.offline.gateway import offline_gateway
from tests.core.build import document
from tests.engine.https import post
from tests.kit import PATIENCE_S, free_port
from tests.kubernetes.server import ApiServer
from tests.policies.documents import binding, mutating, policy
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator
    from pathlib import Path

    import pytest

    from gateway.engine.dry_run import DryRun

Json = dict[str, Any]
T = TypeVar("T")

EVERYTHING = {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}
OWN = "admission-gateway.io/v1alpha1"
LIMITS = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"team": "b"}}


def worker() -> PolicyServer:
    """A worker whose policies read parameters, labels and the namespace."""
    server = PolicyServer()
    schema = {"type": "object", "properties": {"team": {"type": "string"}}}

    @server.policy("deny", parameters=schema)
    def deny(review: Review) -> None:
        wanted = review.parameters.get("team", "a")
        if review.object and review.object["metadata"].get("labels", {}).get("team") == wanted:
            raise Denied(f"the team {wanted} is denied")
        review.warn(f"not the team {wanted}")

    @server.policy("label", mutating=True, parameters=schema)
    def label(review: Review) -> None:
        if review.object:
            review.object["metadata"].setdefault("labels", {})["team"] = review.parameters.get("team", "b")

    @server.policy("broken")
    def broken(review: Review) -> None:
        raise ValueError("a bug of the policy")

    return server


# -- drawn configurations ---------------------------------------------------------------------------

TEAMS = st.sampled_from(["a", "b"])
SELECTORS: st.SearchStrategy[Json] = st.just({}) | TEAMS.map(lambda team: {"matchLabels": {"team": team}})
MODES = st.sampled_from(["Enforce", "Warn", "Audit", "Shadow"])
ENFORCE: st.SearchStrategy[Json] = st.sampled_from(
    [
        {},
        {"enforce": {"namespaceSelector": {"matchLabels": {"team": "a"}}}},
        {"enforce": {"percentOfNamespaces": 50}},
        {"enforce": {"after": "2020-01-01T00:00:00Z"}},
        {"enforce": {"after": "2999-01-01T00:00:00Z"}},
    ]
)
CONDITIONS = st.sampled_from(
    [
        [],
        [{"name": "c", "expression": "request.operation != 'DELETE'"}],
        [{"name": "c", "expression": "object.metadata.labels.team == 'a'"}],
        [{"name": "c", "expression": "object.nothing == 'x'"}],
    ]
)


@st.composite
def webhooks(draw: st.DrawFn) -> Json:
    """A configuration of webhooks of one phase."""
    phase = draw(st.sampled_from(["Mutating", "Validating"]))
    name = phase[0].lower()
    hooks = []
    for number in range(draw(st.integers(1, 3))):
        chosen = draw(st.sampled_from(["deny", "label", "deny", "label", "broken"]))
        client: Json = {"pool": "pool", "policy": chosen}
        if chosen != "broken" and draw(st.booleans()):
            client["parameters"] = {"team": draw(TEAMS)}
        hook: Json = {
            "name": f"h{number}.{name}.test",
            "clientConfig": {"worker": client},
            "rules": [EVERYTHING],
            "sideEffects": draw(st.sampled_from(["None", "NoneOnDryRun"])),
            "admissionReviewVersions": ["v1"],
            "failurePolicy": draw(st.sampled_from(["Fail", "Ignore"])),
            "namespaceSelector": draw(SELECTORS),
            "objectSelector": draw(SELECTORS),
            "matchConditions": draw(CONDITIONS),
        }
        mode = draw(MODES)
        if draw(st.booleans()):
            hook["rollout"] = {"mode": mode, **(draw(ENFORCE) if mode != "Enforce" else {})}
            if mode == "Shadow":
                hook["sideEffects"] = "None"
        if phase == "Mutating":
            hook["reinvocationPolicy"] = draw(st.sampled_from(["Never", "IfNeeded"]))
        hooks.append(hook)
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": f"{phase}WebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": hooks,
    }


@st.composite
def exceptions(draw: st.DrawFn) -> Json:
    ends: Json = draw(st.sampled_from([{"permanent": True}, {"expires": "2999-01-01T00:00:00Z"}]))
    who = draw(st.sampled_from([{"users": ["*"]}, {"users": ["ann"]}, {"namespaces": ["shop"]}]))
    named = draw(st.sampled_from(["h0.m.test", "h0.v.test", "h1.v.test"]))
    spec = {"webhooks": [named], "match": who, "reason": "r", "owner": "o", **ends}
    return {"apiVersion": OWN, "kind": "ClusterPolicyException", "metadata": {"name": "e"}, "spec": spec}


@st.composite
def policies(draw: st.DrawFn) -> list[Json]:
    """Admission policies with their bindings, the first perhaps with parameters."""
    found: list[Json] = []
    if draw(st.booleans()):
        expression = draw(
            st.sampled_from(["object.metadata.labels.team != params.data.team", "false", "object.x == 'y'"])
        )
        of = {"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}}
        ref = {"name": draw(st.sampled_from(["limits", "missing"])), "namespace": "shop"}
        missing = draw(st.sampled_from(["Allow", "Deny"]))
        actions = draw(st.sampled_from([["Deny"], ["Warn"], ["Audit"], ["Warn", "Audit"]]))
        fails = draw(st.sampled_from(["Fail", "Ignore"]))
        found.append(policy("with", validations=[expression], failurePolicy=fails, **of))
        ref |= {"parameterNotFoundAction": missing}
        found.append(binding("with", "with", paramRef=ref, validationActions=actions))
    if draw(st.booleans()):
        found += [
            policy("plain", validations=[f"object.metadata.name != '{draw(TEAMS)}'"]),
            binding("plain", "plain"),
        ]
    if draw(st.booleans()):
        value = draw(TEAMS)
        found += mutating("set", f"Object{{metadata: Object.metadata{{labels: {{'team': '{value}'}}}}}}")
    return found


@st.composite
def requests(draw: st.DrawFn) -> Json:
    labels = draw(st.sampled_from([{}, {"team": "a"}, {"team": "b"}]))
    made = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": draw(TEAMS), "labels": labels},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    operation = draw(st.sampled_from(["CREATE", "CREATE", "UPDATE", "DELETE"]))
    return document(
        object=None if operation == "DELETE" else made,
        oldObject=None if operation == "CREATE" else made,
        operation=operation,
        namespace=draw(st.sampled_from(["shop", "office", "unknown"])),
        dryRun=draw(st.booleans()),
        userInfo={"username": draw(st.sampled_from(["ann", "bob"])), "groups": []},
    )


DRAWN = st.tuples(
    st.lists(webhooks(), min_size=1, max_size=2, unique_by=lambda one: one["kind"]),
    st.lists(exceptions(), max_size=1),
    policies(),
    st.booleans(),
).map(lambda found: ([*found[0], *found[1], *found[2]], found[3]))
"""Documents, and whether there is a path for ImageReviews."""


PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
"""Without shrinking: an example takes a tenth of a second."""


# -- both gateways ----------------------------------------------------------------------------------


class ServingGateway:
    """A gateway on a loop of its own, with a worker, perhaps with a cluster."""

    def __init__(self, folder: Path, cluster: ApiServer | None) -> None:
        self.folder, self.cluster = folder / "config", cluster
        self.folder.mkdir()
        self.loop = asyncio.new_event_loop()
        self.worker = worker()
        self.target = f"127.0.0.1:{free_port()}"
        self.options = Options(
            (self.folder,), dev=True, state=folder / "state", listen="127.0.0.1:0", allow_empty=True
        )
        self.applied: set[tuple[str, str]] = set()
        if cluster is not None:
            self.kubeconfig = str(cluster.kubeconfig(folder))
            cluster.put("shop", team="a")
            cluster.put("office", team="b")
            cluster.resources["/api/v1"] = [
                {
                    "name": "configmaps",
                    "kind": "ConfigMap",
                    "namespaced": True,
                    "verbs": ["get", "list", "watch"],
                }
            ]
            cluster.keep("/api/v1/namespaces/shop/configmaps/limits", data=LIMITS["data"])
        self.write([], has_images=False)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def write(self, documents: list[Json], *, has_images: bool) -> None:
        """Make *documents* the configuration; some are custom resources, if there is a cluster."""
        own: Json = {"apiVersion": OWN, "kind": "GatewayConfiguration"}
        if has_images:
            of_images = [
                one for one in documents if one["kind"].startswith("Validating") and "webhooks" in one
            ]
            named = [hook["name"] for one in of_images for hook in one["webhooks"]]
            own |= {"imageReview": {"webhooks": named}} if named and self.cluster is None else {}
        pool = {"apiVersion": OWN, "kind": "WorkerPool", "metadata": {"name": "pool"}}
        pools: list[Json] = [{**pool, "spec": {"target": self.target}}]
        if self.cluster is None:
            spaces = [
                {
                    "apiVersion": "v1",
                    "kind": "Namespace",
                    "metadata": {"name": name, "labels": {"team": team}},
                }
                for name, team in (("shop", "a"), ("office", "b"))
            ]
            needs_params = any("paramKind" in one.get("spec", {}) for one in documents)
            limits = [{**LIMITS, "metadata": {"name": "limits", "namespace": "shop"}}] if needs_params else []
            written = [own, *pools, *spaces, *limits, *documents]
        else:
            own["kubernetes"] = {"kubeconfig": self.kubeconfig, "customResources": True}
            listed = {"apiVersion": "v1", "kind": "ConfigMap", "resource": "configmaps"}
            own["policies"] = {"paramKinds": [listed]}
            written = [own]
            wanted = {(one["kind"], one["metadata"]["name"]): one for one in (*pools, *documents)}
            for kind, name in self.applied - wanted.keys():
                self.cluster.remove(kind, name)
            for one in wanted.values():
                self.cluster.apply({**one, "apiVersion": OWN})
            self.applied = set(wanted)
        (self.folder / "c.yaml").write_text("---\n".join(f"{json.dumps(one)}\n" for one in written))

    async def start(self) -> None:
        await self.worker.start(self.target)
        self.gateway = Gateway(self.options, lambda pool: pool.targets)
        await self.gateway.start(self.options.load(), "127.0.0.1:0")

    async def stop(self) -> None:
        await self.gateway.stop(0.0)
        await self.worker.stop(0.0)

    async def served(self, request: Json) -> list[bytes]:
        """Answer *request* as an API server would have it answered by both phases."""
        answers = []
        for path in ("/mutate", "/validate"):
            answers.append(await post(self.gateway.port, path, request))
            response = orjson.loads(answers[-1])["response"]
            if not response["allowed"]:
                break
            request = {**request, "object": changed(request, response)}
        return answers


def changed(request: Json, response: Json) -> Any:
    """The object after the patch of *response*."""
    if "patch" not in response:
        return request["object"]
    return jsonpatch.apply_patch(request["object"], orjson.loads(base64.b64decode(response["patch"])))


@contextmanager
def serving(folder: Path, cluster: ApiServer | None) -> Iterator[ServingGateway]:
    found = ServingGateway(folder, cluster)
    found.run(found.start())
    try:
        yield found
    finally:
        found.run(found.stop())
        found.loop.run_until_complete(found.loop.shutdown_default_executor())
        found.loop.close()


async def compare(found: ServingGateway, drawn: list[Json], made: list[Json], *, has_images: bool) -> None:
    found.write(drawn, has_images=has_images)
    assert await found.gateway.reload(), found.gateway._warnings()
    async with offline_gateway(found.options.load()) as reviewing:
        engine = found.gateway._engine
        await until(lambda: engine.snapshot is not None and engine.snapshot.digest == reviewing.digest)
        for request in made:
            said: DryRun = await reviewing.review(review_of(request))
            assert await found.served(request) == [answer.body for answer in said.answers]
        if reviewing.paths.of_image_reviews is not None:
            asked = {
                "kind": image_review.KIND,
                "apiVersion": image_review.API_VERSION,
                "spec": {"namespace": "shop", "containers": [{"image": "i"}], "annotations": {}},
            }
            answer = await post(found.gateway.port, "/image-review", asked, is_whole=True)
            said = await reviewing.dry_run(
                image_review.admission_review(orjson.dumps(asked)), [reviewing.paths.of_image_reviews]
            )
            assert (b'"allowed":true' in answer) == said.decision.allowed


def review_of(request: Json) -> bytes:
    return orjson.dumps({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request})


def test_without_a_cluster(tmp_path: Path) -> None:
    with serving(tmp_path, None) as found:

        @given(DRAWN, st.lists(requests(), min_size=1, max_size=4))
        @settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck), phases=PHASES)
        def both_say_the_same(drawn: tuple[list[Json], bool], made: list[Json]) -> None:
            found.run(compare(found, drawn[0], made, has_images=drawn[1]))

        both_say_the_same()


def test_with_a_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_follower, "SETTLE_S", 0.01)
    for source in (LiveCluster, ClusterOnce):
        monkeypatch.setattr(source, "_within_s", PATIENCE_S)
    # This API server has no OpenAPI documents to wait for.
    monkeypatch.setattr(ClusterSchemas, "wait_until_synced", AsyncMock())
    with ApiServer() as server, serving(tmp_path, server) as found:

        @given(DRAWN, st.lists(requests(), min_size=1, max_size=4))
        @settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck), phases=PHASES)
        def both_say_the_same(drawn: tuple[list[Json], bool], made: list[Json]) -> None:
            found.run(compare(found, drawn[0], made, has_images=False))

        both_say_the_same()
