"""From a refused kubectl command to the pages that say why."""

from __future__ import annotations

import json
from html import unescape
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote
from urllib.request import urlopen

import pytest

from tests.e2e.cluster import ALICE
from tests.e2e.compare import Case, namespaces
from tests.e2e.objects import config_map
from tests.e2e.setups import BehindGateway, Hook, rule
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.cluster import Cluster

MESSAGE: Final = "every <workload> names its team"
POLICIES: Final = Case(
    "pages",
    (
        Hook("mutate", "label", {"label": "team"}, (rule("configmaps"),)),
        Hook("validate", "team", {"deny": {"code": 403, "message": MESSAGE}}, (rule("configmaps"),)),
        Hook("validate", "pods", {"deny": {"code": 403, "message": "no"}}, (rule("pods"),)),
    ),
    (),
)


class Pages:
    """The pages of the gateway behind the API server, and a namespace of Alice."""

    def __init__(self, cluster: Cluster, namespace: str, setup: BehindGateway) -> None:
        self.cluster, self.namespace = cluster, namespace
        self._base = f"http://127.0.0.1:{setup.gateway.admin_port}"

    def page(self, path: str) -> str:
        """Return the text of the page at *path*."""
        text: str = urlopen(self._base + path).read().decode()
        return unescape(text)

    def document(self, path: str, posted: bytes | None = None) -> dict[str, Any]:
        """Return the JSON behind the page at *path*."""
        separator = "&" if "?" in path else "?"
        found: dict[str, Any] = json.load(urlopen(f"{self._base}{path}{separator}format=json", posted))
        return found


@pytest.fixture(scope="module")
def pages(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pages]:
    gateway = {"kubernetes": {"kubeconfig": str(cluster.kubeconfig())}}
    named = namespaces(cluster, [POLICIES])
    folder = tmp_path_factory.mktemp("pages")
    with BehindGateway(cluster, folder, list(POLICIES.confined()), gateway=gateway) as setup:
        yield Pages(cluster, named["pages"], setup)


def test_a_denied_command_leads_to_its_page_and_an_explanation_repeats_it(pages: Pages) -> None:
    document = config_map("web", {"for": "team"})
    arguments = ("-n", pages.namespace, "create", "-f", "-")
    shown = pages.cluster.kubectl(*arguments, user=ALICE, stdin=json.dumps(document)).stderr
    assert MESSAGE in shown
    query = f"/decisions?namespace={pages.namespace}&user={ALICE}&name=web&outcome=Denied"
    (denied,) = eventually(lambda: pages.document(query)["decisions"], "the decision")
    assert denied["message"] in shown
    assert denied["webhook"] == "team.pages.test"
    assert "web" in pages.page(query)
    page = pages.page(f"/decisions/{denied['uid']}")
    for text in (
        denied["message"],
        f"CREATE ConfigMap {pages.namespace}/web",
        ALICE,
        "no rule is for CREATE",
    ):
        assert text in page
    hooks = {hook["name"]: hook for hook in pages.document("/")["webhooks"]}
    assert hooks["team.pages.test"]["total"]["denied"] >= 1
    assert "team.pages.test" in pages.page("/")
    cells = pages.document("/namespaces")["cells"]
    assert any(one["namespace"] == pages.namespace and one["denied"] for one in cells)

    explain = f"/explain?namespace={pages.namespace}&user={quote(ALICE)}"
    mutating, validating = pages.document(explain, json.dumps(document).encode())["decisions"]
    assert mutating["finalObject"]["metadata"]["labels"].keys() == {"for", "team"}
    assert validating["message"] == denied["message"]
