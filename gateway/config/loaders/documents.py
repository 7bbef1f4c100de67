"""The documents of other engines in one configuration, each read by the loader of its API group.

A document is read by itself. When all documents of the configuration are read, they are put together to
entries of a phase: a policy with its exceptions, or a template with its constraints.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gateway.config.kinds.engine_settings import NO_ENGINES
from gateway.config.loaders.cluster_policy import ClusterPolicyDocuments
from gateway.config.loaders.gatekeeper import GROUPS as GATEKEEPER_GROUPS
from gateway.config.loaders.gatekeeper import GatekeeperDocuments
from gateway.config.loaders.global_context import ReadEntry
from gateway.config.loaders.kubewarden import GROUP as KUBEWARDEN
from gateway.config.loaders.kubewarden import KubewardenDocuments
from gateway.config.loaders.kyverno import KyvernoDocuments
from gateway.config.yaml.fields import child
from gateway.pure.admission_policies.in_force import PolicyInForce
from gateway.pure.core.policy import ParamKind
from gateway.pure.core.role_bindings import BINDINGS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gateway.config.kinds.engine_settings import EnginesEntry
    from gateway.config.loaders.part import Loader, Part
    from gateway.config.yaml.documents import Document
    from gateway.config.yaml.fields import Fields
    from gateway.pure.admission_policies.params import FixedParams, GlobalEntry
    from gateway.pure.core.webhook import Webhook

BUILT_CHARS: Final = 200_000
"""Characters of expressions whose programs are built when the configuration loads, some hundred policies:
their first reviews need not wait. The programs of others are built at their first review: there may be
thousands of policies, what autogen makes counted, of which few have reviews, and programs take some hundred
bytes a character."""
_LOADERS: Mapping[str, type[Loader[Any]]] = {
    "policies.kyverno.io": KyvernoDocuments,
    **dict.fromkeys(GATEKEEPER_GROUPS, GatekeeperDocuments),
    "kyverno.io": ClusterPolicyDocuments,
    KUBEWARDEN: KubewardenDocuments,
}
"""By API group."""
_NO_ROLES: Final = (
    "found roles or clusterRoles, for which RoleBindings and ClusterRoleBindings have to be known; expected "
    "GatewayConfiguration.kubernetes to name a cluster, or such bindings among the documents"
)


def read_part(document: Document, fields: Fields, group: str, kind: str) -> Part | None:
    """Return *document* of *kind* in the API group *group*, read by itself, after reporting its problems.

    None if nothing of it is used.
    """
    part: Part | None = _LOADERS[group].read(document, fields, kind)
    return part


class LoadedDocuments:
    """The documents of other engines that were read so far."""

    def __init__(self, engines: EnginesEntry = NO_ENGINES, *, is_custom: bool = False) -> None:
        """*is_custom* is whether they are custom resources, which have many authors."""
        self._engines = engines
        self._is_custom = is_custom
        self._loaders: dict[type[Loader[Any]], Loader[Any]] = {}
        self.names: set[tuple[str, str]] = set()
        """``KIND.GROUP`` and id of all."""

    def read(self, document: Document, fields: Fields, group: str, kind: str) -> None:
        """Read *document* of *kind* in the API group *group*, and add it."""
        part = read_part(document, fields, group, kind)
        if part is not None:
            self.add(group, part)

    def add(self, group: str, part: Part) -> None:
        """Add *part*, of the API group *group*, which was read by itself."""
        self._loader(group).add(part)
        self.names.add((f"{part.kind}.{group}", part.id))

    def entries(self, group: str, part: Part, params: FixedParams) -> Sequence[Webhook]:
        """Return the entries of one *part* of the API group *group*, see ``Loader``."""
        return self._loader(group).entries(part, params)

    def need_cluster(self, *, has_bindings: bool) -> Iterator[tuple[Document, str, str]]:
        """Yield document, path and message of everything that requires a cluster.

        *has_bindings* is whether there are RoleBindings or ClusterRoleBindings in files.
        """
        for part in (part for loader in self._loaders.values() for part in loader.parts):
            for path, message in part.needs_cluster:
                yield part.document, path, message
            if part.needs_roles and not has_bindings:
                yield part.document, child(part.document.path, "spec"), _NO_ROLES

    @property
    def param_kinds(self) -> list[ParamKind]:
        """The kinds of the parameters of the policies read so far, and of bindings if roles count for any."""
        parts = [part for loader in self._loaders.values() for part in loader.parts]
        kinds = [kind for part in parts for kind in part.param_kinds]
        if any(part.needs_roles for part in parts):
            kinds += (ParamKind(*each) for each in BINDINGS)
        return kinds

    @property
    def entries_of_context(self) -> Mapping[str, GlobalEntry]:
        """The GlobalContextEntries of Kyverno that were read so far, by name."""
        loader = self._loader("kyverno.io")
        found = ((part.id, part.entry) for part in loader.parts if isinstance(part, ReadEntry))
        return {name: entry for name, entry in found if entry is not None}

    def webhooks(self, params: FixedParams, engines: EnginesEntry) -> tuple[Webhook, ...]:
        """Return the policies of all engines, which have *params*, as entries of a phase.

        *engines* are the workers that evaluate what the gateway does not.
        """
        self._engines = engines
        for loader in self._loaders.values():
            loader.engines = engines
        found = tuple(
            hook
            for loader in self._loaders.values()
            for part in loader.in_order()
            for hook in loader.entries(part, params)
        )
        build(found)
        return found

    def _loader(self, group: str) -> Loader[Any]:
        made = _LOADERS[group]
        if made not in self._loaders:
            self._loaders[made] = made(is_custom=self._is_custom)
            self._loaders[made].engines = self._engines
        return self._loaders[made]


def build(hooks: Sequence[Webhook]) -> None:
    """Build the first policies of *hooks*, and what autogen made of them last.

    Pods have more reviews than their controllers.
    """
    first_of = {hook.name: hook for hook in reversed(hooks)}
    room = BUILT_CHARS
    for hook in dict.fromkeys((*reversed(first_of.values()), *hooks)):
        policy = hook.policy
        if isinstance(policy, PolicyInForce) and (size := policy.chars) <= room:
            room -= size
            policy.build()
