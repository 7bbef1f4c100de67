"""A control plane for each version, shared by all tests: what a test registers or makes, it takes away."""

from __future__ import annotations

import os
import signal
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.change import changed_paths
from tests.e2e import landing
from tests.e2e.binaries import VERSIONS, obtain
from tests.e2e.cluster import Cluster
from tests.e2e.objects import GROUP, widget_definition
from tests.e2e.whole import whole_cluster
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.client import Api

CHOSEN = os.environ.get("E2E_VERSIONS", " ".join(VERSIONS)).split()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--landing", action="store_true", help="only what every change has to pass: landing.py")


LEFT_OUT = pytest.StashKey[list[pytest.Item]]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--landing"):
        chosen, config.stash[LEFT_OUT] = landing.select(items, changed_paths())
        config.hook.pytest_deselected(items=[item for item in items if item not in set(chosen)])
        items[:] = chosen


def pytest_report_collectionfinish(config: pytest.Config) -> list[str]:
    files = Counter(item.path.name for item in config.stash.get(LEFT_OUT, []))
    return [
        f"left out of files that the change touches: {number} of {name}" for name, number in files.items()
    ]


def pytest_configure() -> None:
    """End the run on SIGTERM as on SIGINT, so that it stops its processes."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


@pytest.fixture(scope="session", params=CHOSEN)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    binaries = obtain(request.param)
    with Cluster(binaries, tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the files of one test file."""
    return tmp_path_factory.mktemp("whole")


@pytest.fixture(scope="module")
def whole(cluster: Cluster, folder: Path) -> Iterator[Cluster]:
    """A cluster whose Pods run, for the tests of one file."""
    with whole_cluster(cluster.binaries, folder) as whole:
        yield whole


@pytest.fixture(scope="module")
def widgets(cluster: Cluster) -> Iterator[None]:
    """A custom resource with arbitrary content, for the tests of one file."""
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    made = cluster.api.create(definitions, widget_definition())
    assert made.status == 201, made
    lists = [f"/apis/{GROUP}/{version}/widgets" for version in ("v1", "v2")]
    eventually(lambda: all(cluster.api.get(path).status == 200 for path in lists))
    documents = {f"apis/{GROUP}/{version}" for version in ("v1", "v2")}

    def described() -> set[str]:
        return documents.intersection(cluster.api.get("/openapi/v3").document["paths"])

    # Gateways read the index of schemas at their start, and then every five seconds.
    eventually(lambda: described() == documents)
    yield
    definition = f"{definitions}/widgets.{GROUP}"
    cluster.api.delete(definition)
    eventually(lambda: cluster.api.get(definition).status == 404)
    eventually(lambda: not described())


@pytest.fixture
def api(cluster: Cluster) -> Api:
    return cluster.api


@pytest.fixture
def namespace(cluster: Cluster) -> str:
    """A namespace of the test's own. It is emptied by no controller, and so stays until the cluster goes."""
    created = cluster.api.create(
        "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "test-"}}
    )
    assert created.status == 201, created
    name: str = created.document["metadata"]["name"]
    return name
