"""Allowlist of public keys, by ZeroMQ's authentication protocol (ZAP)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

import zmq
from zmq.auth.thread import ThreadAuthenticator
from zmq.utils import z85

# How often a peer may connect while messages wait unread. What came over a connection stays when the connection ends.
MAX_CONNECTIONS = 4

UNKNOWN_KEY = "refused a connection: its key is not on the list of peers"
HASTY_KEY = f"refused a connection: its key connected {MAX_CONNECTIONS} times before this party could read"


class Allowlist:
    """The public keys that may connect, and how often.

    Parameters
    ----------
    keys : iterable of bytes
    on_event : callable
        Called with a sentence when a connection is refused.
    """

    def __init__(self, keys: Iterable[bytes], *, on_event: Callable[[str], None]) -> None:
        self._keys = frozenset(keys)
        self._on_event = on_event
        self._n_times: Counter[bytes] = Counter()

    def callback(self, domain: str, key: bytes) -> bool:
        """Whether this key, in Z85, may connect now; called by the authenticator's thread."""
        if z85.decode(key) not in self._keys:
            self._on_event(UNKNOWN_KEY)
            return False
        self._n_times[key] += 1
        if self._n_times[key] > MAX_CONNECTIONS:
            self._on_event(HASTY_KEY)
            return False
        return True

    def forget(self) -> None:
        """Nothing waits unread: count anew."""
        self._n_times.clear()


def authenticate(allowlist: Allowlist, context: zmq.Context[zmq.Socket[bytes]]) -> ThreadAuthenticator:
    """Start a thread that lets these keys connect to the context's sockets."""
    authenticator = ThreadAuthenticator(context)
    authenticator.start()
    authenticator.configure_curve_callback(domain="*", credentials_provider=allowlist)
    return authenticator
