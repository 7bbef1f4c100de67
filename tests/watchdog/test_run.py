"""The watchdog at work, in virtual time, with an API server that keeps to the rules of server-side apply."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any, cast

from gateway.base.errors import ClusterError
from gateway.tools.watchdog.probe import Probe
from gateway.tools.watchdog.relaxation import ANNOTATION, CONDITION
from gateway.tools.watchdog.run import Watchdog, Watched
from gateway.tools.watchdog.state import Mode, Settings, Stored
from tests.deadlocks.kit import entry, registration, rule

if TYPE_CHECKING:
    import pytest

    from gateway.server.kubernetes.api_client import ApiClient

Json = dict[str, Any]

PROBE = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe", "namespace": "default"}}
AWAY = 'failed calling webhook "fail.admission-gateway.io": failed to call webhook: connection refused'


class Api:
    """One validating registration, and what a dry run meets."""

    def __init__(self) -> None:
        self.now = 1_000_000.0
        self.version = 1
        self.document = registration(
            entry(rule("*/*"), matchConditions=[{"name": "own", "expression": "true"}])
        )
        self.gateway = True
        self.ready = 0
        self.is_up = True
        self.events: list[Json] = []
        self.url = "https://api.test"

    def client(self) -> ApiClient:
        return cast("ApiClient", self)

    async def find(self, path: str) -> Json | None:
        self._reach()
        if not path.endswith("validatingwebhookconfigurations/gateway"):
            return None
        found = copy.deepcopy(self.document)
        found["metadata"].update(resourceVersion=str(self.version), uid="1")
        return found

    async def get(self, _path: str, _params: object = None) -> Json:
        self._reach()
        return {"items": [{"endpoints": [{} for _ in range(self.ready)]}]}

    async def write(self, _method: str, path: str, document: Json) -> None:
        self._reach()
        if path.endswith("/events"):
            self.events.append(document)
        elif not self.gateway:
            raise ClusterError(AWAY, 500)

    async def patch(self, _path: str, params: Json, body: bytes, _media_type: str) -> tuple[int, Json]:
        """Set what the watchdog applies, and remove what it no longer does."""
        self._reach()
        assert params["fieldManager"] == "admission-gateway-watchdog"
        document = json.loads(body)
        if document["metadata"]["resourceVersion"] != str(self.version):
            raise ClusterError("the object has been modified", 409)
        self.version += 1
        self.document["metadata"]["annotations"] = document["metadata"]["annotations"]
        applied = {one["name"]: one["matchConditions"] for one in document.get("webhooks", ())}
        for one in self.document["webhooks"]:
            kept = [each for each in one["matchConditions"] if each["name"] != CONDITION]
            one["matchConditions"] = [*kept, *applied.get(one["name"], ())]
        return 200, {}

    def _reach(self) -> None:
        if not self.is_up:
            raise ClusterError("connection refused")

    @property
    def stored(self) -> Stored:
        return Stored.parse(self.document["metadata"].get("annotations", {}).get(ANNOTATION))

    @property
    def is_relaxed(self) -> bool:
        return any(each["name"] == CONDITION for each in self.document["webhooks"][0]["matchConditions"])


def watchdog(api: Api, mode: Mode = "Exempt") -> Watchdog:
    watched = Watched("gateway", ("kube-system",), Probe(PROBE), Settings(mode))
    return Watchdog(watched, lambda: api.now)


async def run(api: Api, seconds: float, *dogs: Watchdog) -> None:
    """Let *dogs* look every five seconds."""
    until = api.now + seconds
    while api.now < until:
        for one in dogs:
            try:
                await one.look(api.client())
            except ClusterError:
                assert not api.is_up
        api.now += 5


async def test_it_relaxes_and_restores_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    api = Api()
    dog, before = watchdog(api), copy.deepcopy(api.document["webhooks"])
    await run(api, 300, dog)
    assert api.version == 1
    api.gateway = False
    await run(api, 55, dog)
    assert not api.is_relaxed
    await run(api, 60, dog)
    assert (api.is_relaxed, api.stored.step) == (True, "Exempt")
    api.gateway = True
    await run(api, 120, dog)
    assert (api.document["webhooks"], api.stored.step) == (before, "Closed")
    assert [one["reason"] for one in api.events] == ["RegistrationRelaxed", "RegistrationRestored"]
    assert "run admission-gateway audit, since" in api.events[-1]["note"]
    printed = capsys.readouterr()
    assert "relaxed (Exempt): system components are not reviewed" in printed.out
    assert printed.err.count("alert: 0 ready endpoints, dry run unreachable") == 1
    assert dog.counters.acts == {"open": 1, "escalate": 0, "close": 1}


async def test_two_of_them_act_once() -> None:
    api = Api()
    both = watchdog(api, "Ignore"), watchdog(api, "Ignore")
    api.gateway = False
    await run(api, 600, *both)
    assert api.stored.step == "Ignore"
    api.gateway = True
    await run(api, 120, *both)
    acts = [sum(one.counters.acts[act] for one in both) for act in ("open", "escalate", "close")]
    assert acts == [1, 1, 1]
    assert len(api.events) == 3


async def test_of_two_that_have_read_the_same_version_the_second_does_nothing() -> None:
    api = Api()
    dog = watchdog(api)
    found = await api.find("/validatingwebhookconfigurations/gateway")
    assert found is not None
    api.version += 1
    await dog._write(api.client(), found, Stored("Exempt", 1, 1), "")
    assert (api.is_relaxed, dog.counters.acts["open"]) == (False, 0)


async def test_without_the_api_server_the_row_begins_again() -> None:
    api = Api()
    dog = watchdog(api)
    api.gateway = False
    for _ in range(5):
        await run(api, 55, dog)
        api.is_up = False
        await run(api, 30, dog)
        api.is_up = True
    assert not api.is_relaxed
    await run(api, 70, dog)
    assert api.is_relaxed


async def test_a_ready_endpoint_keeps_it_closed() -> None:
    api = Api()
    dog = watchdog(api, "Ignore")
    api.gateway, api.ready = False, 1
    await run(api, 3600, dog)
    assert (api.is_relaxed, dog.counters.is_alerting) == (False, True)


async def test_what_a_writer_of_the_whole_object_removes_is_written_again_without_another_opening() -> None:
    api = Api()
    dog = watchdog(api)
    api.gateway = False
    await run(api, 100, dog)
    opened = api.stored
    api.document["webhooks"][0]["matchConditions"].pop()
    api.document["webhooks"].append(entry(rule("pods"), name="new.admission-gateway.io", matchConditions=[]))
    await run(api, 5, dog)
    assert all(one["matchConditions"][-1]["name"] == CONDITION for one in api.document["webhooks"])
    assert (api.stored, dog.counters.acts["open"]) == (opened, 1)


async def test_another_one_goes_on_after_a_restart_also_if_somebody_removed_the_annotation() -> None:
    for removes in (False, True):
        api = Api()
        api.gateway = False
        await run(api, 100, watchdog(api))
        if removes:
            del api.document["metadata"]["annotations"]
        api.gateway = True
        await run(api, 120, watchdog(api, "Alert"))
        assert (api.is_relaxed, api.stored.step) == (False, "Closed")


async def test_a_person_restores_it_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    api = Api()
    api.gateway = False
    await run(api, 100, watchdog(api))
    await watchdog(api).close(api.client())
    assert not api.is_relaxed
    await watchdog(api).close(api.client())
    assert "ValidatingWebhookConfiguration/gateway is not relaxed" in capsys.readouterr().out


async def test_a_person_relaxes_it_and_a_watchdog_in_mode_alert_restores_it() -> None:
    for mode, step in (("Alert", "Exempt"), ("Ignore", "Ignore")):
        api = Api()
        # Packets are dropped while an endpoint is ready: the watchdog does nothing of its own.
        api.gateway, api.ready = False, 1
        await run(api, 600, watchdog(api, "Exempt"))
        assert not api.is_relaxed
        person = watchdog(api, cast("Mode", mode))
        await person.relax(api.client())
        assert (api.is_relaxed, api.stored.step) == (True, step)
        await person.relax(api.client())
        assert person.counters.acts["open"] == 1
        await run(api, 300, watchdog(api, "Alert"))
        assert api.stored.step == step
        api.gateway = True
        await run(api, 120, watchdog(api, "Alert"))
        assert api.stored.step == "Closed"


async def test_without_a_registration_there_is_nothing_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    api = Api()
    api.document["webhooks"] = []
    dog = watchdog(api)
    api.gateway = False
    await run(api, 300, dog)
    await dog.relax(api.client())
    assert api.version == 1
    printed = capsys.readouterr()
    assert printed.err.count("there is nothing to relax; a registration in static files") == 1
    assert "ValidatingWebhookConfiguration/gateway has no entry with Fail" in printed.out
