"""What of a review is shown: without secrets."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import orjson

from gateway.observe.decisions.credential_forms import is_clean
from gateway.tools.offline.changes import changes
from gateway.tools.preview.model import MAX_CHANGE_LINES
from gateway.tools.replay.about_request import SOCKET, ReportRedactor, as_secret

if TYPE_CHECKING:
    from gateway.engine.dry_run import DryRun
    from gateway.engine.object_review import Json


def _is_secret(found: object) -> bool:
    return isinstance(found, dict) and found.get("kind") == "Secret"


class Shown:
    """The texts and changes of one review."""

    def __init__(self, request: Json, run: DryRun) -> None:
        self._request = request
        self._run = run

    @cached_property
    def _objects(self) -> tuple[ReportRedactor, list[object]]:
        """The object before and after all changes without its secrets, with what redacts texts about it."""
        redactor = ReportRedactor()
        found = [as_secret(one, self._request) for one in (self._request["object"], self._run.final_object)]
        # Of most objects, one search in their JSON tells that there is nothing to replace.
        unclean = [one for one in found if _is_secret(one) or not is_clean(orjson.dumps(one))]
        for one in unclean:
            redactor.learn(one)
        return redactor, [redactor.redacted(one) for one in found] if unclean else found

    def text(self, value: str) -> str:
        """Return the text *value* of a webhook."""
        return SOCKET.sub("the worker's socket", self._objects[0].message(value)) if value else ""

    def changes(self) -> list[str]:
        """Return the lines of the difference that webhooks make."""
        lines = list(changes(*self._objects[1]))
        more = len(lines) - MAX_CHANGE_LINES
        return [*lines[:MAX_CHANGE_LINES], f"… {more} more lines"] if more > 0 else lines
