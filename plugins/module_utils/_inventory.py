# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Number and addresses of a node, from what the inventory says. Pure."""

from __future__ import annotations

import ipaddress
import re
from typing import Any, Mapping, Optional, Union

Address = Union[ipaddress.IPv4Address, ipaddress.IPv6Address]

_TRAILING_DIGITS = re.compile(r"[0-9]+$")


def trailing_number(name: str) -> Optional[int]:
    """Return the number that the short host name ends in, None when it ends in none."""
    found = _TRAILING_DIGITS.search(name.split(".")[0])
    return int(found.group()) if found else None


def parse_address(text: Any) -> Address:
    """Return the address that the text means; ValueError says in words that it means none."""
    # ip_address() takes integers too, and 10 would silently become 0.0.0.10.
    if not isinstance(text, str):
        raise ValueError("%r is not an IP address" % (text,))
    try:
        return ipaddress.ip_address(text.strip())
    except ValueError:
        raise ValueError("'%s' is not an IP address" % text) from None


def node_address(
    name: str,
    first_address: Optional[Mapping[str, Any]] = None,
    addresses: Optional[Mapping[str, Any]] = None,
    network: str = "management",
    number: Optional[Union[int, str]] = None,
) -> str:
    """Return the address of a node on one network.

    Its own address there wins; else the address of node number 1 is counted up to the node's number,
    which is the number the host name ends in unless one is given.
    ValueError names the variable to write when neither leads to an address.
    """
    own = (addresses or {}).get(network)
    if own is not None:
        return str(parse_address(own))
    first = (first_address or {}).get(network)
    if first is None:
        raise ValueError(
            "%s has no address on network '%s'; write node_address.%s for the host, "
            "or node_first_address.%s for its group" % (name, network, network, network)
        )
    counted = trailing_number(name) if number in (None, "") else int(str(number))
    if counted is None:
        raise ValueError(
            "the host name '%s' ends in no number to count its address on network '%s' with; "
            "write node_number or node_address.%s for the host" % (name, network, network)
        )
    if counted < 1:
        raise ValueError("%s has node number %d; numbers begin with 1" % (name, counted))
    try:
        return str(parse_address(first) + (counted - 1))
    except ipaddress.AddressValueError:
        raise ValueError("node %d on network '%s' is beyond the last address" % (counted, network)) from None
