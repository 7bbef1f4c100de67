"""The syntax of addresses: ``HOST:PORT`` to listen on, gRPC names to call.

Source: gRPC doc/naming.md; RFC 3986 section 3.2.2 for the brackets of IPv6; unix(7).
"""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING

from gateway.base.text import shown, url_without_secrets

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_HOST_PART = r"[A-Za-z0-9_](?:[-A-Za-z0-9_]{0,61}[A-Za-z0-9_])?"
"""RFC 1035 section 2.3.4. A resolver raises an error for a longer label."""
_HOST = re.compile(rf"{_HOST_PART}(?:\.{_HOST_PART})*\.?")
_PORT = re.compile(r"[0-9]{1,5}")
_SCHEME = re.compile(r"[A-Za-z][-A-Za-z0-9+.]*")
_SOCKET_NAME_BYTES = 107
"""sun_path has 108 bytes on Linux; one of them is a NUL before or after the name."""

_TARGET_FORMS = (
    "expected dns:///HOST:PORT, HOST:PORT, unix:PATH, unix:///PATH, unix-abstract:NAME, "
    "ipv4:ADDRESS:PORT[,...] or ipv6:[ADDRESS]:PORT[,...]"
)


def parse_host_port(text: str) -> tuple[str, int]:
    """Return host and port (0 to 65535) of ``HOST:PORT``; an IPv6 host comes without its brackets.

    Raises:
        ValueError: host or port is missing or invalid.
    """
    host, colon, port = text.rpartition(":")
    if not colon or not _PORT.fullmatch(port) or int(port) > 65535:
        raise ValueError(f"found {_quoted(text)}, expected HOST:PORT with a port of at most 65535")
    if host.startswith("[") and host.endswith("]"):
        ip = host[1:-1]
        if _is_address(ipaddress.IPv6Address, ip):
            return ip, int(port)
    elif len(host) <= 253 and _HOST.fullmatch(host) and not _looks_like_bad_ipv4(host):
        return host, int(port)
    raise ValueError(
        f"found {_quoted(text)}, expected HOST:PORT with a name, an IPv4 address or [an IPv6 address]; "
        "0.0.0.0 and [::] stand for all addresses"
    )


def listen_address(text: str) -> str | None:
    """Return the problem of an address to listen on, None if it is valid; port 0 is any free port."""
    try:
        parse_host_port(text)
    except ValueError as error:
        return str(error)
    return None


def is_loopback_address(text: str) -> bool:
    """Whether only processes of this machine reach *text*, HOST:PORT or unix:PATH."""
    return text.startswith("unix:") or is_loopback_host(parse_host_port(text)[0])


def is_loopback_host(host: str) -> bool:
    """Whether *host*, a name or an address, is this machine for all programs."""
    host = host.lower().rstrip(".")
    if host == "localhost" or host.endswith(".localhost"):
        # Names that resolve to loopback only: RFC 6761 section 6.3.
        return True
    try:
        address = ipaddress.ip_address(host)
        # A socket for both families has IPv4 addresses as ::ffff:127.0.0.1.
        return (getattr(address, "ipv4_mapped", None) or address).is_loopback
    except ValueError:
        return False


def server_name(text: str) -> str | None:
    """Return the problem of a server name, None if it is valid."""
    if (len(text) <= 253 and _HOST.fullmatch(text)) or _is_address(ipaddress.IPv6Address, text):
        return None
    return f"found {_quoted(text)}, expected a DNS name or an IP address"


def target(text: str) -> str | None:
    """Return the problem of the gRPC name of workers, None if it is valid."""
    scheme, colon, rest = text.partition(":")
    check = _SCHEMES.get(scheme) if colon else None
    if check:
        return check(text, rest)
    if "://" in text and _SCHEME.fullmatch(scheme):
        return f"found {_quoted(text)} with the unknown scheme {shown(scheme)}, {_TARGET_FORMS}"
    return _host_port(text, text)


def is_local(text: str) -> bool:
    """Whether the gRPC name *text* is a unix socket."""
    return text.startswith(("unix:", "unix-abstract:"))


def below(folder: Path, text: str) -> str:
    """The gRPC name *text*, in which the relative path of a unix socket is made absolute by *folder*."""
    if not text.startswith("unix:") or text.startswith("unix:/"):
        return text
    return f"unix:{folder / text.removeprefix('unix:')}"


def _quoted(text: str) -> str:
    is_path = text.startswith(("unix:", "unix-abstract:"))
    return shown(text if is_path or not re.search("://|[@?#]", text) else url_without_secrets(text))


def _host_port(text: str, host_port: str) -> str | None:
    try:
        _, port = parse_host_port(host_port)
    except ValueError:
        return f"found {_quoted(text)}, {_TARGET_FORMS}"
    return None if port else f"found {_quoted(text)}, expected a port from 1 to 65535"


def _dns(text: str, rest: str) -> str | None:
    if rest.startswith("//") and not rest.startswith("///"):
        return (
            f"found {_quoted(text)}, which names a DNS server; expected the system's: dns:///HOST:PORT "
            "with three slashes"
        )
    return _host_port(text, rest.removeprefix("///"))


def _unix(text: str, rest: str) -> str | None:
    if rest.startswith("//") and not rest.startswith("///"):
        return f"found {_quoted(text)}, expected unix:PATH, or unix:///PATH with an absolute path"
    return _socket_name(text, rest.removeprefix("//"))


def _socket_name(text: str, name: str) -> str | None:
    length = len(name.encode())
    if not name or length > _SOCKET_NAME_BYTES:
        return f"found {_quoted(text)} with a name of {length} bytes, expected 1 to {_SOCKET_NAME_BYTES}"
    if not name.isprintable() or any(c in " %?#" for c in name):
        return f'found {_quoted(text)}, expected a name without blanks, "%", "?" and "#"'
    return None


def _ip_list(
    version: type[ipaddress.IPv4Address | ipaddress.IPv6Address],
) -> Callable[[str, str], str | None]:
    def check(text: str, rest: str) -> str | None:
        for entry in rest.split(","):
            address, _, port = entry.rpartition(":")
            if version is ipaddress.IPv6Address:
                address = address[1:-1] if address.startswith("[") and address.endswith("]") else ""
            if not _is_address(version, address):
                return f"found {_quoted(text)} with {_quoted(entry)}, {_TARGET_FORMS}"
            if not _PORT.fullmatch(port) or not 1 <= int(port) <= 65535:
                return f"found {_quoted(text)} with {_quoted(entry)}, expected a port from 1 to 65535"
        return None

    return check


_SCHEMES: dict[str, Callable[[str, str], str | None]] = {
    "dns": _dns,
    "unix": _unix,
    "unix-abstract": _socket_name,
    "ipv4": _ip_list(ipaddress.IPv4Address),
    "ipv6": _ip_list(ipaddress.IPv6Address),
}


def _is_address(version: type[ipaddress.IPv4Address | ipaddress.IPv6Address], text: str) -> bool:
    try:
        version(text)
    except ValueError:
        return False
    return True


def _looks_like_bad_ipv4(host: str) -> bool:
    # The last label of a host name is not numeric (RFC 1123 section 2.1): 10.0.0.256 is a mistyped address.
    last = host.removesuffix(".").rpartition(".")[2]
    return last.isdigit() and not _is_address(ipaddress.IPv4Address, host)
