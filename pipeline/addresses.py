"""Addresses: which are on the public internet, and which list of networks one is in. Pure, and loads nothing of weight."""

from __future__ import annotations

import ipaddress
import socket
import unicodedata
from collections.abc import Collection
from contextlib import suppress

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_V6_SPECIAL = tuple(ipaddress.IPv6Network(n) for n in ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"))
_V6_GLOBAL = ipaddress.IPv6Network("2000::/3")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_V4_SPECIAL = tuple(ipaddress.IPv4Network(n) for n in ("192.0.0.0/24", "192.88.99.0/24"))
NEVER: tuple[Network, ...] = tuple(
    ipaddress.ip_network(n) for n in ("169.254.0.0/16", "fe80::/10", "fd00:ec2::/32", "0.0.0.0/32", "::/128")
)
"""What no list of networks allows: a machine's own link, on which clouds tell its secrets, and no place at all."""


def networks(text: str) -> tuple[Network, ...]:
    """Return the networks of a list in CIDR form, separated by commas. Raises ValueError."""
    return tuple(ipaddress.ip_network(one.strip()) for one in text.split(",") if one.strip())


def forbidden(address: str) -> str:
    """Return the rule that forbids connecting to this address, or nothing for one on the public internet."""
    try:
        parsed = ipaddress.ip_address(address.split("%", 1)[0])
    except ValueError:
        return "not an address"
    if isinstance(parsed, ipaddress.IPv6Address):
        inner = parsed.ipv4_mapped or (ipaddress.IPv4Address(parsed.packed[-4:]) if parsed in _NAT64 else None)
        if inner:
            return _kind(inner)
    return _kind(parsed)


def literal(host: str) -> list[str]:
    """Return the address that a host is without any resolver, in whatever notation, or nothing for a name."""
    text = unicodedata.normalize("NFKC", host).rstrip(".").lower()
    if text == "localhost" or text.endswith(".localhost"):
        return ["127.0.0.1"]
    with suppress(ValueError):
        return [str(ipaddress.ip_address(text))]
    with suppress(OSError, UnicodeError, ValueError):  # 127.1, 0x7f000001, 2130706433
        return [socket.inet_ntoa(socket.inet_aton(text))]
    return []


def within(address: str, of: Collection[Network]) -> bool:
    """Whether an address, as text, lies in one of these networks."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    return any(parsed in network for network in of)


def _kind(address: Address) -> str:
    """Return what kind of non-public address this is, or nothing."""
    rules = (
        (address.is_unspecified, "an unspecified address"),
        (address.is_loopback, "a loopback address"),
        (address.is_link_local, "a link-local address"),
        (address.is_multicast, "a multicast address"),
    )
    for applies, name in rules:
        if applies:
            return name
    if isinstance(address, ipaddress.IPv6Address):
        usable = address.is_global and address in _V6_GLOBAL and not any(address in network for network in _V6_SPECIAL)
    else:
        usable = address.is_global and not any(address in network for network in _V4_SPECIAL)
    return "" if usable else "a private or reserved address"
