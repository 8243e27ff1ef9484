"""Allowlist of public keys, by ZeroMQ's authentication protocol (ZAP)."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable

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
    """

    def __init__(self, keys: Iterable[bytes]) -> None:
        self._keys = frozenset(keys)
        self._n_times: Counter[bytes] = Counter()
        self._refused: Counter[str] = Counter()
        self._lock = threading.Lock()

    def callback(self, domain: str, key: bytes) -> bool:
        """Whether this key, in Z85, may connect now; called by the authenticator's thread, which nothing may end."""
        if is_known := z85.decode(key) in self._keys:
            self._n_times[key] += 1
            if self._n_times[key] <= MAX_CONNECTIONS:
                return True
        with self._lock:
            self._refused[HASTY_KEY if is_known else UNKNOWN_KEY] += 1
        return False

    def refused(self) -> Counter[str]:
        """How often which connections were refused since the last call."""
        with self._lock:
            found, self._refused = self._refused, Counter()
            return found

    def forget(self) -> None:
        """Nothing waits unread: count anew."""
        self._n_times.clear()


def authenticate(allowlist: Allowlist, context: zmq.Context[zmq.Socket[bytes]]) -> ThreadAuthenticator:
    """Start a thread that lets these keys connect to the context's sockets."""
    authenticator = ThreadAuthenticator(context)
    authenticator.start()
    authenticator.configure_curve_callback(domain="*", credentials_provider=allowlist)
    return authenticator
