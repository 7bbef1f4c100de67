"""``PolicyServer``: the policies of a worker, and its server."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from admission_gateway_worker.counters import Counters
from admission_gateway_worker.listen import Tls, parse_address
from admission_gateway_worker.policy import Policy, PolicyFunction, make_policy
from admission_gateway_worker.serving import Serving

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from admission_gateway_worker.metrics import MetricsServer

    Function = TypeVar("Function", bound=PolicyFunction)

DEFAULT_LISTEN = "127.0.0.1:50051"
DEFAULT_GRACE_S = 10.0
"""Seconds; the gateway's default drain time, and less than the 30 s of a pod's grace period."""


class PolicyServer:
    """Serves policies to gateways.

    Register functions with ``policy``. Then ``main`` runs a program, or ``start`` and ``stop`` a server in an
    existing program.
    """

    def __init__(self) -> None:
        self._policies: dict[str, Policy] = {}
        self._serving: Serving | None = None
        self._metrics: MetricsServer | None = None

    def __repr__(self) -> str:
        return f"<PolicyServer policies={len(self._policies)} {self._serving or 'stopped'}>"

    @property
    def policies(self) -> Mapping[str, Policy]:
        """The policies by name, in the order of registration."""
        return MappingProxyType(self._policies)

    @property
    def metrics_address(self) -> str:
        """HOST:PORT of the metrics; empty if there are none."""
        return "" if self._metrics is None else self._metrics.address

    def policy(
        self,
        name: str,
        *,
        mutating: bool = False,
        description: str = "",
        version: str = "",
        blocking: bool = False,
        parameters: Mapping[str, Any] | None = None,
        prepare: Callable[[dict[str, Any]], object] = dict,
    ) -> Callable[[Function], Function]:
        """Return a decorator that registers a function of one Review as policy *name*.

        The function returns None to allow and raises ``Denied`` to deny; it may be ``async``. The decorator
        returns it unchanged.

        Args:
            name: the value of ``clientConfig.worker.policy``.
            mutating: whether it may change the object.
            description: one line for ListPolicies, by default the first line of the docstring.
            version: opaque version of its code and settings.
            blocking: run it in a thread, because it blocks. Any other plain function runs in a thread
                while it repeatedly blocks the event loop for more than 5 ms.
            parameters: JSON Schema of ``clientConfig.worker.parameters``. None if it takes none.
            prepare: makes ``review.parameters`` from the parameters, once for each value.

        Raises:
            TypeError: not a function of one Review; raised at the registration.
            ValueError: the name is empty, or already in use.
        """
        if callable(name):
            raise TypeError('a policy needs a name: use @server.policy("name")')

        def register(function: Function) -> Function:
            policy = make_policy(
                function,
                name=name,
                mutating=mutating,
                description=description,
                version=version,
                blocking=blocking,
                parameters=parameters,
                prepare=prepare,
            )
            if name in self._policies:
                taken = self._policies[name].function
                raise ValueError(f'policy "{name}" is already registered, by {taken!r}')
            self._policies[name] = policy
            return function

        return register

    async def start(
        self,
        *listen: str,
        tls: Tls | None = None,
        reuse_port: bool = False,
        metrics_listen: str = "",
        counters: Counters | None = None,
    ) -> tuple[str, ...]:
        """Serve on the addresses *listen* and return them, with the chosen port instead of 0.

        Args:
            listen: ``HOST:PORT`` or ``unix:PATH``; default 127.0.0.1:50051.
            tls: serving certificate for all addresses.
            reuse_port: share the port with other processes.
            metrics_listen: ``HOST:PORT`` of the metrics, over plain HTTP at ``/metrics``. Empty for none.
            counters: counters that another process serves.

        Raises:
            StartError: an address or a file is unusable.
            ValueError: an address is malformed.
            RuntimeError: the server is already started.
        """
        if self._serving is not None:
            raise RuntimeError(f"the server is already started: {self._serving!r}")
        addresses = [parse_address(text) for text in listen or (DEFAULT_LISTEN,)]
        if metrics_listen:
            from admission_gateway_worker.metrics import MetricsServer, WorkerCollector

            counters = Counters(self._policies)
            collector = WorkerCollector(tuple(self._policies), [counters], children=tuple)
            self._metrics = MetricsServer(collector)
            await self._metrics.start(metrics_listen)
        serving = Serving(self._policies, reuse_port=reuse_port, counters=counters)
        try:
            await serving.start(addresses, tls)
        except BaseException:
            self._stop_metrics()
            raise
        self._serving = serving
        return serving.addresses

    async def stop(self, grace_s: float = DEFAULT_GRACE_S) -> int:
        """Drain for at most *grace_s* seconds and stop. Does nothing if the server is not started.

        Returns the number of threads that still run a policy, which cannot be stopped.
        """
        serving, self._serving = self._serving, None
        try:
            return await serving.stop(grace_s) if serving is not None else 0
        finally:
            self._stop_metrics()

    def _stop_metrics(self) -> None:
        metrics, self._metrics = self._metrics, None
        if metrics is not None:
            metrics.stop()

    def main(self, argv: Sequence[str] | None = None) -> NoReturn:
        """Run as a program until SIGTERM or SIGINT; the default of *argv* is ``sys.argv[1:]``.

        Raises:
            SystemExit: always. 0 after a shutdown, 1 if the start fails, 2 after a usage error.
        """
        from admission_gateway_worker.main import main

        raise SystemExit(main(self, argv))
