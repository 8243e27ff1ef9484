"""Versions of what runs here, which stand in every run's notes."""

from __future__ import annotations

import platform
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from parties.errors import RunFolderError
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


def package_version() -> str:
    """The version of this package."""
    found: str = installed_versions()["packages"]["opboost"]
    return found


def check_same_version(begun: str, path: Path) -> None:
    """Refuse to go on drawing from a kept key under another version: the same key may give other noise there.

    Parameters
    ----------
    begun : str
        Version that has drawn from the key; empty in files of before it was noted, which are taken as they are.
    path : Path
        Where the key is kept.

    Raises
    ------
    RunFolderError
    """
    if begun not in ("", package_version()):
        raise RunFolderError(
            f"{path} is of a run that began under version {begun} of opboost; version {package_version()} may draw "
            "other noise from the same key. Go on with the former, or choose another run_id. Nothing was drawn"
        )
