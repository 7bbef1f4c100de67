"""Makes ``manifest.yaml``, the base for kubectl and kustomize, from the chart: ``make manifests``.

    python -m deploy.render PATH_OF_HELM

The labels that only Helm needs are left out: without them the selectors are those of earlier versions.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

from deploy.chart_values import CHART
from deploy.monitoring import ROOT

MANIFEST: Final = ROOT / "deploy" / "manifest.yaml"
VALUES: Final = ROOT / "deploy" / "manifest-values.yaml"
_NAME: Final = "admission-gateway"
_LABELS: Final = r"helm\.sh/chart|app\.kubernetes\.io/(instance|version|managed-by|part-of|component)"
_OF_HELM: Final = re.compile(rf"^(# Source: .*| *({_LABELS}): .*|)\n", re.MULTILINE)
_HEADER: Final = """\
# The gateway with the sample policies, in a namespace of its own. Nothing calls it until registration.yaml is
# applied too. docs/install.md has the steps. Needs Kubernetes 1.30 or newer (preStop sleep). Made by
# `make manifests` from the chart and manifest-values.yaml: change those.
apiVersion: v1
kind: Namespace
metadata:
  name: admission-gateway
  labels:
    # The API server sets this label on every namespace. registration.yaml excludes this namespace by it, so
    # that the gateway's own pods never depend on the gateway.
    kubernetes.io/metadata.name: admission-gateway
    pod-security.kubernetes.io/enforce: restricted
"""


def template(helm: Path, *arguments: str) -> str:
    """Return what *helm* renders of the chart, in the release and namespace ``admission-gateway``.

    Raises:
        subprocess.CalledProcessError: it refuses to; the reason is in its ``stderr``.
    """
    command = [str(helm), "template", _NAME, str(CHART), f"--namespace={_NAME}", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout  # noqa: S603


def manifest(helm: Path) -> str:
    """Return the content of ``manifest.yaml``."""
    return _HEADER + _OF_HELM.sub("", template(helm, f"--values={VALUES}"))


if __name__ == "__main__":
    MANIFEST.write_text(manifest(Path(sys.argv[1])))
