"""The front end with the real client: connections, sizes, numbers, and the older version."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.e2e.objects import config_map, metadata, within
from tests.e2e.setups import BehindGateway, Directly, Hook, rule
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.client import Answer
    from tests.e2e.cluster import Cluster

CONFIG_MAPS: Final = within("configmaps")
CREATES: Final = (rule("configmaps", "CREATE"),)
KEPT_IDLE: Final = 25
"""Idle connections that the API server keeps to a Service, for each phase."""
RELEASED: Final = "released"
"""The file in the folder of the gateway until which calls are held."""


def on(**labels: str) -> dict[str, Any]:
    return {"objectSelector": {"matchLabels": labels}}


@pytest.fixture(scope="module")
def behind(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BehindGateway]:
    everything = (rule("configmaps", "CREATE", "UPDATE"),)
    folder = tmp_path_factory.mktemp("front")
    held = {"until": str(folder / RELEASED)}
    hooks = [
        Hook("mutate", "mark.front.test", {"label": "seen"}, everything),
        Hook("validate", "watch.front.test", {}, everything),
        Hook("validate", "held.front.test", held, everything, fields=on(held="yes") | {"timeoutSeconds": 30}),
    ]
    with BehindGateway(cluster, folder, hooks, "front") as setup:
        yield setup


# -- connections ----------------------------------------------------------------------------------


def connections(port: int) -> set[str]:
    """Return the far ends of the connections that are open to *port* of 127.0.0.1 (proc(5))."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {row[2] for row in rows if row[1] == f"0100007F:{port:04X}" and row[3] == "01"}


def test_calls_one_after_another_share_a_connection_for_each_phase(
    behind: BehindGateway, namespace: str
) -> None:
    def create(name: str) -> set[str]:
        answer = behind.cluster.api.create(CONFIG_MAPS.format(namespace=namespace), config_map(name))
        assert answer.status == 201, answer
        return connections(behind.port)

    before = create("first")
    after = [create(f"next-{number}") for number in range(20)]
    assert all(found == before for found in after)


def test_a_burst_gets_a_connection_for_each_call_and_no_error(behind: BehindGateway, namespace: str) -> None:
    """An HTTP/1.1 connection has one call at a time, so most of these connections are new."""

    def create(number: int) -> list[Answer]:
        try:
            labels = {"held": "yes"}
            path = CONFIG_MAPS.format(namespace=namespace)
            return [
                behind.cluster.api.create(path, config_map(f"{number}-{one}", labels)) for one in range(3)
            ]
        finally:
            behind.cluster.api.close()

    with ThreadPoolExecutor(64) as threads:
        created = threads.map(create, range(64))
        eventually(lambda: len(connections(behind.port)) > 2 * KEPT_IDLE)
        (behind.folder / RELEASED).touch()
        answers = [answer for some in created for answer in some]
    assert [answer.status for answer in answers] == [201] * 192
    assert all(answer.document["metadata"]["labels"]["seen"] == "set" for answer in answers)
    # The API server closes the connections that it does not keep, and the gateway drops them.
    eventually(lambda: len(connections(behind.port)) <= 2 * KEPT_IDLE)
    assert "ERROR" not in behind.gateway.log


# -- sizes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "size"),
    [("x", 1_000_000), ("\N{SNOWMAN}", 330_000), ('"', 900_000), ("<", 500_000)],
    ids=["plain", "three-byte", "escaped-in-two", "escaped-in-six"],
)
def test_objects_of_the_maximum_size_are_updated(
    behind: BehindGateway, namespace: str, text: str, size: int
) -> None:
    path = CONFIG_MAPS.format(namespace=namespace)
    assert behind.cluster.api.create(path, config_map("large", key=text * size)).status == 201
    updated = behind.cluster.api.update(f"{path}/large", config_map("large", key="y" + text * (size - 1)))
    assert updated.status == 200, updated.message[:1000]
    assert updated.document["data"]["key"] == "y" + text * (size - 1)
    assert updated.document["metadata"]["labels"] == {"seen": "set"}


