"""Versions of what runs here, which stand in every run's notes."""

from __future__ import annotations

import platform
from functools import cache
from importlib.metadata import version
from typing import Any

from protocols.messages.message import PROTOCOL_VERSION

_PACKAGES = ("opboost", "numpy", "pandas", "numba", "pyzmq", "msgpack")


@cache
def installed_versions() -> dict[str, Any]:
    """The protocol's, Python's and those of packages; read once in a process, which may make many runs."""
    return {
        "protocol_version": PROTOCOL_VERSION,
        "python": platform.python_version(),
        "packages": {name: version(name) for name in _PACKAGES},
    }
