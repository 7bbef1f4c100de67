"""``PolicyServer``: the policies of a worker, and how they get served."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NoReturn, TypeVar

from workers.listen import Tls, parse_address
from workers.policy import Policy, PolicyFunction, make_policy
from workers.serving import Serving

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Function = TypeVar("Function", bound=PolicyFunction)

DEFAULT_LISTEN = "127.0.0.1:50051"
DEFAULT_GRACE_S = 10.0
"""Seconds; as long as the gateway drains by default, and well within the 30 s that Kubernetes gives a pod."""


class PolicyServer:
    """Serves policies to gateways.

    Register functions with ``policy``; then ``main`` runs a program, or ``start`` and ``stop`` a server
    within one.
    """

    def __init__(self) -> None:
        self._policies: dict[str, Policy] = {}
        self._serving: Serving | None = None

    def __repr__(self) -> str:
        return f"<PolicyServer policies={len(self._policies)} {self._serving or 'stopped'}>"

    @property
    def policies(self) -> Mapping[str, Policy]:
        """What is registered, by name, in the order of registration."""
        return MappingProxyType(self._policies)

    def policy(
        self,
        name: str,
        *,
        mutating: bool = False,
        description: str = "",
        version: str = "",
        blocking: bool = False,
    ) -> Callable[[Function], Function]:
        """Return a decorator that registers a function of one Review as policy *name*.

        The function returns None to allow and raises ``Denied`` to deny; it may be ``async``. The decorator
        gives it back unchanged.

        Args:
            name: what ``clientConfig.worker.policy`` names.
            mutating: whether it may change the object.
            description: one line for ListPolicies; the docstring's first line where empty.
            version: of its code and settings; opaque.
            blocking: run it in a thread from the start, since it waits for something. A plain function
                that is not marked so moves to a thread once it has held up the event loop for over 5 ms.

        Raises:
            TypeError: not a function of one Review; raised when the function is registered.
            ValueError: the name is empty, or taken by another policy.
        """
        if callable(name):
            raise TypeError('a policy needs a name: write @server.policy("name")')

        def register(function: Function) -> Function:
            policy = make_policy(
                function,
                name=name,
                mutating=mutating,
                description=description,
                version=version,
                blocking=blocking,
            )
            if name in self._policies:
                taken = self._policies[name].function
                raise ValueError(f'policy "{name}" is already registered, by {taken!r}')
            self._policies[name] = policy
            return function

        return register

    async def start(self, *listen: str, tls: Tls | None = None, reuse_port: bool = False) -> tuple[str, ...]:
        """Serve on the addresses in *listen* and return them, with the port in place of a 0.

        Args:
            listen: ``HOST:PORT`` or ``unix:PATH``; 127.0.0.1:50051 where none is given.
            tls: certificate to serve with, on all of the addresses.
            reuse_port: share the port with other processes that do the same.

        Raises:
            StartError: an address or a file cannot be used.
            ValueError: an address is none.
            RuntimeError: it is serving already.
        """
        if self._serving is not None:
            raise RuntimeError(f"the server is started already: {self._serving!r}")
        addresses = [parse_address(text) for text in listen or (DEFAULT_LISTEN,)]
        serving = Serving(self._policies, reuse_port=reuse_port)
        await serving.start(addresses, tls)
        self._serving = serving
        return serving.addresses

    async def stop(self, grace_s: float = DEFAULT_GRACE_S) -> int:
        """Drain for at most *grace_s* seconds and stop. Does nothing if it is not serving.

        Returns how many threads are still in a policy: nothing can stop those.
        """
        serving, self._serving = self._serving, None
        return await serving.stop(grace_s) if serving is not None else 0

    def main(self, argv: Sequence[str] | None = None) -> NoReturn:
        """Serve as a program until SIGTERM or SIGINT; *argv* is ``sys.argv[1:]`` where None.

        Raises:
            SystemExit: always. 0 after a stop, 1 if it could not start, 2 for bad usage.
        """
        from workers.main import main

        raise SystemExit(main(self, argv))
