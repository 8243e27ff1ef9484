"""Chain checkpoint: what an owner keeps in its run folder so that no tree is drawn twice.

==================  ====================================================================================
file                content
==================  ====================================================================================
``coins.json``      this owner's coins, from which its records' rounds and the noise of its turns come, a digest of its
                    rows, and the version of opboost, under which alone trees are drawn from them
``turns/0000.json`` the tree of a turn, this owner's or another's, kept before it is handed on
``confirmed.json``  the owners that have said that they have the same trees, and those that have said that they have
                    others; if it is damaged, they are asked again
==================  ====================================================================================

Coins and trees are kept twice (`parties.storage.twice_kept`). Where neither copy of a tree can be read, it and those
after it are asked for again, unless one of them is this owner's own: that was drawn with the noise of its turn on the
residuals of all before it, and a second one on others' would be another release. Where its own are missing altogether
the ledger tells (`WorkerLedger.note_turn`). Without coins a run cannot go on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field, TypeAdapter, ValidationError

from opboost.errors import OpBoostError
from opboost.horizontal.inprivate.owners import InPrivateAmongOwners
from opboost.rng import BitSource
from opboost.trees.model_file import document_digest
from opboost.trees.tree import Tree
from parties.errors import RunFolderError, TreesDiffer
from parties.runs.installed_versions import check_same_version, package_version
from parties.runs.run_folder import RunFolder
from parties.storage.atomic_files import make_folder
from parties.storage.twice_kept import read_either, write_twice

_DTYPES = {
    "columns": np.int32,
    "thresholds": np.float64,
    "missing_left": np.bool_,
    "lefts": np.int32,
    "rights": np.int32,
    "values": np.float64,
}


@dataclass(frozen=True, slots=True)
class _Coins:
    rows: str
    coins: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    is_secure: bool
    version: str = ""


@dataclass(frozen=True, slots=True)
class _Compared:
    names: frozenset[str]
    differing: frozenset[str]


_COINS, _DOCUMENT, _COMPARED = TypeAdapter(_Coins), TypeAdapter(dict[str, Any]), TypeAdapter(_Compared)


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
        """Number of turns up to the last one whose tree is stored."""
        found = (path.stem for path in (self._folder.path / "turns").glob("[0-9]*"))
        return max((1 + int(turn) for turn in found if turn.isdecimal()), default=0)

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
            fresh = _Coins(rows, rng.words(4).tobytes().hex(), rng.is_secure, package_version())
            make_folder(self._folder.path / "turns")
            write_twice(self._coins_path, asdict(fresh))
            self._folder.mark_release()
        if self._kept_coins.rows != rows:
            raise RunFolderError(
                f"{self._folder.path} holds the beginning of a run on other rows; bring them back or choose another "
                "run_id. Nothing was sent"
            )
        return self._coins()

    def check_version(self) -> None:
        """Refuse to draw a tree from coins that were stored under another version of opboost.

        Raises
        ------
        RunFolderError
            A tree that was drawn before would be another one.
        """
        check_same_version(self._kept_coins.version, self._coins_path)

    def _coins(self) -> BitSource:
        kept = self._kept_coins
        return BitSource(bytes.fromhex(kept.coins), is_secure=kept.is_secure)

    @property
    def _kept_coins(self) -> _Coins:
        return read_either(self._coins_path, _COINS)

    @property
    def _coins_path(self) -> Path:
        return self._folder.path / "coins.json"

    @property
    def holder(self) -> str:
        """Tells the turns of this run folder from those of any other: words from the coins, which must be there."""
        return self._coins().fork("holder").words(4).tobytes().hex()

    @property
    def confirmed(self) -> frozenset[str]:
        """The owners that have said that they have the same trees as are stored now."""
        return self._compared.names

    @property
    def differing(self) -> frozenset[str]:
        """The owners that have said that they have other trees, and nothing else since."""
        return self._compared.differing

    def note_confirmed(self, name: str) -> None:
        """Keep that an owner has the same trees."""
        self._note_compared(self.confirmed | {name}, self.differing - {name})

    def note_unconfirmed(self, name: str) -> None:
        """Keep that it is not known any more whether an owner has the same trees."""
        self._note_compared(self.confirmed - {name}, self.differing)

    def note_differing(self, name: str) -> None:
        """Keep that an owner has other trees."""
        self._note_compared(self.confirmed - {name}, self.differing | {name})

    def refuse_differing(self, party: str) -> None:
        """Refuse to go on while an owner has other trees, whichever process of the run heard that.

        Parameters
        ----------
        party : str
            This owner.

        Raises
        ------
        TreesDiffer
        """
        if others := sorted(self.differing):
            raise TreesDiffer(
                f"the trees of {' and of '.join(others)} are not those of {party}: one of the owners sent, handed on "
                "or claims to have other trees, and which one cannot be told. What was released stays released and "
                "paid for. The trees stay in the run folder, but no model is kept. To train anew, choose another "
                "run_id everywhere"
            )

    @property
    def _compared(self) -> _Compared:
        with suppress(RunFolderError, ValidationError):
            return _COMPARED.validate_python(self._folder.read_json("confirmed.json"))
        return _Compared(frozenset(), frozenset())

    def _note_compared(self, confirmed: frozenset[str], differing: frozenset[str]) -> None:
        self._folder.write_json("confirmed.json", {"names": sorted(confirmed), "differing": sorted(differing)})

    def read(self, recipe: InPrivateAmongOwners, *, is_own: Callable[[int], bool]) -> list[Turn]:
        """Read the trees of all turns so far, up to the first one that cannot be read.

        Parameters
        ----------
        recipe : InPrivateAmongOwners
        is_own : callable
            Whether a turn is this owner's.

        Raises
        ------
        RunFolderError
            If that or a later one is this owner's own.
        """
        found = list[Turn]()
        for turn in range(self.count):
            try:
                found.append(self._read(turn, recipe))
            except RunFolderError:
                if any(map(is_own, range(turn, self.count))):
                    raise
                break
        return found

    def keep(self, turn: int, finished: Turn) -> None:
        """Store a turn's tree. What others have confirmed before was about other trees."""
        if self.confirmed:
            self._note_compared(frozenset(), self.differing)
        write_twice(self._path(turn), _document(finished))

    def _read(self, turn: int, recipe: InPrivateAmongOwners) -> Turn:
        document = read_either(self._path(turn), _DOCUMENT)
        try:
            arrays: dict[str, Any] = {name: np.array(document[name], dtype) for name, dtype in _DTYPES.items()}
            zeros = np.zeros(len(arrays["columns"]))
            tree = recipe.checked(Tree(**arrays, gains=zeros, covers=zeros))
            return Turn(tree=tree, is_secure=document["is_secure"] is True)
        except (KeyError, TypeError, ValueError, OverflowError, OpBoostError):
            raise RunFolderError(f"{self._path(turn)} is malformed; choose another run_id. Nothing was sent") from None

    def _path(self, turn: int) -> Path:
        return self._folder.path / "turns" / f"{turn:04}.json"


def trees_digest(turns: Sequence[Turn]) -> str:
    """Digest of the trees of all turns, in their order, as they are stored: SHA-256, as hexadecimal digits."""
    return document_digest({"turns": [_document(turn) for turn in turns]})


def _document(turn: Turn) -> dict[str, Any]:
    return {"is_secure": turn.is_secure, **{name: getattr(turn.tree, name).tolist() for name in _DTYPES}}
