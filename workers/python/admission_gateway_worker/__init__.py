"""SDK for policy workers in Python: a policy is a function, and ``PolicyServer`` serves it.

README.md of the distribution has a complete worker; ``admission_gateway_worker.samples`` has sample policies.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from admission_gateway_worker.review import Cause, Denied, Review
    from admission_gateway_worker.server import PolicyServer

__version__ = "0.1.0"
__all__ = ["PolicyServer", "Review", "Denied", "Cause"]

_MODULES: Final = {"PolicyServer": "server", "Review": "review", "Denied": "review", "Cause": "review"}


def __getattr__(name: str) -> object:
    """Import what a policy needs at its first use: the gateway needs other modules of this package only."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value
