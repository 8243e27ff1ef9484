"""Addresses in run files: syntax and port are checked on reading, since ZeroMQ takes port 70000 for 4464."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated

from pydantic import AfterValidator

MAX_PORT = 65535

_PLACE = re.compile(r"(?P<host>\*|[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\]):(?P<port>[0-9]{1,5})")


def _address(*schemes: str, any_host: bool = False) -> Callable[[str], str]:
    """Validator of addresses with these schemes; with `any_host`, ``*`` stands for every interface."""

    def check(address: str) -> str:
        scheme, _, rest = address.partition("://")
        if scheme in schemes and _is_place(rest, any_host=any_host):
            return address
        allowed = " or ".join(f"{scheme}://host:port" for scheme in schemes)
        raise ValueError(f"must be {allowed}, with a port from 1 to {MAX_PORT}")

    return check


def _is_place(text: str, *, any_host: bool) -> bool:
    found = _PLACE.fullmatch(text)
    return found is not None and 1 <= int(found["port"]) <= MAX_PORT and (any_host or found["host"] != "*")


def host_and_port(place: str) -> tuple[str, int]:
    """The two parts of ``host:port``; the brackets around an IPv6 address are taken off."""
    host, _, port = place.rpartition(":")
    return host.strip("[]"), int(port)


def _check_place(text: str) -> str:
    if _is_place(text, any_host=False):
        return text
    raise ValueError(f"must be host:port, with a port from 1 to {MAX_PORT}")


HostAndPort = Annotated[str, AfterValidator(_check_place)]
ListenAddress = Annotated[str, AfterValidator(_address("tcp", any_host=True))]
ConnectAddress = Annotated[str, AfterValidator(_address("tcp"))]
SchedulerAddress = Annotated[str, AfterValidator(_address("tcp", "tls"))]
