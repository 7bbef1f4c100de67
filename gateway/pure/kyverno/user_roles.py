"""The roles of a request's user, which ``roles`` and ``clusterRoles`` of filters are compared with.

Source: github.com/kyverno/kyverno pkg/webhooks/handlers/enrich.go (WithRoles), pkg/utils/data/data.go
(SliceContains): names are compared exactly, without wildcards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.pure.admission_policies.params import FixedParams, ParamsError, UnreadParamsError
from gateway.pure.core.policy import ParamKind
from gateway.pure.core.role_bindings import BINDINGS, ROLE_PATHS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from gateway.pure.core.policy import Params, PolicyInput
    from gateway.pure.core.role_bindings import Grant, RoleIndex
    from gateway.pure.core.webhook import Reads


class RoleSource:
    """Where the bindings are that give users their roles, for one policy."""

    def __init__(self, params: FixedParams, *, is_needed: bool) -> None:
        """*params* are the objects in files. *is_needed* is whether the policy compares roles."""
        self.is_needed = is_needed
        has_files = any(params.of(ParamKind(*kind)) is not None for kind in BINDINGS)
        self._files = params if has_files else None
        self.reads: Reads = (
            () if has_files or not is_needed else tuple((kind, ROLE_PATHS) for kind in BINDINGS)
        )
        """What is read from the cluster."""

    def within(self, policy_input: PolicyInput) -> Params | None:
        """Return what has the bindings for one review. None if nothing has."""
        return self._files or policy_input.params


class UserRoles:
    """The roles of the user of one request. They are found when a filter first needs them."""

    def __init__(
        self, policy_input: PolicyInput, params: Params | None, user: str, groups: Collection[str]
    ) -> None:
        """*params* have the bindings. None if there are none, so that the roles cannot be known."""
        self._input = policy_input
        self._params = params
        self._subjects = user, groups
        self._found: Sequence[Mapping[Grant, int]] | None = None

    def has_role(self, names: Collection[str]) -> bool:
        """Whether the user has one of the Roles *names*, each ``NAMESPACE:NAME``.

        Raises:
            UnreadParamsError: bindings have to be looked up first.
            ParamsError: they cannot be read.
        """
        return self._has_any({(None, each) for each in names})

    def has_cluster_role(self, names: Collection[str]) -> bool:
        """Whether the user has one of the ClusterRoles *names*, everywhere or in the request's namespace.

        Raises:
            UnreadParamsError: bindings have to be looked up first.
            ParamsError: they cannot be read.
        """
        namespaces = {"", self._input.request.namespace}
        return self._has_any({(each, name) for each in namespaces for name in names})

    def _has_any(self, wanted: set[Grant]) -> bool:
        if self._found is None:
            self._found = [one for index in self._indexes() for one in index.of(*self._subjects)]
        return any(not one.keys().isdisjoint(wanted) for one in self._found)

    def _indexes(self) -> Iterator[RoleIndex]:
        if self._params is None:
            raise ParamsError("no cluster is followed, and no file has bindings")
        unread = []
        for kind in BINDINGS:
            try:
                objects = self._params.of(ParamKind(*kind), ROLE_PATHS)
            except UnreadParamsError as error:
                unread.append(error.lookup)
                continue
            if objects is not None:
                assert objects.roles is not None
                yield objects.roles
            elif not isinstance(self._params, FixedParams):
                raise ParamsError(f"the API server does not have {kind[1]} of {kind[0]}")
        if not unread:
            return
        for lookup in unread:
            found = self._input.found_params.get(lookup)
            if found is not None:
                reason = found.error or "they are read again"
                raise ParamsError(f"the gateway has not read each {lookup.kind} yet: {reason}")
        raise UnreadParamsError(*unread)
