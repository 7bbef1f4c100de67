"""The patch of an answer, and its check."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.pure.core import final_patch as module
from gateway.pure.core.final_patch import final_patch
from tests.core.build import POD, request


def test_a_patch_that_does_not_give_the_final_object_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "diff", lambda *_: [{"op": "add", "path": "/spec/x", "value": 1}])
    with pytest.raises(AssertionError, match="the derived patch does not give the final object"):
        final_patch(request(), {**POD, "spec": {"replicas": 1, "x": True}})


def test_an_object_that_was_changed_in_place_is_an_error() -> None:
    given = request()
    held: Any = given.object
    held["spec"]["x"] = 1
    with pytest.raises(AssertionError, match="the derived patch does not give the final object"):
        final_patch(given, {**held, "y": 1})
