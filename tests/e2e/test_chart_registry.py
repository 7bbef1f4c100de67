"""The chart is published to a registry as that of a release is, and installed by the documented command."""

from __future__ import annotations

import os
import re
import shlex
from typing import TYPE_CHECKING, Final

import pytest

from deploy.publish import publish
from deploy.registries import HelmChart
from deploy.release import NAME as FILE
from deploy.release import pack_chart
from gateway import __version__
from tests.docs.pages import DOCS
from tests.e2e.binaries import chart_tool, release_tool
from tests.e2e.helm_release import LATEST, Release, try_image, values
from tests.e2e.kubelet.network import missing
from tests.release.rehearsal import start_oci_registry

if TYPE_CHECKING:
    from contextlib import ExitStack
    from pathlib import Path

    from tests.e2e.cluster import Cluster

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"no private network: {missing()}")

NAME: Final = "admission-gateway"


def test_the_chart_of_a_registry_is_installed_and_upgraded(
    whole: Cluster, folder: Path, processes: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, host = start_oci_registry()
    processes.callback(server.stop)
    registry = f"{host}/team"
    file = folder / "chart" / f"{FILE}.tgz"
    pack_chart(file, registry)
    tools = (chart_tool("helm").parent, release_tool("crane").parent)
    monkeypatch.setenv("PATH", os.pathsep.join([*map(str, tools), os.environ["PATH"]]))
    publish([HelmChart(file, registry)], dry_run=False)

    (documented,) = re.findall(r"`(helm install [^`]+)`", (DOCS / "release.md").read_text())
    command = documented.replace("REGISTRY", registry).replace("0.2.0", __version__)
    # The registry of the test has no TLS.
    of_registry = ("--plain-http", "--wait")
    release = Release(whole, folder, NAME, NAME)
    done = release.helm(*shlex.split(command)[1:], *of_registry)
    assert done.returncode == 0, (done, release.describe())
    assert len(release.gateways()) == 3
    assert release.images() == {f"{registry}/admission-gateway:{__version__}"}
    assert try_image(whole, LATEST).status == 201

    upgrade = ("upgrade", NAME, f"oci://{registry}/charts/admission-gateway", "--version", __version__)
    changed = values(__version__)
    done = release.helm(*upgrade, *of_registry, "--reset-then-reuse-values", values=changed)
    assert done.returncode == 0, (done, release.describe())
    assert release.images() == {f"{registry}/admission-gateway:{__version__}"}
    assert try_image(whole, LATEST).status == 403
