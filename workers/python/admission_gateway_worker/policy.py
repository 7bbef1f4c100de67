"""A registered policy: its function, its attributes, and run-time observations.

``evaluation`` runs policies. Errors in a registration are raised at once, not at the first review.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from admission_gateway_worker.invoke import never_suspends
from admission_gateway_worker.parameters import PreparedParameters
from admission_gateway_worker.review import Review
from admission_gateway_worker.sharing import Sharing
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
    suspends: bool = False
    """Whether its calls may go on in a task: an ``async`` function with an ``await``, or one that has
    returned an awaitable."""
    parameters: Mapping[str, Any] | None = None
    """JSON Schema of its parameters. None if it takes none."""
    prepare: Callable[[dict[str, Any]], object] = dict
    """Makes ``Review.parameters`` from the parameters."""
    parameters_schema: str = ""
    """JSON of ``parameters``. Empty if it takes none."""
    prepared: PreparedParameters = field(default_factory=PreparedParameters, repr=False)
    slowness: Slowness = field(default_factory=Slowness, repr=False)
    sharing: Sharing = field(init=False, repr=False)
    was_slow: bool = False
    """Whether it has been logged that it blocks the event loop."""
    no_failure_until: float = field(default=0.0, repr=False)
    """Time before which no further failure is logged, monotonic seconds."""
    unlogged_failures: int = field(default=0, repr=False)
    """Failures since the last logged failure."""

    def __post_init__(self) -> None:
        self.sharing = Sharing(self.function)


def make_policy(
    function: PolicyFunction,
    *,
    name: str,
    mutating: bool,
    description: str,
    version: str,
    blocking: bool,
    parameters: Mapping[str, Any] | None = None,
    prepare: Callable[[dict[str, Any]], object] = dict,
) -> Policy:
    """Return the policy; the default *description* is the first line of the function's docstring.

    Raises:
        TypeError: *function* is not callable with one Review, or is both async and blocking; *parameters* is
            no JSON object, or missing beside *prepare*.
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
    schema = _schema(name, parameters)
    if not callable(prepare):
        raise TypeError(f'prepare of policy "{name}" has to be a function; found {prepare!r}')
    if parameters is None and prepare is not dict:
        raise TypeError(f'policy "{name}" has prepare, but no parameters: give it their JSON Schema')
    code = getattr(function, "__code__", None)
    suspends = is_async and (code is None or not never_suspends(code))
    return Policy(
        *(name, function, bool(mutating), summary, version, bool(blocking), is_async, suspends),
        *(parameters, prepare, schema),
    )


def _schema(name: str, parameters: Mapping[str, Any] | None) -> str:
    if parameters is None:
        return ""
    if not isinstance(parameters, Mapping):
        raise TypeError(
            f'parameters of policy "{name}" have to be a JSON Schema, a dict; found {parameters!r}'
        )
    try:
        return orjson.dumps(dict(parameters)).decode()
    except TypeError as error:
        raise TypeError(f'parameters of policy "{name}" cannot be written as JSON: {error}') from None


def _check_signature(name: str, function: PolicyFunction) -> None:
    try:
        signature = inspect.signature(function)
    except ValueError:  # some callables in C have no signature
        return
    try:
        signature.bind(None)
    except TypeError as error:
        raise TypeError(f'policy "{name}" has to accept one Review: {error}') from None
