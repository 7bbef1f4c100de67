from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gateway.pure.core import matching

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module", autouse=True)
def always_indexed() -> Iterator[None]:
    """Use the index of objectSelectors for any number of webhooks; other tests have few, and do without."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matching, "INDEXED", 0)
        yield
