"""What is made from the table of metrics is up to date."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from deploy.monitoring import ROOT, outputs

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("file", outputs(), ids=lambda file: str(file.relative_to(ROOT)))
def test_the_file_is_up_to_date_with_the_table_of_metrics(file: Path) -> None:
    assert file.read_text() == outputs()[file], "run: make monitoring"
