"""``kubernetes`` of a GatewayConfiguration: the cluster that is followed.

A configuration is checked without a cluster: only that the kubeconfig has the context.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from admission_gateway_worker.text import printable
from gateway.base.files import UnusableFileError
from gateway.config.kinds.kubeconfig import choose, read_document, read_kubeconfig

if TYPE_CHECKING:
    from pathlib import Path

    from gateway.config.kinds.kubeconfig import Entry
    from gateway.config.yaml.fields import Fields


@dataclass(frozen=True, slots=True)
class KubernetesSettings:
    """The cluster whose namespaces are watched, and perhaps its custom resources."""

    kubeconfig: Path | None = None
    """None: the service account of the pod that the gateway runs in."""
    context: str | None = None
    """The context of the kubeconfig; None: its ``current-context``."""
    custom_resources: bool = False
    """Whether the gateway's custom resources in the cluster are part of the configuration."""


def read_kubernetes(fields: Fields | None, folder: Path) -> KubernetesSettings | None:
    """Return the ``kubernetes`` group in *fields*, of a file in *folder*."""
    if fields is None:
        return None
    file, context = fields.string("kubeconfig", None), fields.string("context", None)
    path = None if file is None else fields.problems.resolve(folder, file)
    if context == "":
        fields.problem("context", "is empty, expected the name of a context")
    elif file == "":
        fields.problem("kubeconfig", "is empty, expected the path of a file")
    elif path is not None:
        try:
            document = read_document(path)
        except UnusableFileError as error:
            fields.problem("kubeconfig", f"{printable(path)} {error}")
        else:
            _check_context(fields, path, document, context)
            # What makes it unusable is told where it is used: its files may come later.
            with suppress(UnusableFileError):
                read_kubeconfig(path, context, partial(fields.problems.warn, fields.at("kubeconfig")))
    elif context is not None:
        fields.problem("context", "needs kubeconfig: a pod's service account has no contexts")
    custom_resources = fields.boolean("customResources")
    fields.finish()
    return KubernetesSettings(path, context, custom_resources)


def _check_context(fields: Fields, path: Path, document: Entry, context: str | None) -> None:
    try:
        choose(document, context)
    except UnusableFileError as error:
        fields.problem("kubeconfig" if context is None else "context", f"{printable(path)} {error}")
