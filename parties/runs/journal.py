"""Journal: checkpoint of the active party, from which an interrupted run is resumed.

Lies in ``journal/`` in the run folder while the run is under way, and holds nothing but what this party chose itself
and what the passive parties released to it:

====================  ====================================================================================
``journal.json``      the seed, digests of this party's whole file, of the records and of the orders in which ranks
                      travel, which peers confirmed that they are done
``common.npy``        the common rows, if ids were compared; if keys were compared, their names in ``common.json``
``tests.json``        the split ranks of the trees, per peer, written before the first of them is sent
``rows.npy``          this party's rows to train on; ``<peer>.order.npy``: the order in which a peer's ranks are sent
``from/<peer>/``      that peer's offer and ranks received so far (`parties.vertical.rank_receiver`)
``held_out/``         the peers' answers about held-out records (`parties.runs.kept_answers`)
====================  ====================================================================================

``journal.json`` and ``tests.json`` are kept twice (`parties.storage.twice_kept`).

When the run is over on all sides, the folder becomes ``received/``, from which `opboost tune` reads the ranks again; it
may be removed. Of a run on a cluster nothing is kept.

A passive party needs no journal beside its ledger and store, which give the same release again, and the note in
``meta.json`` that this run has released. The messages of both sides, sent and received, are lines of ``log.jsonl``.
"""

from __future__ import annotations

import hashlib
import secrets
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from opboost.split_tests import ListedTests
from parties.errors import Disagreement, RunFolderError
from parties.storage.atomic_files import make_folder, write_array, write_json
from parties.storage.paths import is_there
from parties.storage.twice_kept import is_kept, read_either, with_digest, write_twice

FOLDER, KEPT, ANSWERS = "journal", "received", "held_out"

T = TypeVar("T")

_Number = Annotated[int, Field(ge=0, lt=1 << 32)]


@dataclass(frozen=True, slots=True)
class Records:
    """The records that a run trains on: their number, and a digest of their ids."""

    n_rows: int
    digest: str


class _Facts(BaseModel):
    model_config = ConfigDict(extra="forbid")

    seed: int
    records: Records | None
    inputs: str | None
    orders: dict[str, str]
    confirmed: list[str]


# What the files must hold; anything else is damage.
_FACTS = TypeAdapter(_Facts)
_IDS = TypeAdapter(list[str])

RowPlaces = NDArray[np.int64]
_TESTS = TypeAdapter(dict[str, tuple[list[_Number], list[_Number], list[bool]]])


