"""A hook of mkdocs: pages of which there are many alike do not come before others in the search."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mkdocs.structure.pages import Page

_MANY: Final = re.compile(r"(catalogue|runbooks)/(?!index\.md)")
_BOOST: Final = 0.3


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Return *markdown* as it is. *page* gets a lower weight in the search, if it is one of many."""
    if _MANY.match(page.file.src_uri):
        page.meta.setdefault("search", {"boost": _BOOST})
    return markdown
