"""A registered policy: its function, its attributes, and run-time observations.

``evaluation`` runs policies. Errors in a registration are raised at once, not at the first review.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from admission_gateway_worker.review import Review
from admission_gateway_worker.slowness import Slowness

PolicyFunction = Callable[[Review], Awaitable[None] | None]


@dataclass(slots=True, eq=False)
class Policy:
    """One policy that a worker serves."""

    name: str
    function: PolicyFunction
    mutating: bool = False
    """Whether it may answer with a patch."""
    description: str = ""
    version: str = ""
    """Opaque version, for logs and caches of the gateway."""
    blocking: bool = False
    """Whether it always runs in a thread."""
    is_async: bool = False
    """Whether the function is ``async``; such a policy never runs in a thread."""
    slowness: Slowness = field(default_factory=Slowness, repr=False)
    was_slow: bool = False
    """Whether it has been logged that it blocks the event loop."""
    no_failure_until: float = field(default=0.0, repr=False)
    """Time before which no further failure is logged, monotonic seconds."""
    unlogged_failures: int = field(default=0, repr=False)
    """Failures since the last logged failure."""


def make_policy(
    function: PolicyFunction, *, name: str, mutating: bool, description: str, version: str, blocking: bool
) -> Policy:
    """Return the policy; the default *description* is the first line of the function's docstring.

    Raises:
        TypeError: *function* is not callable with one Review, or is both async and blocking.
        ValueError: *name* is empty or not printable.
    """
    if not isinstance(name, str):
        raise TypeError(
            f'the name of a policy has to be a string, as in @server.policy("name"); found {name!r}'
        )
    if not name.strip() or not name.isprintable():
        raise ValueError(f"the name of a policy has to be printable and not empty; found {name!r}")
    if not callable(function):
        raise TypeError(f'policy "{name}" has to be a function of one Review; found {function!r}')
    _check_signature(name, function)
    is_async = inspect.iscoroutinefunction(function)
    if is_async and blocking:
        raise TypeError(f'policy "{name}" is async; only a plain function can be blocking=True')
    summary = description or (inspect.getdoc(function) or "").partition("\n")[0]
    return Policy(name, function, bool(mutating), summary, version, bool(blocking), is_async)


def _check_signature(name: str, function: PolicyFunction) -> None:
    try:
        signature = inspect.signature(function)
    except ValueError:  # some callables in C have no signature
        return
    try:
        signature.bind(None)
    except TypeError as error:
        raise TypeError(f'policy "{name}" has to accept one Review: {error}') from None
