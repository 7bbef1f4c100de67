"""Which kinds an audit reads, and what of their objects is evaluated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.base.text import did_you_mean
from gateway.tools.audit.restarts import is_workload
from gateway.tools.audit.subject import SECRETS
from gateway.tools.replay.cluster import has_creation_rule, listed_kinds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gateway.pure.core.webhook import Webhook
    from gateway.server.kubernetes.api_client import ApiClient
    from gateway.tools.audit.run import Options, Pass
    from gateway.tools.audit.subject import Part
    from gateway.tools.replay.cluster import ListedKind


class WantedKinds:
    """The kinds that *webhooks*, those that are called, have rules for, as far as *options* select them."""

    def __init__(self, webhooks: Sequence[Webhook], options: Options) -> None:
        self._webhooks = webhooks
        self._options = options
        self._reviewed: dict[str, bool] = {}
        """By resource, whether webhooks have rules for it."""
        self._reviews_pods = has_creation_rule(webhooks, "", "pods")

    async def read(self, api: ApiClient, this: Pass) -> list[ListedKind]:
        """Return the kinds that are read. *this* notes what is not.

        Raises:
            ClusterError: the cluster cannot be reached.
        """
        found = [one async for one in listed_kinds(api)]
        known = {one.named for one in found}
        this.found.problems += [
            f"--kinds {one}: the cluster has no such resource{did_you_mean(one, known)}"
            for one in sorted(self._options.kinds - known)
        ]
        return [one for one in found if self._is_wanted(one, this)]

    def parts(self, kind: ListedKind) -> set[Part]:
        """Return what is evaluated of an object of *kind*: itself, and the Pods that it gets."""
        found: set[Part] = set()
        is_reviewed = self._reviewed.get(kind.named)
        if is_reviewed is None:
            is_reviewed = has_creation_rule(self._webhooks, kind.group, kind.resource)
            self._reviewed[kind.named] = is_reviewed
        if is_reviewed:
            found.add("object")
        if self._reviews_pods and is_workload(kind):
            found.add("restart")
        return found

    def _is_wanted(self, kind: ListedKind, this: Pass) -> bool:
        options = self._options
        if (options.kinds and kind.named not in options.kinds) or not self.parts(kind):
            return False
        if kind.named == "secrets" and not options.includes_secrets:
            this.notes.append(SECRETS)
            return False
        return True
