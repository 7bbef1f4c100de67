"""``python -m tests.e2e.front_page``: makes the pictures of README in docs/images.

Alice creates the Pod of docs/examples/web.yaml in a cluster with a gateway that has gateway/dev.yaml, and is
denied. The terminal shows that, what ``review`` says to the same file, and what ``decisions`` says to the uid
in the warning. The other pictures show the page of that decision. They hold the text of the page.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.chromium import Chromium
from tests.docs.terminal import terminal, with_text
from tests.e2e.binaries import VERSIONS, obtain
from tests.e2e.cluster import ALICE, NAMESPACE, Cluster
from tests.e2e.setups import BehindGateway
from tests.kit import ROOT, run_command
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterable

IMAGES: Final = ROOT / "docs/images"
TERMINAL: Final = IMAGES / "terminal.svg"
PAGES: Final = {scheme: IMAGES / f"decision-{scheme}.png" for scheme in ("light", "dark")}
SIZE: Final = {"width": 1000, "height": 800}
MOST_BYTES: Final = 200_000
"""Of a picture of a page: everybody who clones the repository gets all of its versions."""
_TITLE: Final = (
    "kubectl create is denied; admission-gateway review shows why, and what would change; "
    "admission-gateway decisions shows what each webhook answered"
)
_EXAMPLE: Final = "docs/examples/web.yaml"
_PODS: Final = "/api/v1/namespaces/shop/pods?dryRun=All"
_VARIES: Final = re.compile(
    r"[0-9a-f]{8}-[0-9a-f-]{27}|\b[0-9a-f]{12}\b|\d+(\.\d+)? m?s\b|[\d-]{10}T[\d:.]+Z"
)


class Session(NamedTuple):
    """What a person sees."""

    terminal: list[str]
    page: str
    """The text of the page of the decision."""
    shots: dict[str, bytes]
    """PNGs of this page, by colour scheme."""


class Samples(BehindGateway):
    """The sample policies behind the gateway. A Pod that they refuse shows whether they are in force."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        kubernetes = {"kubeconfig": str(cluster.kubeconfig())}
        gateway = {"kubernetes": kubernetes, "decisionReference": "Warning"}
        super().__init__(cluster, folder, [], "admission-gateway", gateway=gateway)
        self.hooks = []

    def write_configuration(self) -> None:
        super().write_configuration()
        shutil.copy(ROOT / "gateway/dev.yaml", self.config)

    def register(self) -> None:
        service = f"/api/v1/namespaces/{NAMESPACE}/services/{self.name}"
        self.stack.callback(self.cluster.api.delete, service)
        super().register()

    def shown(self) -> tuple[str, ...]:
        container = {"name": "main", "image": "nginx"}
        pod = {"metadata": {"generateName": "try-"}, "spec": {"containers": [container]}}
        status = self.cluster.api.create(_PODS, {"apiVersion": "v1", "kind": "Pod", **pod}).status
        return ("denied",) if status == 403 else ()

    def _wait_until_in_force(self) -> None:
        eventually(self.shown, "a denied Pod")


def session(cluster: Cluster, folder: Path) -> Session:
    """Be denied in *cluster*, and look why."""
    cluster.api.create("/api/v1/namespaces", {"metadata": {"name": "shop"}})
    with Samples(cluster, folder) as setup, Chromium() as browser:
        denied = cluster.kubectl("create", "-f", _EXAMPLE, user=ALICE, cwd=ROOT).stderr
        found = re.search(r"decisions ([0-9a-f-]{36})", denied)
        assert found, denied
        uid = found[1]
        review = run_command("review", ROOT / _EXAMPLE, "--config", ROOT / "gateway/dev.yaml").stdout
        admin = f"127.0.0.1:{setup.gateway.admin_port}"  # in the picture the default one

        def decisions() -> str:
            return run_command("decisions", uid, "--admin", admin).stdout

        steps = {
            f"kubectl create -f {_EXAMPLE}": denied,
            f"admission-gateway review {_EXAMPLE} --config gateway/dev.yaml": review,
            f"admission-gateway decisions {uid}": eventually(decisions, "the decision"),
        }
        browser.call("Emulation.setScrollbarsHidden", hidden=True)
        shots = {}
        for scheme in PAGES:
            browser.show(**SIZE, scheme=scheme)
            browser.open(f"http://{admin}/decisions/{uid}")
            shots[scheme] = browser.view()
        page = browser.evaluate("document.querySelector('main').innerText")
    return Session(list(_lines(steps.items())), page, shots)


def constant(text: str) -> str:
    """Return *text* without what differs from run to run: uids, digests and times."""
    return _VARIES.sub("…", text)


def main() -> None:
    """Run a session, and write the pictures."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with Cluster(obtain(VERSIONS[0]), folder / "cluster") as cluster:
            found = session(cluster, folder / "gateway")
    IMAGES.mkdir(exist_ok=True)
    TERMINAL.write_text(terminal(_TITLE, found.terminal))
    for scheme, file in PAGES.items():
        file.write_bytes(with_text(found.shots[scheme], found.page))


def _lines(steps: Iterable[tuple[str, str]]) -> Iterable[str]:
    for number, (command, output) in enumerate(steps):
        yield from ([""] if number else [])
        yield f"$ {command}"
        yield from output.rstrip("\n").split("\n")


if __name__ == "__main__":
    main()