def test_the_failure_policy_of_the_entry_decides_for_a_review_above_the_limit(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    denial = {"deny": {"code": 403, "message": "looked at"}}
    secrets = (rule("secrets", "CREATE"),)
    hooks = [
        Hook("validate", "closed.front.test", {}, CREATES, fields={"failurePolicy": "Fail"}),
        Hook("validate", "open.front.test", denial, secrets, fields={"failurePolicy": "Ignore"}),
    ]
    gateway = {"limits": {"maxRequestBytes": 20_000}}
    with BehindGateway(cluster, tmp_path, hooks, "small", gateway=gateway):
        paths = {name: within(name).format(namespace=namespace) for name in ("configmaps", "secrets")}
        refused = cluster.api.create(paths["configmaps"], config_map("large", key="x" * 30_000))
        assert (refused.status, refused.document["reason"]) == (500, "InternalError"), refused
        assert "failed calling webhook" in refused.message
        assert cluster.api.get(f"{paths['configmaps']}/large").status == 404
        assert cluster.api.create(paths["configmaps"], config_map("small", key="x")).status == 201
        for size, status in ((30_000, 201), (1, 403)):
            secret = {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": metadata("s-"),
                "stringData": {"k": "x" * size},
            }
            answer = cluster.api.create(paths["secrets"], secret)
            assert answer.status == status, answer


# -- numbers and texts ----------------------------------------------------------------------------

GROUP: Final = "exact.admission-gateway.test"
READINGS: Final = within("readings", f"{GROUP}/v1")
NUMBERS: Final = """{
  "max": 9223372036854775807, "min": -9223372036854775808, "odd": 9007199254740993,
  "u64": 18446744073709551615, "over": 18446744073709551616, "under": -9223372036854775809,
  "long": 123456789012345678901234567890, "tenth": 0.1, "sum": 0.30000000000000004,
  "third": 0.3333333333333333, "digits": 123456789.123456789123, "zero": 0, "negative": -0.0, "minus": -0,
  "one": 1.0, "exp": 1E2, "plus": 1e+2, "tiny": 5e-324, "least": 2.2250738585072014e-308,
  "most": 1.7976931348623157e308, "e20": 1e20, "e21": 1e21, "e22": 12345678901234567890123,
  "e-6": 0.000001, "e-7": 1e-7, "false": false, "true": true, "null": null
}"""
TEXTS: Final = r"""{
  "html": "<a href=\"x\">&amp;</a>", "escaped": "\u003ca\u003e", "slash": "a\/b~c", "quote": "\\\"",
  "controls": "\u0000\b\f\n\r\t\u001f\u007f\u0085", "separators": "\u2028\u2029", "emoji": "\ud83d\ude80",
  "combining": "e\u0301\u00e9", "bidi": "\u202eabc", "bom": "\ufeff", "noncharacter": "\uffff",
  "": "empty", "a/b~c\"": "key", "\u00e4\ud83d\ude80": "key"
}"""
READING: Final = f"""{{
  "apiVersion": "{GROUP}/v1", "kind": "Reading",
  "metadata": {{"name": "NAME", "labels": {{"exact": "NAME"}}}},
  "spec": {{"list": [0.10, {NUMBERS}, 1e2, {TEXTS}], "numbers": {NUMBERS}, "texts": {TEXTS}}}
}}"""
"""A custom resource with JSON values that a JSON library may change."""
PATCHES: Final[dict[str, object]] = {
    "untouched": [],
    "beside": [{"op": "add", "path": "/metadata/labels/more", "value": "yes"}],
    "copied": [{"op": "copy", "from": "/spec", "path": "/spec/copy"}],
    "moved": [{"op": "move", "from": "/spec/list/1", "path": "/spec/list/3"}],
    "removed": [{"op": "remove", "path": "/spec/list/0"}],
    "inserted": [{"op": "add", "path": "/spec/list/0", "value": {"a": [1, 1.5, None, {}]}}],
    "added": f'[{{"op": "add", "path": "/spec/added", "value": {{"numbers": {NUMBERS}, "texts": {TEXTS}}}}}]',
    "replaced": f'[{{"op": "replace", "path": "/spec", "value": [{NUMBERS}, {TEXTS}]}}]',
    "key": r'[{"op": "add", "path": "/spec/\ud83d\ude80~1~0\"\u0000", "value": "\u2028"}]',
    "tested": [{"op": "test", "path": "/spec/numbers/odd", "value": 9007199254740993}],
    "not-tested": [{"op": "test", "path": "/spec/numbers/odd", "value": 9007199254740992}],
    "infinite": '[{"op": "add", "path": "/spec/infinite", "value": 1e400}]',
}
REFUSED: Final = {"not-tested", "infinite"}


def definition() -> dict[str, Any]:
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": anything}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"readings.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "plural": "readings",
                "singular": "reading",
                "kind": "Reading",
                "listKind": "ReadingList",
            },
            "versions": [version],
        },
    }


