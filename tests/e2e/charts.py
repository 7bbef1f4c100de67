"""What Helm renders of the chart, without a cluster."""

from __future__ import annotations

import subprocess
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from deploy.chart_values import CHART
from deploy.render import template
from tests.e2e.binaries import chart_tool
from tests.kit import load_yaml

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SCENARIOS: Final = tuple(sorted((CHART / "ci").iterdir()))
HOOK: Final = "helm.sh/hook"

Object = dict[str, Any]


@cache
def text(*arguments: str) -> str:
    """Return the text of all objects. *arguments* are further ones of ``helm template``."""
    return template(chart_tool("helm"), *arguments)


def objects(*arguments: str) -> list[Object]:
    """Return all objects, hooks among them."""
    return [one for one in load_yaml(text(*arguments)) if one]


def only(kind: str, name: str, *arguments: str) -> Object:
    """Return the one object of *kind* and *name*."""
    (found,) = (o for o in objects(*arguments) if (o["kind"], o["metadata"]["name"]) == (kind, name))
    return found


def hooks(found: Object) -> set[str]:
    """Return the events of Helm at which *found* is made; empty if it is not a hook."""
    events = (found["metadata"].get("annotations") or {}).get(HOOK, "")
    return set(events.split(",")) - {""}


def pods(*arguments: str) -> Iterator[Object]:
    """Yield the templates of all pods, with name and namespace."""
    for one in objects(*arguments):
        spec = one.get("spec", {})
        if pod := spec.get("jobTemplate", {}).get("spec", spec).get("template"):
            metadata = {
                **pod["metadata"],
                "name": one["metadata"]["name"],
                "namespace": one["metadata"]["namespace"],
            }
            yield {"apiVersion": "v1", "kind": "Pod", **pod, "metadata": metadata}


def refusal(*arguments: str) -> str:
    """Return what Helm says of values that it has to refuse."""
    try:
        template(chart_tool("helm"), *arguments)
    except subprocess.CalledProcessError as error:
        return str(error.stderr)
    raise AssertionError(f"accepted: {arguments}")


def write_config_map(folder: Path, found: Object) -> Path:
    """Write the files of a ConfigMap to *folder* as the kubelet would mount them; return *folder*."""
    for name, content in found["data"].items():
        (folder / name).write_text(content)
    return folder
