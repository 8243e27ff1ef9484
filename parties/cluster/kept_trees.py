"""Kept trees: those that training on a cluster has finished, from which another process goes on."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parties.storage.atomic_files import replacing

_DIGEST_BYTES = 32


@dataclass(slots=True)
class KeptTrees:
    """XGBoost's model of the finished trees, in a file with its digest, or in memory alone.

    Attributes
    ----------
    path : Path or None
    """

    path: Path | None
    _booster: Any = None

    def load(self) -> Any:
        """XGBoost's model of the finished trees; None if there is none, or the file is damaged."""
        if self._booster is None and self.path is not None and self.path.exists():
            content = self.path.read_bytes()
            if hashlib.sha256(content[_DIGEST_BYTES:]).digest() == content[:_DIGEST_BYTES]:
                from xgboost import Booster

                self._booster = Booster(model_file=bytearray(content[_DIGEST_BYTES:]))
        return self._booster

    def save(self, booster: Any) -> None:
        """Keep the trees so far."""
        self._booster = booster
        if self.path is not None:
            content = bytes(booster.save_raw("ubj"))
            with replacing(self.path) as partial:
                partial.write_bytes(hashlib.sha256(content).digest() + content)