@pytest.fixture(scope="module")
def readings(cluster: Cluster) -> Iterator[str]:
    """Return the path of a custom resource without a schema."""
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    assert cluster.api.create(path, definition()).status == 201
    eventually(lambda: cluster.api.get(READINGS.format(namespace="default")).status == 200)
    yield READINGS
    cluster.api.delete(f"{path}/readings.{GROUP}")


def exact_hooks() -> list[Hook]:
    rules = (rule("readings", group=GROUP),)
    hooks = [
        Hook("mutate", f"{name}.exact.test", {"patch": patch}, rules, fields=on(exact=name))
        for name, patch in PATCHES.items()
    ]
    # Its input was written by the gateway if an earlier webhook changed the object.
    hooks.append(Hook("mutate", "last.exact.test", {"label": "last"}, rules))
    return hooks


def stored_texts(cluster: Cluster, namespace: str, readings: str) -> dict[str, Any]:
    """Return the stored readings, with each number as the text that the API server writes."""
    path = readings.format(namespace=namespace)
    found: dict[str, Any] = {}
    for name in PATCHES:
        answer = cluster.api.request("POST", path, READING.replace("NAME", name).encode())
        assert answer.status == (500 if name in REFUSED else 201), (name, answer.message)
        raw = cluster.api.get(f"{path}/{name}").text
        document = json.loads(raw, parse_int=Number, parse_float=Number)
        found[name] = document.get("spec"), document.get("metadata", {}).get("labels")
    return found


class Number(str):
    """A number's text, which equals that text alone."""


def test_numbers_and_strings_of_custom_objects_survive_a_mutation(
    cluster: Cluster, readings: str, tmp_path: Path
) -> None:
    found = []
    for kind, name in ((Directly, "direct"), (BehindGateway, "exact")):
        made = cluster.api.create("/api/v1/namespaces", {"metadata": metadata("test-")})
        with kind(cluster, tmp_path / name, exact_hooks(), name):
            found.append(stored_texts(cluster, made.document["metadata"]["name"], readings))
    directly, behind_gateway = found
    for name in PATCHES:
        assert behind_gateway[name] == directly[name], name
    assert directly["untouched"][0]["numbers"]["odd"] == "9007199254740993"
    assert directly["untouched"][1] == {"exact": "untouched", "last": "set"}
    assert directly["infinite"] == (None, None)


# -- admission.k8s.io/v1beta1 ---------------------------------------------------------------------


class Beta(BehindGateway):
    """A gateway that is registered as one that understands v1beta1 alone."""

    def manifests(self) -> list[dict[str, Any]]:
        documents = super().manifests()
        for document in documents:
            for entry in document["webhooks"]:
                entry["admissionReviewVersions"] = ["v1beta1"]
        return documents


def test_reviews_in_v1beta1_are_answered_in_v1beta1(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    denial = {"deny": {"code": 422, "reason": "Invalid", "message": "old, and refused"}}
    hooks = [
        Hook(
            "mutate", "mark.beta.test", {"label": "seen", "warnings": ["old"]}, CREATES, fields=on(beta="yes")
        ),
        Hook("validate", "deny.beta.test", denial, CREATES, fields=on(deny="please")),
    ]
    path = CONFIG_MAPS.format(namespace=namespace)
    with Beta(cluster, tmp_path, hooks, "beta"):
        created = cluster.api.create(path, config_map("taken", {"beta": "yes"}))
        denied = cluster.api.create(path, config_map("denied", {"deny": "please"}))
    assert (created.status, created.warnings) == (201, ("old",))
    assert created.document["metadata"]["labels"] == {"beta": "yes", "seen": "set"}
    assert (denied.status, denied.document["reason"]) == (422, "Invalid")
    assert denied.message.endswith("denied the request: deny.beta.test: old, and refused")
