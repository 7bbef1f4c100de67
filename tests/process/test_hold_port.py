"""Two gateways never share a port, whatever the number of their processes."""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING

import pytest

from gateway.base.errors import ConfigError
from gateway.server.serving.sockets import FRONT_END, hold_port, listen, open_sockets, share_port
from tests.waiting import together

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


@contextlib.contextmanager
def closing(sockets: Sequence[socket.socket]) -> Iterator[int]:
    """Close *sockets* at the end; gives their port."""
    try:
        yield sockets[0].getsockname()[1]
    finally:
        for sock in sockets:
            sock.close()


def of_process(address: str) -> list[socket.socket]:
    """Return listening sockets of *address* for one of several processes."""
    sockets = share_port(address, FRONT_END)
    listen(sockets)
    return sockets


def has_ipv6() -> bool:
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as sock:
        sock.bind(("::1", 0))
        return True
    return False


OVERLAPPING = [
    ("127.0.0.1", "127.0.0.1"),
    ("127.0.0.1", "0.0.0.0"),
    ("0.0.0.0", "127.0.0.1"),
    ("0.0.0.0", "0.0.0.0"),
    *(
        [("[::]", "127.0.0.1"), ("127.0.0.1", "[::]"), ("[::]", "[::1]"), ("[::1]", "[::]")]
        if has_ipv6()
        else []
    ),
]


@pytest.mark.parametrize("listens", [True, False])
@pytest.mark.parametrize(("first", "second"), OVERLAPPING)
def test_a_second_gateway_with_several_processes_is_refused(
    first: str, second: str, *, listens: bool
) -> None:
    """Also while the processes of the first one do not listen."""
    with closing(hold_port(f"{first}:0", FRONT_END)) as port, contextlib.ExitStack() as processes:
        if listens:
            for _ in range(2):
                processes.enter_context(closing(of_process(f"{first}:{port}")))
        with pytest.raises(ConfigError) as caught:
            hold_port(f"{second}:{port}", FRONT_END)
        (problem,) = caught.value.problems
        assert problem.message.startswith(
            f"cannot listen on {second}:{port} (HTTPS front end): Address already"
        )
        with pytest.raises(ConfigError, match="Address already in use"):
            open_sockets(f"{second}:{port}")
        processes.enter_context(closing(of_process(f"{first}:{port}")))


@pytest.mark.parametrize(("first", "second"), OVERLAPPING)
def test_several_processes_are_refused_beside_another_program(first: str, second: str) -> None:
    with (
        closing(open_sockets(f"{first}:0")) as port,
        pytest.raises(ConfigError, match="Address already in use"),
    ):
        hold_port(f"{second}:{port}", FRONT_END)


def test_other_addresses_of_a_port_are_free() -> None:
    with (
        closing(hold_port("127.0.0.1:0", FRONT_END)) as port,
        closing(hold_port(f"127.0.0.2:{port}", FRONT_END)),
    ):
        pass


@pytest.mark.parametrize("opened", [of_process, open_sockets])
def test_closed_connections_of_an_earlier_gateway_do_not_matter(
    opened: Callable[[str], list[socket.socket]],
) -> None:
    with closing(opened("127.0.0.1:0")) as port:
        client = socket.create_connection(("127.0.0.1", port))
    with contextlib.suppress(OSError):
        client.close()
    sockets = opened(f"127.0.0.1:{port}")
    with closing(sockets), socket.create_connection(("127.0.0.1", port)) as client:
        sockets[0].settimeout(None)
        accepted, _ = sockets[0].accept()
        accepted.close()  # first: it stays in TIME_WAIT
        assert client.recv(1) == b""
    for _ in range(2):
        with (
            closing(hold_port(f"127.0.0.1:{port}", FRONT_END)),
            closing(of_process(f"127.0.0.1:{port}")),
        ):
            pass


def test_of_gateways_that_start_together_one_gets_the_port() -> None:
    with closing(open_sockets("127.0.0.1:0")) as port:
        pass
    held, refused = together(lambda: hold_port(f"127.0.0.1:{port}", FRONT_END), ConfigError)
    sockets = [sock for each in held for sock in each]
    with closing(sockets):
        assert (len(sockets), refused) == (1, 7)
