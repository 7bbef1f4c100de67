"""``kubernetes`` of a GatewayConfiguration: the cluster that is followed.

A configuration is checked without a cluster: only that the kubeconfig has the context.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from gateway.base.files import UnusableFileError
from gateway.config.kinds.declare import Boolean, Declared, File, Text, declare, optional
from gateway.config.kinds.kubeconfig import choose, read_document, read_kubeconfig

if TYPE_CHECKING:
    from pathlib import Path

    from gateway.config.kinds.kubeconfig import KubeconfigDocument
    from gateway.config.yaml.fields import Fields


def _check_context(source: Fields, path: Path, document: KubeconfigDocument, context: str | None) -> None:
    try:
        choose(document, context)
    except UnusableFileError as error:
        source.problem("kubeconfig" if context is None else "context", error.about(path))


@dataclass(frozen=True, slots=True)
class KubernetesSettings(Declared):
    """The cluster whose namespaces are watched, and perhaps its custom resources."""

    kubeconfig: Path | None = declare(
        File(words="path of a kubeconfig"), "Absent: the service account of the gateway's pod", default=None
    )
    context: str | None = optional(Text(), "Context of the kubeconfig. Absent: its `current-context`")
    custom_resources: bool = declare(
        Boolean(),
        "Whether [custom resources](#custom-resources) are part of the configuration",
        default=False,
    )

    @classmethod
    def read_together(cls, source: Fields) -> dict[str, Any]:
        """Return the path of the kubeconfig and the context, which it has to have."""
        file, context = source.string("kubeconfig", None), source.string("context", None)
        path = None if file is None else source.problems.resolve(source.folder, file)
        if context == "":
            source.problem("context", "is empty, expected the name of a context")
        elif file == "":
            source.problem("kubeconfig", "is empty, expected the path of a file")
        elif path is not None:
            try:
                document = read_document(path)
            except UnusableFileError as error:
                source.problem("kubeconfig", error.about(path))
            else:
                _check_context(source, path, document, context)
                # What makes it unusable is told where it is used: its files may come later.
                with suppress(UnusableFileError):
                    read_kubeconfig(path, context, partial(source.problems.warn, source.at("kubeconfig")))
        elif context is not None:
            source.problem("context", "needs kubeconfig: a pod's service account has no contexts")
        return {"kubeconfig": path, "context": context}
