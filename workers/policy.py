"""A registered policy: its function, and what the server has learnt about it.

Does not run anything (``workers.evaluation`` does). Mistakes show when the policy is registered, not when
the first review comes in.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from workers.review import Review

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
    """Opaque; for logs and caches on the gateway's side."""
    blocking: bool = False
    """Whether it runs in a thread: said when it was registered, or learnt from a slow run."""
    is_async: bool = False
    """Whether it is declared ``async``; such a policy is never moved to a thread."""
    was_slow: bool = False
    """Whether the log has said that it held up the event loop."""
    quiet_until: float = field(default=0.0, repr=False)
    """No further traceback of this policy is logged before this instant (monotonic seconds)."""
    unlogged: int = field(default=0, repr=False)
    """Failures since the last logged one."""


def make_policy(
    function: PolicyFunction, *, name: str, mutating: bool, description: str, version: str, blocking: bool
) -> Policy:
    """Return the policy; without a *description* it gets the first line of the function's docstring.

    Raises:
        TypeError: *function* is not callable with one Review, or asked to be both async and blocking.
        ValueError: *name* is empty or not printable.
    """
    if not isinstance(name, str):
        raise TypeError(f'the name of a policy is a string, as in @server.policy("name"), found {name!r}')
    if not name.strip() or not name.isprintable():
        raise ValueError(f"the name of a policy is some printable text, found {name!r}")
    if not callable(function):
        raise TypeError(f'policy "{name}" is to be a function of one Review, found {function!r}')
    _check_signature(name, function)
    is_async = inspect.iscoroutinefunction(function)
    if is_async and blocking:
        raise TypeError(f'policy "{name}" is async; only a plain function can be blocking=True')
    summary = description or (inspect.getdoc(function) or "").partition("\n")[0]
    return Policy(name, function, bool(mutating), summary, version, bool(blocking), is_async)


def _check_signature(name: str, function: PolicyFunction) -> None:
    try:
        signature = inspect.signature(function)
    except ValueError:  # some callables written in C do not say
        return
    try:
        signature.bind(None)
    except TypeError as error:
        raise TypeError(f'policy "{name}" is to take one Review: {error}') from None
