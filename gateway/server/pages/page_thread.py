"""The one thread in which a process makes pages: reviews keep at least half of the interpreter's time."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
R = TypeVar("R")

_EXECUTOR: Final = ThreadPoolExecutor(1, thread_name_prefix="pages")
"""It starts its thread with the first page."""


async def in_thread(work: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Return the result of *work* with these arguments, after that of earlier calls."""
    return await asyncio.get_running_loop().run_in_executor(_EXECUTOR, partial(work, *args, **kwargs))
