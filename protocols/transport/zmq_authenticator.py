"""Allowlist of public keys, by ZeroMQ's authentication protocol (ZAP)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

import zmq
from zmq.auth.thread import ThreadAuthenticator
from zmq.utils import z85

UNKNOWN_KEY = "refused a connection: its key is not on the list of peers"


def allow(
    keys: Collection[bytes], context: zmq.Context[zmq.Socket[bytes]], *, on_event: Callable[[str], None]
) -> ThreadAuthenticator:
    """Start a thread that lets these public keys connect to the context's sockets, and reports every other one."""
    authenticator = ThreadAuthenticator(context)
    authenticator.start()
    authenticator.configure_curve_callback(domain="*", credentials_provider=_Allowlist(frozenset(keys), on_event))
    return authenticator


@dataclass(frozen=True, slots=True)
class _Allowlist:
    keys: frozenset[bytes]
    on_event: Callable[[str], None]

    def callback(self, domain: str, key: bytes) -> bool:
        is_known = z85.decode(key) in self.keys
        if not is_known:
            self.on_event(UNKNOWN_KEY)
        return is_known
