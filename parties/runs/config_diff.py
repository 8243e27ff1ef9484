"""Configuration difference: the settings that differ between two run files, but for those that may change."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from parties.errors import ConfigError
from parties.storage.documents import read_yaml
from protocols.transport.sanitize import readable

# A run may be resumed with other ones: nothing of its result depends on them. A star stands for a place in a list.
MAY_CHANGE = {
    "timeout",
    "wait",
    "stall",
    "listen",
    "connect",
    "owners.*.connect",
    "serve",
    "http",
    "metrics",
    "no_privacy",
    "reveal",
    "report",
    "dask.scheduler",
    "dask.workers",
    "ledger.epsilon",
    "ledger.delta",
}

_IN_A_LIST = re.compile(r"\.[0-9]+\.")

_ABSENT = "absent"


def changes(before: Path, after: Path) -> list[str]:
    """Settings that changed, as "key was x, is y"."""
    old, new = _settings(before), _settings(after)
    return [
        f"{key} was {_shown(old, key)}, is {_shown(new, key)}"
        for key in [*old, *(key for key in new if key not in old)]
        if not MAY_CHANGE & {_IN_A_LIST.sub(".*.", key), key.split(".")[0]} and old.get(key) != new.get(key)
    ]


def _settings(path: Path) -> dict[str, str]:
    try:
        # A ledger without limits may be left out.
        return {key: text for key, text in _flat("", read_yaml(path)) if (key, text) != ("ledger", "{}")}
    except (ConfigError, RecursionError):
        return {"the run file": "unreadable"}


def _flat(place: str, value: Any) -> Iterator[tuple[str, str]]:
    """Settings by their places; a section without keys is as good as none."""
    match value:
        case None:
            return
        case dict() if value:
            for key, item in value.items():
                yield from _flat(f"{place}.{key}" if place else str(key), item)
        case list() if value:
            for position, item in enumerate(value):
                yield from _flat(f"{place}.{position}", item)
        case _:
            yield place, str(value)


def _shown(settings: dict[str, str], key: str) -> str:
    return readable(settings.get(key, _ABSENT), 60)
