"""Chain checkpoint: what an owner keeps in its run folder so that no tree is drawn twice.

==================  ====================================================================================
file                content
==================  ====================================================================================
``coins.json``      this owner's coins, from which its records' rounds and the noise of its turns come, and a digest of
                    its rows
``turns/0000.json`` the tree of a turn, this owner's or another's, kept before it is handed on
``confirmed.json``  the owners that have said that they have every tree
==================  ====================================================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from opboost.errors import OpBoostError
from opboost.horizontal.inprivate.owners import InPrivateAmongOwners
from opboost.rng import BitSource
from opboost.trees.tree import Tree
from parties.errors import RunFolderError
from parties.runs.run_folder import RunFolder
from parties.storage.atomic_files import make_folder

_DTYPES = {
    "columns": np.int32,
    "thresholds": np.float64,
    "missing_left": np.bool_,
    "lefts": np.int32,
    "rights": np.int32,
    "values": np.float64,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A turn's tree, in bins, and whether its noise came from secure bits."""

    tree: Tree
    is_secure: bool


class ChainCheckpoint:
    """The files of a chain training run in its run folder.

    Parameters
    ----------
    folder : RunFolder
    """

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder

    @property
    def count(self) -> int:
        """Number of turns whose trees are stored."""
        return len(list((self._folder.path / "turns").glob("[0-9]*.json")))

    def coins(self, rows: str, *, rng: BitSource) -> BitSource:
        """The coins of this owner's records, read from an earlier process of the run, or drawn and stored.

        Parameters
        ----------
        rows : str
            A digest of the rows and labels.
        rng : BitSource

        Raises
        ------
        RunFolderError
            If the run began on other rows. A record's coin would not be its own any more.
        """
        if not self._folder.has_released:
            fresh = rng.words(4).tobytes()
            make_folder(self._folder.path / "turns")
            self._folder.write_json("coins.json", {"rows": rows, "coins": fresh.hex(), "is_secure": rng.is_secure})
            self._folder.mark_release()
        kept = self._folder.read_json("coins.json")
        if kept.get("rows") != rows:
            raise RunFolderError(
                f"{self._folder.path} holds the beginning of a run on other rows; bring them back or choose another "
                "run_id. Nothing was sent"
            )
        try:
            return BitSource(bytes.fromhex(kept["coins"]), is_secure=kept["is_secure"])
        except (KeyError, TypeError, ValueError, OpBoostError):
            raise RunFolderError(
                f"{self._folder.path / 'coins.json'} is malformed; choose another run_id. Nothing was sent"
            ) from None

    @property
    def confirmed(self) -> frozenset[str]:
        """The owners that have said that they have every tree."""
        if not (self._folder.path / "confirmed.json").exists():
            return frozenset()
        names = self._folder.read_json("confirmed.json").get("names")
        return frozenset(names if isinstance(names, list) else ())

    def note_confirmed(self, name: str) -> None:
        """Keep that an owner has every tree."""
        self._folder.write_json("confirmed.json", {"names": sorted({*self.confirmed, name})})

    def read(self, recipe: InPrivateAmongOwners) -> list[Turn]:
        """Read the trees of all turns so far.

        Raises
        ------
        RunFolderError
            If a file is malformed, or one is missing between others.
        """
        return [self._read(turn, recipe) for turn in range(self.count)]

    def keep(self, turn: int, one: Turn) -> None:
        """Store a turn's tree."""
        arrays = {name: getattr(one.tree, name).tolist() for name in _DTYPES}
        self._folder.write_json(_file(turn), {"is_secure": one.is_secure, **arrays})

    def _read(self, turn: int, recipe: InPrivateAmongOwners) -> Turn:
        document = self._folder.read_json(_file(turn))
        try:
            arrays: dict[str, Any] = {name: np.array(document[name], dtype) for name, dtype in _DTYPES.items()}
            zeros = np.zeros(len(arrays["columns"]))
            tree = recipe.checked(Tree(**arrays, gains=zeros, covers=zeros))
            return Turn(tree=tree, is_secure=document["is_secure"] is True)
        except (KeyError, TypeError, ValueError, OverflowError, OpBoostError):
            raise RunFolderError(
                f"{self._folder.path / _file(turn)} is malformed; choose another run_id. Nothing was sent"
            ) from None


def _file(turn: int) -> str:
    return f"turns/{turn:04}.json"
