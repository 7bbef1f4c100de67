"""The parts of one gateway process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import orjson

from gateway.base.errors import GatewayError, ReviewError, Unavailable
from gateway.engine.dispatch.pool import Pool
from gateway.observe.decisions.recent import DecisionFilter, detailed_page_json, page_json
from gateway.observe.decisions.ring import place_of
from gateway.server.pages import configuration, overview, rollouts
from gateway.server.pages.acting import BY_PAGE, Asked
from gateway.server.pages.explain import explain
from gateway.server.pages.groups import groups_of
from gateway.server.pages.page_thread import in_thread
from gateway.server.pages.state import number_in
from gateway.server.rollout.store import StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from gateway.observe.decisions.document import DecisionDocument, DetailedDocument
    from gateway.observe.decisions.namespaces import NamespaceCounts
    from gateway.observe.decisions.recent import Kept, RecentDecision, RecentDecisions
    from gateway.observe.telemetry.window import Window
    from gateway.server.pages.state import Json, PageRequest, ProcessState

FILTERS: Final = {
    "namespace": "namespace",
    "user": "user",
    "webhook": "webhook",
    "outcome": "outcome",
    "kind": "kind",
    "name": "name",
    "uid": "uid",
    "traceId": "trace_id",
}
"""Parameters of /decisions, and the fields of the filter."""
DECISIONS: Final = "/decisions/"
"""Before the uid of a decision."""
MAX_DECISIONS: Final = 500
SHOWN_GROUPS: Final = 20
"""On the page of a webhook."""
_USUAL_DECISIONS: Final = 100


class OneProcess:
    """The source of the pages of a gateway with one process; see ``gateway.server.pages.routes.Source``."""

    processes: Final = 1

    def __init__(
        self,
        state: Callable[[], ProcessState | None],
        window: Window,
        recent: RecentDecisions,
        namespaces: NamespaceCounts,
        findings: Iterable[Json] = (),
        *,
        act: Callable[..., Awaitable[object]],
    ) -> None:
        """*state* returns the present state, or None before a configuration is in force.

        *findings* are those of calls after the answer, the oldest first. *act* is ``RolloutPlans.act``.
        """
        self._state = state
        self._window = window
        self._recent = recent
        self._namespaces = namespaces
        self._findings = findings
        self._act = act

    async def parts(self, request: PageRequest) -> Sequence[Json]:
        """Return the part of this process.

        Raises:
            Unavailable: no configuration is in force yet.
        """
        state = self._state()
        if state is None:
            raise Unavailable("starting: no configuration is in force yet")
        return [await self._part(request, state)]

    async def _part(self, request: PageRequest, state: ProcessState) -> Json:
        match request.path:
            case "/":
                return await overview.part(state, self._window)
            case "/decisions":
                return await self._decisions(request, state)
            case "/webhook":
                return await self._webhook(request, state)
            case "/differences":
                return {"differences": list(self._findings)[::-1]}
            case "/namespaces":
                return await in_thread(self._namespaces.document)
            case "/rollouts":
                return await in_thread(rollouts.part, state)
            case "/configz":
                return await in_thread(configuration.document, state)
            case "/explain":
                return await self._explain(request, state)
        if request.path.startswith(rollouts.PATH) and request.body:
            return await self._change(request, state)
        if request.path.startswith(rollouts.PATH):
            return await in_thread(rollouts.part_of_one, state, request.path.removeprefix(rollouts.PATH))
        decision = await in_thread(_decision, self._recent.read(), request.path.removeprefix(DECISIONS))
        return {"decision": decision, "endpointNames": _endpoint_names([decision] if decision else [], state)}

    async def _decisions(self, request: PageRequest, state: ProcessState) -> Json:
        wanted, limit = _filter(request.query), limit_of(request.query)
        kept = self._recent.read()
        return {
            **await in_thread(lambda: _decisions(kept.recent(wanted), limit)),
            "leftOut": self._recent.left_out,
            "lost": self._lost(),
            "sinceSeconds": self._recent.since or state.started_at,
        }

    async def _webhook(self, request: PageRequest, state: ProcessState) -> Json:
        phase, configuration, name = (
            request.query.get(one, "") for one in ("phase", "configuration", "name")
        )
        place = configuration, name
        kept = self._recent.read()

        def groups() -> Json:
            found = kept.recent(DecisionFilter(webhook="/".join(place)))
            decided = [one for one in found if place_of(one.record)[:2] == place]
            return {"groups": _decisions(decided, SHOWN_GROUPS)["groups"]}

        return {
            "overview": await overview.part(state, self._window, (phase, *place)),
            **await in_thread(groups),
            "lost": self._lost(),
            **await in_thread(self._namespaces.document, (phase, *place)),
        }

    def _lost(self) -> list[tuple[str, str, str, int]]:
        return [(*place, number) for place, number in self._recent.lost.items()]

    async def _change(self, request: PageRequest, state: ProcessState) -> Json:
        """Change a plan as a page asked, whose access has been checked."""
        asked = Asked(*orjson.loads(request.body))
        name = request.path.removeprefix(rollouts.PATH)
        if all(view.plan.name != name for view in state.plans.values()):
            return {"error": "there is no such plan", "status": 404}
        try:
            done = await self._act(
                name, asked.action, who=asked.who + BY_PAGE, why=asked.why, seen=asked.seen
            )
        except StoreError as error:
            return {"error": str(error), "status": 503}
        except GatewayError as error:
            return {"error": str(error), "status": 409}
        return {"done": str(done)}

    async def _explain(self, request: PageRequest, state: ProcessState) -> Json:
        secret_names = self._recent.secret_names
        try:
            found = await explain(state.dry_run, request.body, request.query, secret_names=secret_names)
            return {
                **found,
                "endpointNames": _endpoint_names(found["decisions"], state),
                "placements": await in_thread(configuration.placements_of, state.config),
            }
        except ReviewError as error:
            return {"decisions": [], "notReached": [], "error": str(error)}


def _decision(kept: Kept, uid: str) -> DetailedDocument | None:
    one = kept.find(uid)
    return None if one is None else detailed_page_json(one)


def _filter(query: Mapping[str, str]) -> DecisionFilter:
    return DecisionFilter(**{field: query.get(name, "").strip() for name, field in FILTERS.items()})


def _endpoint_names(decisions: Iterable[DecisionDocument], state: ProcessState) -> dict[str, str]:
    """Return what people call the endpoints of *decisions*, by address; those without a name are left out."""
    pools = {name: pool for name, pool in state.snapshot.backends.pools.items() if isinstance(pool, Pool)}
    called = (hook for one in decisions for hook in one["webhooks"] if hook["pool"] in pools)
    names = {hook["endpoint"]: pools[hook["pool"]].name_of(hook["endpoint"]) for hook in called}
    return {address: name for address, name in names.items() if name}


def _decisions(found: Sequence[RecentDecision], limit: int) -> Json:
    groups = groups_of(found)[:limit]
    return {
        "decisions": list(map(page_json, found[:limit])),
        "groups": [tuple(one._replace(latest=page_json(one.latest))) for one in groups],
    }


def limit_of(query: Mapping[str, str]) -> int:
    """Return the parameter ``limit``: how many decisions are wanted at most."""
    limit = number_in(query, "limit")
    return _USUAL_DECISIONS if limit is None else min(max(limit, 1), MAX_DECISIONS)
