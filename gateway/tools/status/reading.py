"""What one gateway said about itself."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

import orjson

from admission_gateway_worker.text import printable
from gateway.base.errors import GatewayError
from gateway.base.json_depth import without_depth
from gateway.server.pages.notices import Notice, notices
from gateway.server.serving.admin import VERBOSE, WARNING
from gateway.tools.status.exposition import overview_of_metrics
from gateway.tools.status.render import render

if TYPE_CHECKING:
    Json = dict[str, Any]

Source = Literal["pages", "metrics"]
WRONG_ANSWER: Final = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What the reader of an answer raises that is not from whom it should be: it may have anything anywhere."""


class AdminPort(Protocol):
    """The admin port of a gateway."""

    @property
    def name(self) -> str:
        """The name of the gateway, for people."""

    @property
    def note(self) -> str:
        """Why an answer may not be that of the pages. Empty if only the answer itself can say it."""

    async def get(self, path: str) -> tuple[int, bytes]:
        """Return status and body of the answer.

        Raises:
            GatewayError: there is none.
        """


@dataclass(frozen=True, slots=True)
class Reading:
    """The state of one gateway, or why it is not known."""

    name: str
    overview: Json | None = None
    source: Source = "pages"
    note: str = ""
    """Why the overview is from the metrics; empty if it is not."""
    error: str = ""
    """Why there is no overview."""

    def notices(self) -> list[Notice]:
        """Return what needs attention, the worst first."""
        if self.overview is None:
            return [Notice("bad", "no answer", [self.error], "runbooks/down.md")]
        return notices(self.overview)

    def as_json(self) -> Json:
        """Return the member of ``gateways`` in the JSON of the command."""
        return {
            "name": self.name,
            "error": self.error,
            "source": self.source,
            "note": self.note,
            "attention": [notice._asdict() for notice in self.notices()],
            "overview": self.overview,
        }


async def read(port: AdminPort) -> Reading:
    """Return the state of the gateway behind *port*. Raises nothing about the gateway."""
    try:
        page_status, page = await port.get("/?format=json")
        if page_status == 200:
            return _checked(Reading(port.name, _object(page)))
        note = port.note or message_of(page) or f"the pages answer {page_status}"
        status, body = await port.get(f"/readyz?{VERBOSE}")
        lines = body.decode(errors="replace").splitlines()
        faults = [line.removeprefix(WARNING) for line in lines if line.startswith(WARNING)]
        reason = "" if status == 200 else (lines or ["no reason"])[0].removeprefix("not ready: ")
        metrics_status, exposition = await port.get("/metrics")
        if metrics_status != 200:
            raise GatewayError(f"/metrics answers {metrics_status}: {message_of(exposition)}")
        overview = overview_of_metrics(exposition.decode(errors="replace"), reason, faults, time.time())
        return _checked(Reading(port.name, overview, "metrics", note))
    except GatewayError as error:
        return Reading(port.name, error=str(error))
    except WRONG_ANSWER as error:
        return Reading(port.name, error=f"is this a gateway's admin port? {printable(repr(error), 200)}")


def _checked(reading: Reading) -> Reading:
    """Return *reading*. Raises what its rendering raises: another program may answer with anything."""
    render([reading])
    return reading


def _object(body: bytes) -> Json:
    found = parsed(body)
    if not isinstance(found, dict) or found.get("kind") != "Overview":
        raise GatewayError("the answer is not an Overview: is this a gateway's admin port?")
    return found


def message_of(body: bytes) -> str:
    """Return why the admin port refused a request, by the *body* of its answer; empty if it does not say."""
    try:
        return printable(parsed(body)["error"], 200)
    except WRONG_ANSWER:
        return ""


def parsed(body: bytes) -> Any:  # noqa: ANN401 - as json.loads
    """Return the JSON in *body*, with null for what nests deeper than anything that can be printed.

    Raises:
        ValueError: it is not JSON.
    """
    return orjson.loads(without_depth(body))
