"""Addresses on loopback for parties that are started, stopped and started again."""

from __future__ import annotations

import random
import socket

# Below the ports that the system lends to outgoing connections: one of those would take a port that is free between
# two starts.
_FIRST, _LAST = 12_000, 32_000


def has_ipv6() -> bool:
    """Whether somebody could listen on loopback by IPv6."""
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


def free_addresses(count: int) -> list[str]:
    """Addresses at whose ports nobody listens."""
    ports: set[int] = set()
    while len(ports) < count:
        port = random.SystemRandom().randrange(_FIRST, _LAST)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)):
                ports.add(port)
    return [f"tcp://127.0.0.1:{port}" for port in sorted(ports)]
