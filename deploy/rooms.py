"""Writes the picture of the gateway's rooms and the table of their parts into docs/architecture.md.

    python -m deploy.rooms

A room is a package of ``gateway``. Its sentence, and those of its parts, are the docstrings of the code; the
arrows are its imports. ``make rooms`` runs this.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING, Final

import grimp

from deploy.monitoring import table, with_tables

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "architecture.md"
_PACKAGE: Final = "gateway"


def outputs() -> dict[Path, str]:
    """Return the files that are made here, each with its content."""
    found = in_order(imports())
    rows = ((f"`{path}`", text) for room in found for path, text in _parts(room))
    tables = {"rooms": picture(found), "parts": table(("part", "content"), rows)}
    return {PAGE: with_tables(PAGE.read_text(), tables, "rooms")}


def imports() -> dict[str, set[str]]:
    """Return each room with the rooms that it imports."""
    graph = grimp.build_graph(_PACKAGE, cache_dir=None)
    rooms = {
        child.rpartition(".")[2]: {child, *graph.find_descendants(child)}
        for child in graph.find_children(_PACKAGE)
        if (ROOT / child.replace(".", "/")).is_dir()
    }
    return {
        room: {
            other
            for other in rooms.keys() - {room}
            if any(graph.find_modules_directly_imported_by(one) & rooms[other] for one in modules)
        }
        for room, modules in rooms.items()
    }


def in_order(imported: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Return the rooms of *imported*, each before those that it imports.

    Raises:
        ValueError: some import each other in a circle.
    """
    left, found = dict(imported), {}
    while left:
        free = sorted(room for room in left if not any(room in others for others in left.values()))
        if not free:
            raise ValueError(f"the rooms {', '.join(sorted(left))} import each other in a circle")
        found[free[0]] = left.pop(free[0])
    return found


def picture(rooms: Mapping[str, set[str]]) -> str:
    """Return the picture of *rooms*, which are in order: below each, arrows to those that it imports."""
    names = list(rooms)
    width = max(map(len, names))
    last = [max(map(names.index, imported), default=0) for imported in rooms.values()]
    lines = ["```text"]
    for row, name in enumerate(names):
        above, beside = "", ""
        for column, imported in enumerate(rooms.values()):
            if column < row:
                above += " │" if row <= last[column] else "  "
                beside += " ▼" if name in imported else " │" if row < last[column] else "  "
        corners = "├┤" if row else "┌┐"
        lines.append(f"{corners[0]}{'─' * (width + 2)}{corners[1]}{above}")
        lines.append(f"│ {name:{width}} │{beside} {'●' if rooms[name] else '○'}")
    lines += [f"└{'─' * (width + 2)}┘", "```"]
    return "".join(f"{line.rstrip()}\n" for line in lines)


def _parts(room: str) -> Iterator[tuple[str, str]]:
    """Yield the path of *room* and of each part of it, with the first sentence or paragraph about it."""
    folder = ROOT / _PACKAGE / room
    yield f"{_PACKAGE}/{room}/", f"**{_about(folder / '__init__.py')}**"
    for path in sorted(folder.iterdir(), key=lambda path: (path.is_file(), path.name)):
        if (path / "__init__.py").is_file():
            yield f"{path.relative_to(ROOT)}/", _about(path / "__init__.py")
        elif path.suffix == ".py" and path.stem != "__init__":
            yield f"{path.relative_to(ROOT)}", _about(path)


def _about(module: Path) -> str:
    """Return the first paragraph of the docstring of *module* as Markdown."""
    text = ast.get_docstring(ast.parse(module.read_text()))
    assert text, f"{module} has no docstring"
    return " ".join(text.partition("\n\n")[0].split()).replace("``", "`")


if __name__ == "__main__":
    for file, content in outputs().items():
        file.write_text(content)
