"""Ready-made policies: ``python -m admission_gateway_worker.policies`` serves them.

Each module that has ``DEFINITIONS`` is found by itself.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from admission_gateway_worker.policies.definition import Definition
    from admission_gateway_worker.server import PolicyServer


def definitions() -> tuple[Definition, ...]:
    """Return the policies of the library, by name."""
    modules = (
        import_module(f"{__name__}.{each.name}") for each in iter_modules(__path__) if each.name != "__main__"
    )
    found = (each for module in modules for each in getattr(module, "DEFINITIONS", ()))
    return tuple(sorted(found, key=lambda each: each.name))


def server_of(served: Iterable[Definition]) -> PolicyServer:
    """Return a server with the policies *served*."""
    # Imported late: they import this package.
    from admission_gateway_worker import PolicyServer
    from admission_gateway_worker.policies.malformed import denying_malformed

    server = PolicyServer()
    for each in served:
        server.policy(
            each.name,
            mutating=each.mutating,
            description=each.summary,
            parameters=each.parameters,
            prepare=each.prepare,
            blocking=each.blocking,
        )(denying_malformed(each.function))
    return server
