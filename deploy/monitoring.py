"""Writes everything that is made from the table of metrics: ``make monitoring``.

    python -m deploy.monitoring

``gateway.telemetry.definitions`` has the metrics. The tables of docs/metrics.md are between two comments.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from gateway.telemetry.definitions import DEFINITIONS

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT: Final = Path(__file__).resolve().parents[1]
METRICS_PAGE: Final = ROOT / "docs" / "metrics.md"


def outputs() -> dict[Path, str]:
    """Return the files that are made here, each with its content."""
    return {METRICS_PAGE: _with_tables(METRICS_PAGE.read_text(), {"metrics": _metrics_table()})}


def _metrics_table() -> str:
    return _table(
        ("name", "type", "labels", "meaning"),
        (
            (f"`{each.name}`", each.kind, ", ".join(f"`{label}`" for label in each.labels), each.text)
            for each in DEFINITIONS
        ),
    )


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [_row(head), "|" + "---|" * len(head), *map(_row, rows)]
    return "\n".join(lines) + "\n"


def _row(cells: tuple[str, ...]) -> str:
    return "|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|"


def _with_tables(page: str, tables: dict[str, str]) -> str:
    """Return *page* with each of *tables* between the comments with its name."""
    for name, table in tables.items():
        begin, end = f"<!-- {name}: made by `make monitoring` -->\n", f"<!-- end of {name} -->\n"
        before, is_begun, rest = page.partition(begin)
        _, is_ended, after = rest.partition(end)
        assert is_begun and is_ended, f"expected the comments of {name}"  # noqa: PT018
        page = f"{before}{begin}\n{table}\n{end}{after}"
    return page


if __name__ == "__main__":
    for file, content in outputs().items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
