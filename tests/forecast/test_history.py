"""The tables are those of Kubernetes' own modules. Skipped where Go or a module is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gateway.tools.forecast.fields import FIELDS_FILE
from gateway.tools.forecast.kinds import KINDS_FILE
from tests.e2e.golang import CannotBuild
from tests.forecast import history

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.process


@pytest.mark.parametrize(("file", "make"), [(KINDS_FILE, history.kinds), (FIELDS_FILE, history.fields)])
def test_the_tables_are_those_of_the_modules(file: Path, make: Callable[[], str]) -> None:
    try:
        expected = make()
    except CannotBuild as error:
        pytest.skip(str(error))
    assert file.read_text() == expected, "run `python -m tests.forecast.history`"
