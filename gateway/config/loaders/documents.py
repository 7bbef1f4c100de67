"""The documents of other engines in one configuration, each read by the loader of its API group.

A loader keeps what it has read. When all documents of the configuration are read, it puts them together to
entries of a phase: a policy with its exceptions, or a template with its constraints.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from gateway.config.loaders.cluster_policy import ClusterPolicyDocuments
from gateway.config.loaders.gatekeeper import GROUPS as GATEKEEPER_GROUPS
from gateway.config.loaders.gatekeeper import GatekeeperDocuments
from gateway.config.loaders.kyverno import KyvernoDocuments

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gateway.config.yaml.documents import Document
    from gateway.config.yaml.fields import Fields
    from gateway.pure.admission_policies.params import FixedParams
    from gateway.pure.core.policy import ParamKind
    from gateway.pure.core.webhook import Webhook


class Loader(Protocol):
    """Reads the documents of one engine."""

    need_cluster: list[tuple[Document, str, str]]
    """Document, path and message of everything that requires a cluster."""

    def read(self, document: Document, fields: Fields, kind: str) -> None:
        """Read *document* of *kind*, whose apiVersion and kind are read already; report its problems."""

    @property
    def param_kinds(self) -> Iterable[ParamKind]:
        """The kinds of the parameters of the policies read so far."""

    def webhooks(self, params: FixedParams) -> Iterable[Webhook]:
        """Return the policies as entries of a phase, after reporting what documents lack of each other.

        *params* are the parameters in files.
        """


_LOADERS: Mapping[str, type[Loader]] = {
    "policies.kyverno.io": KyvernoDocuments,
    **dict.fromkeys(GATEKEEPER_GROUPS, GatekeeperDocuments),
    "kyverno.io": ClusterPolicyDocuments,
}
"""By API group."""


class LoadedDocuments:
    """The documents of other engines that were read so far."""

    def __init__(self) -> None:
        self._loaders: dict[type[Loader], Loader] = {}

    def read(self, document: Document, fields: Fields, group: str, kind: str) -> None:
        """Read *document* of *kind* in the API group *group*."""
        made = _LOADERS[group]
        if made not in self._loaders:
            self._loaders[made] = made()
        self._loaders[made].read(document, fields, kind)

    @property
    def need_cluster(self) -> list[tuple[Document, str, str]]:
        """See :class:`Loader`."""
        return [one for loader in self._loaders.values() for one in loader.need_cluster]

    @property
    def param_kinds(self) -> list[ParamKind]:
        """See :class:`Loader`."""
        return [one for loader in self._loaders.values() for one in loader.param_kinds]

    def webhooks(self, params: FixedParams) -> tuple[Webhook, ...]:
        """Return the policies of all engines, which have *params*, as entries of a phase."""
        return tuple(hook for loader in self._loaders.values() for hook in loader.webhooks(params))