class Journal:
    """The journal of one run.

    Parameters
    ----------
    run_folder : Path
    seed : int, optional
        The run file's seed; by default one is drawn once and kept.
    """

    def __init__(self, run_folder: Path, *, seed: int | None = None) -> None:
        self.path = run_folder / FOLDER
        self._facts: dict[str, Any] = {
            "seed": secrets.randbits(63) if seed is None else seed,
            "records": None,
            "inputs": None,
            "orders": {},
            "confirmed": [],
        }
        if is_kept(self.path / "journal.json"):
            self._facts = self._read("journal.json", _FACTS).model_dump()
        else:
            self._write("journal.json", self._facts)

    @classmethod
    def kept(cls, run_folder: Path) -> Journal:
        """The journal of a finished run, with the received ranks.

        Raises
        ------
        RunFolderError
        """
        journal = cls.__new__(cls)
        journal.path = run_folder / KEPT
        journal._facts = journal._read("journal.json", _FACTS).model_dump()
        return journal

    def note_rows(self, rows: RowPlaces, orders: Mapping[str, RowPlaces]) -> None:
        """Store, once, this party's rows to train on, and the order in which each peer's ranks are sent."""
        # When a saved run is concluded, row numbers would count among the common records: the first ones stay.
        if (self.path / "rows.npy").exists():
            return
        for name, numbers in (*((f"{peer}.order", order) for peer, order in orders.items()), ("rows", rows)):
            self._save(name, numbers)

    def rows(self, n_rows: int) -> tuple[RowPlaces, dict[str, RowPlaces]]:
        """Read the rows and orders that `note_rows` stored, for a table of `n_rows` records.

        Raises
        ------
        RunFolderError
        """
        try:
            orders = {path.name.removesuffix(".order.npy"): np.load(path) for path in self.path.glob("*.order.npy")}
            rows = self._numbers("rows", n_rows)
            if not all(np.array_equal(np.sort(order), np.arange(len(rows))) for order in orders.values()):
                raise ValueError
        except (EOFError, OSError, TypeError, ValueError):
            raise RunFolderError(f"{self.path}: rows.npy or an order is damaged. Nothing was computed") from None
        return rows, orders

    @property
    def peers(self) -> tuple[str, ...]:
        """The peers that have sent something, in the order of their names."""
        return tuple(sorted(path.name for path in (self.path / "from").glob("*")))

    def note_inputs(self, digest: str) -> None:
        """Keep the digest of this party's whole file, or compare it with that of the run's beginning.

        Called before the parties meet: a refusal must not depend on which of the records are common.

        Raises
        ------
        RunFolderError
        """
        if self._facts["inputs"] not in (None, digest):
            raise RunFolderError(
                f"{self.path.parent} holds the beginning of a run on other records, labels or columns; bring them "
                "back or choose another run_id. Nothing was sent"
            )
        self._facts["inputs"] = digest
        self._write("journal.json", self._facts)

    def begin(
        self, records: Records, orders: Mapping[str, RowPlaces], common: Sequence[str] | RowPlaces | None
    ) -> None:
        """Keep which records the run is about, or compare them with those of its beginning.

        Parameters
        ----------
        records : Records
        orders : mapping of str to ndarray
            In which order the ranks of each peer travel.
        common : sequence of str or ndarray of int64, optional
            The rows whose ids were found to be common, or the names of records that were compared by keys.

        Raises
        ------
        Disagreement
            If other records are common than in the beginning, or ranks would travel in another order.
        """
        digests = {peer: hashlib.sha256(order.astype("<i8")).hexdigest() for peer, order in orders.items()}
        if self._facts["records"] is not None:
            _compare(Records(**self._facts["records"]), records)
            self._compare_orders(digests)
        elif isinstance(common, np.ndarray):
            self._save("common", common)
        elif common is not None:
            # The ids, which may be many, are found again from the data.
            write_json(self.path / "common.json", with_digest("common.json", list(common)))
        self._facts["records"] = asdict(records)
        self._facts["orders"] = {**self._facts["orders"], **digests}
        self._write("journal.json", self._facts)

    def common(self) -> pd.Index | None:
        """The ids that were found to be common; None if the files were aligned already."""
        if not (self.path / "common.json").exists():
            return None
        return pd.Index(self._read("common.json", _IDS), dtype=object)

    def common_rows(self, n_rows: int) -> RowPlaces | None:
        """The rows of so many that were found to be common; None if these were not kept."""
        try:
            return self._numbers("common", n_rows)
        except FileNotFoundError:
            return None
        except (EOFError, OSError, TypeError, ValueError):
            raise RunFolderError(f"{self.path}: common.npy is damaged. Nothing was sent") from None

    def _numbers(self, name: str, n_rows: int) -> RowPlaces:
        """Some of so many rows, each once; a `ValueError` if they are anything else."""
        rows: RowPlaces = np.load(self.path / f"{name}.npy")
        if len(np.unique(rows)) < len(rows) or not ((rows >= 0) & (rows < n_rows)).all():
            raise ValueError
        return rows

    def _save(self, name: str, numbers: RowPlaces) -> None:
        write_array(self.path / f"{name}.npy", numbers)

    def _compare_orders(self, digests: Mapping[str, str]) -> None:
        for peer, digest in digests.items():
            before = self._facts["orders"].get(peer, digest)
            if before != digest and (self.folder_of(peer) / "offer").exists():
                raise Disagreement(
                    f"the ranks of {peer} would travel in another order than when this run began: an order.share in a "
                    "run folder was lost or changed. Bring it back or choose another run_id on all sides. No ranks "
                    "were sent"
                )

    @property
    def seed(self) -> int:
        """Seed of row and column sampling."""
        return int(self._facts["seed"])

    @property
    def confirmed(self) -> tuple[str, ...]:
        """The peers that have saved their share."""
        return tuple(self._facts["confirmed"])

    def note_confirmed(self, peer: str) -> None:
        """Keep that a peer has saved its share: nothing more is needed of it."""
        if peer not in self.confirmed:
            self._facts["confirmed"] = [*self.confirmed, peer]
            self._write("journal.json", self._facts)

    def folder_of(self, peer: str) -> Path:
        """Folder of what the peer has sent so far."""
        return self.path / "from" / peer

    def note_tests(self, tests: Mapping[str, ListedTests]) -> None:
        """Keep the split tests of the trees, per peer."""
        document = {
            peer: [listed.columns.tolist(), listed.ranks.tolist(), listed.missing_left.tolist()]
            for peer, listed in tests.items()
        }
        self._write("tests.json", document)

    def tests(self, peer: str) -> ListedTests:
        """The split tests that the trees ask of a peer."""
        found = self._read("tests.json", _TESTS)
        if peer not in found:
            raise RunFolderError(f"{self.path / 'tests.json'} knows nothing of {peer}; choose another run_id")
        columns, ranks, missing_left = found[peer]
        return ListedTests(np.array(columns, np.uint32), np.array(ranks, np.uint32), np.array(missing_left, np.bool_))

    @staticmethod
    def is_open(run_folder: Path) -> bool:
        """Whether a run still has a journal: it is not over for everybody."""
        return is_there(run_folder / FOLDER)

    @staticmethod
    def has_received(run_folder: Path) -> bool:
        """Whether a run has received anything of a release."""
        return any((run_folder / FOLDER / "from").glob("*/offer"))

    def close(self) -> None:
        """End the journal of a run that is over on all sides; what was received is kept for tuning."""
        kept = self.path.parent / KEPT
        if (self.path / "rows.npy").exists():
            for former in (kept, self.path / ANSWERS):
                shutil.rmtree(former, ignore_errors=True)
            self.path.rename(kept)
        shutil.rmtree(self.path, ignore_errors=True)

    def _write(self, name: str, document: Any) -> None:
        make_folder(self.path)
        write_twice(self.path / name, document)

    def _read(self, name: str, content: TypeAdapter[T]) -> T:
        return read_either(self.path / name, content)


def _compare(before: Records, now: Records) -> None:
    if before == now:
        return
    which = f"{now.n_rows} records are common now, {before.n_rows} were"
    if now.n_rows == before.n_rows:
        which = f"other {now.n_rows} records are common now than were"
    raise Disagreement(
        f"{which} when this run began: the ids of a party have changed. Bring the files back on all sides or choose "
        "another run_id on all sides. No ranks were sent"
    )
