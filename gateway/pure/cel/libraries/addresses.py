"""The IP and CIDR functions of Kubernetes, which refuse leading zeros, zones and IPv4-mapped IPv6.

Source: k8s.io/apiserver pkg/cel/library/ip.go, cidr.go; Go net/netip.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import ClassVar, Final

from gateway.pure.cel.errors import EvaluationError
from gateway.pure.cel.functions import function
from gateway.pure.cel.libraries.netip import address_problem, prefix_problem
from gateway.pure.cel.meter import charge, count_steps, count_text
from gateway.pure.cel.operators import no_overload
from gateway.pure.cel.values import quoted

_BITS: Final = re.compile("[0-9]|[1-9][0-9]{1,2}")
_PARSING: Final = 1000
"""Steps to parse an address."""
_LONGEST: Final = 128
"""Characters of the longest address."""


def parse_address(text: str) -> IPv4Address | IPv6Address | None:
    """Return the address *text* as net/netip parses it, zones allowed; None if it is not an address."""
    if len(text) > _LONGEST:
        return None
    count_steps(_PARSING)
    try:
        return IPv6Address(text) if ":" in text else IPv4Address(text)
    except AddressValueError:
        return None


@dataclass(frozen=True, slots=True)
class Ip:
    """An address."""

    cel_type: ClassVar[str] = "net.IP"
    address: IPv4Address | IPv6Address

    @property
    def size(self) -> int:
        """In bytes."""
        return len(self.address.packed)

    def __str__(self) -> str:
        return str(self.address)


@dataclass(frozen=True, slots=True)
class Cidr:
    """An address with the length of a prefix; the bits after it may be set."""

    cel_type: ClassVar[str] = "net.CIDR"
    ip: Ip
    bits: int

    @property
    def size(self) -> int:
        """The size of the prefix in bytes."""
        return math.ceil(self.bits / 8)

    def __str__(self) -> str:
        return f"{self.ip}/{self.bits}"


def _count_message(text: str) -> None:
    """Count the messages that quote *text*, which is not an address if it is long."""
    if len(text) > _LONGEST:
        count_text(3 * len(text))


def _parse_ip(text: str) -> Ip:
    _count_message(text)
    address = parse_address(text)
    if address is None:
        raise EvaluationError(
            f"IP Address {quoted(text)} parse error during conversion from string: {address_problem(text)}"
        )
    if isinstance(address, IPv6Address):
        if address.scope_id is not None:
            raise EvaluationError(f"IP address {quoted(text)} with zone value is not allowed")
        if address.ipv4_mapped is not None:
            raise EvaluationError(f"IPv4-mapped IPv6 address {quoted(text)} is not allowed")
    return Ip(address)


def _parse_cidr(text: str) -> Cidr:
    _count_message(text)
    where, slash, bits = text.rpartition("/")
    address = parse_address(where)
    if (
        not slash
        or address is None
        or "%" in where
        or not _BITS.fullmatch(bits)
        or int(bits) > address.max_prefixlen
    ):
        raise EvaluationError(
            "network address parse error during conversion from string: network address parse error during "
            f"conversion from string: {prefix_problem(text, address)}"
        )
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        raise EvaluationError(
            "network address parse error during conversion from string: "
            f"IPv4-mapped IPv6 address {quoted(text)} is not allowed"
        )
    return Cidr(Ip(address), int(bits))


def _network(ip: Ip, bits: int) -> int:
    return int(ip.address) >> (ip.address.max_prefixlen - bits)


def _contains(cidr: Cidr, ip: Ip) -> bool:
    return cidr.ip.size == ip.size and _network(cidr.ip, cidr.bits) == _network(ip, cidr.bits)


def _traversal(text: str) -> int:
    return math.ceil(len(text) * 0.1)


def _ip(text: str) -> Ip:
    charge(_traversal(text))
    return _parse_ip(text)


def _is_ip(text: str) -> bool:
    charge(_traversal(text))
    try:
        _parse_ip(text)
    except EvaluationError:
        return False
    return True


def _is_canonical(text: str) -> bool:
    charge(math.ceil(len(text) * 2 * 0.1))
    return str(_parse_ip(text)) == text


def _string(value: Ip | Cidr) -> str:
    charge(1)
    return str(value)


def _family(ip: Ip) -> int:
    charge(1)
    return ip.address.version


def _is_unspecified(ip: Ip) -> bool:
    charge(1)
    return ip.address.is_unspecified


def _is_loopback(ip: Ip) -> bool:
    charge(1)
    return ip.address.is_loopback


def _is_link_local_multicast(ip: Ip) -> bool:
    charge(1)
    packed = ip.address.packed
    return packed[:3] == b"\xe0\0\0" if len(packed) == 4 else packed[0] == 0xFF and packed[1] & 0x0F == 0x02


def _is_link_local_unicast(ip: Ip) -> bool:
    charge(1)
    return ip.address.is_link_local


def _is_global_unicast(ip: Ip) -> bool:
    charge(1)
    address = ip.address
    # Unlike ipaddress' is_global this includes private networks.
    return not (
        address.is_unspecified
        or address.is_loopback
        or address.is_multicast
        or address.is_link_local
        or address.packed == b"\xff\xff\xff\xff"
    )


def _cidr(text: str) -> Cidr:
    charge(_traversal(text))
    return _parse_cidr(text)


def _is_cidr(text: str) -> bool:
    charge(_traversal(text))
    try:
        _parse_cidr(text)
    except EvaluationError:
        return False
    return True


def _cidr_ip(cidr: Cidr) -> Ip:
    charge(1)
    return cidr.ip


def _prefix_length(cidr: Cidr) -> int:
    charge(1)
    return cidr.bits


def _masked(cidr: Cidr) -> Cidr:
    charge(1)
    address = cidr.ip.address
    unset = address.max_prefixlen - cidr.bits
    return Cidr(Ip(type(address)(int(address) >> unset << unset)), cidr.bits)


def _contains_ip(cidr: Cidr, ip: Ip) -> bool:
    charge(math.ceil(cidr.size * 2 * 0.1))
    return _contains(cidr, ip)


def _contains_ip_string(cidr: Cidr, text: str) -> bool:
    charge(math.ceil(cidr.size * 2 * 0.1))
    try:
        return _contains(cidr, _parse_ip(text))
    except EvaluationError:
        raise no_overload() from None


def _contains_cidr(cidr: Cidr, other: Cidr) -> bool:
    charge(math.ceil(cidr.size * 2 * 0.1) + math.ceil(cidr.size * 0.1) + 1)
    return cidr.bits <= other.bits and _contains(cidr, other.ip)


def _contains_cidr_string(cidr: Cidr, text: str) -> bool:
    return _contains_cidr(cidr, _parse_cidr(text))


FUNCTIONS: Final = (
    function("string_to_ip", "ip(string) -> net.IP", _ip),
    function("is_ip", "isIP(string) -> bool", _is_ip),
    function("ip_is_canonical", "ip.isCanonical(string) -> bool", _is_canonical),
    function("ip_to_string", "string(net.IP) -> string", _string),
    function("ip_family", "net.IP::family() -> int", _family),
    function("ip_is_unspecified", "net.IP::isUnspecified() -> bool", _is_unspecified),
    function("ip_is_loopback", "net.IP::isLoopback() -> bool", _is_loopback),
    function(
        "ip_is_link_local_multicast", "net.IP::isLinkLocalMulticast() -> bool", _is_link_local_multicast
    ),
    function("ip_is_link_local_unicast", "net.IP::isLinkLocalUnicast() -> bool", _is_link_local_unicast),
    function("ip_is_global_unicast", "net.IP::isGlobalUnicast() -> bool", _is_global_unicast),
    function("string_to_cidr", "cidr(string) -> net.CIDR", _cidr),
    function("is_cidr", "isCIDR(string) -> bool", _is_cidr),
    function("cidr_to_string", "string(net.CIDR) -> string", _string),
    function("cidr_ip", "net.CIDR::ip() -> net.IP", _cidr_ip),
    function("cidr_prefix_length", "net.CIDR::prefixLength() -> int", _prefix_length),
    function("cidr_masked", "net.CIDR::masked() -> net.CIDR", _masked),
    function(
        "cidr_contains_ip_string",
        "net.CIDR::containsIP(string) -> bool",
        _contains_ip_string,
        extra=lambda _, text: _traversal(text),
    ),
    function("cidr_contains_ip_ip", "net.CIDR::containsIP(net.IP) -> bool", _contains_ip),
    function(
        "cidr_contains_cidr_string",
        "net.CIDR::containsCIDR(string) -> bool",
        _contains_cidr_string,
        extra=lambda _, text: _traversal(text),
    ),
    function("cidr_contains_cidr", "net.CIDR::containsCIDR(net.CIDR) -> bool", _contains_cidr),
)
