"""The IP ranges that webhooks may not reach: every address that is not public.

By our own tables: `is_global` of Python 3.11 takes some of these for public.
"""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import Final

IpAddress = IPv4Address | IPv6Address
IpNetwork = IPv4Network | IPv6Network

_NOT_PUBLIC_4: Final = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",  # this host
            "10.0.0.0/8",
            "100.64.0.0/10",  # behind a carrier's NAT; some clouds' metadata too
            "127.0.0.0/8",
            "168.63.129.16/32",  # the host agent of Azure, in the middle of public space
            "169.254.0.0/16",  # link-local, with most clouds' metadata
            "172.16.0.0/12",
            "192.0.0.0/24",
            "192.0.2.0/24",  # documentation
            "192.88.99.0/24",  # relays of 6to4
            "192.168.0.0/16",
            "198.18.0.0/15",  # benchmarks
            "198.51.100.0/24",
            "203.0.113.0/24",
            "224.0.0.0/4",  # multicast
            "240.0.0.0/4",  # reserved, and broadcast
        ),
    )
)
_GLOBAL_6: Final = IPv6Network("2000::/3")
_NOT_PUBLIC_6: Final = tuple(
    map(
        IPv6Network,
        (
            "2001::/23",  # protocol assignments; Teredo, one of them, is unwrapped before
            "2001:db8::/32",  # documentation
            "3fff::/20",
        ),
    )
)
_NAT64: Final = IPv6Network("64:ff9b::/96")
# ISATAP (RFC 5214): an IPv4 address follows these, of which two bits are free.
_ISATAP: Final = 0x0000_5EFE
_ISATAP_MASK: Final = 0xFCFF_FFFF


def unwrap(address: IpAddress) -> tuple[IpAddress, ...]:
    """Return the IPv4 addresses that an IPv6 address leads to (NAT64, 6to4 …), else itself."""
    if isinstance(address, IPv4Address):
        return (address,)
    if address.ipv4_mapped is not None:
        return (address.ipv4_mapped,)
    if address.sixtofour is not None:
        return (address.sixtofour,)
    if address.teredo is not None:
        return address.teredo
    last = IPv4Address(int(address) & 0xFFFF_FFFF)
    if address in _NAT64:
        return (last,)
    if int(address) >> 32 & _ISATAP_MASK == _ISATAP:
        return (address, last)
    return (address,)


def is_public(address: IpAddress) -> bool:
    """Whether all that an address leads to is public."""
    return all(map(_is_public_address, unwrap(address)))


def _is_public_address(address: IpAddress) -> bool:
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _NOT_PUBLIC_4)
    if address.scope_id is not None or address not in _GLOBAL_6:
        return False
    return not any(address in network for network in _NOT_PUBLIC_6)


def is_within(address: IpAddress, networks: tuple[IpNetwork, ...]) -> bool:
    """Whether an address, or all that it leads to, is in one of these networks."""
    return all(any(one in network for network in networks) for one in unwrap(address))


def read_networks(text: str) -> tuple[IpNetwork, ...]:
    """Read addresses and networks, separated by blanks or commas; raise ValueError."""
    return tuple(ip_network(part) for part in text.replace(",", " ").split())
