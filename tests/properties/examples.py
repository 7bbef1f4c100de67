"""Examples that laws share: to draw one takes longer than to try a law on it."""

from __future__ import annotations

import inspect
from functools import cached_property
from typing import TYPE_CHECKING, Any

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Callable


class Examples:
    """Examples by their names, of which each law takes those that its parameters name.

    *number* examples are drawn, once in a process; with the profile ``thorough`` thirty times as many.
    """

    def __init__(self, number: int, **strategies: st.SearchStrategy[Any]) -> None:
        self._number = number
        self._strategies = strategies

    @cached_property
    def _drawn(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        number = self._number * settings().max_examples // 100

        @settings(max_examples=number, phases=[Phase.generate])
        @given(st.fixed_dictionaries(self._strategies))
        def draw(example: dict[str, Any]) -> None:
            found.append(example)

        draw()
        return found

    def law(self, law: Callable[..., None]) -> Callable[[], None]:
        """Decorate a function that asserts a *law*: the test tries it on each example."""
        names = list(inspect.signature(law).parameters)

        def test() -> None:
            for example in self._drawn:
                arguments = {name: example[name] for name in names}
                try:
                    law(**arguments)
                except Exception as error:
                    # Hypothesis finds a smaller example, which it reports.
                    given(**{name: self._strategies[name] for name in names})(law)()
                    error.add_note(f"with {arguments}")
                    raise

        test.__name__, test.__doc__, test.__module__ = law.__name__, law.__doc__, law.__module__
        return test
