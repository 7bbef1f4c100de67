"""Text for logs, terminals and error messages, in one line.

No character of a text of foreign origin can end a line, move the cursor or reorder the text beside it.
"""

from __future__ import annotations

from typing import Final

_MORE: Final = "..."


def printable(text: object, limit: int | None = 1000) -> str:
    """Return *text* in one line, with unprintable characters escaped, cut to *limit* characters.

    Characters are escaped as in a Python literal if ``str.isprintable`` is false of them: control characters
    (also C1 and DEL), line and paragraph separators, invisible characters, characters that change the
    direction of writing, and lone surrogates. With a *limit* of None nothing is cut.
    """
    found = str(text)
    if limit is not None:
        found = found[: limit + 1]
    if not found.isprintable():
        found = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in found)
    return found if limit is None or len(found) <= limit else found[: limit - len(_MORE)] + _MORE
