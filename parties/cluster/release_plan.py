"""What a release of partitions rests on, written before the first draw: its plan, and a key for every draw.

Every partition of every column has a key of its own, from the driver's bits. The keys lie in a file beside the plan
until the ranks are written. A task that is started again, because its worker or the driver died, reads its key there
and draws the same codes: however often a partition is computed, there is one release.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opboost.desensitize import ColumnMechanism
from opboost.rng import BitSource
from parties.errors import LedgerError, RunFolderError
from parties.storage.atomic_files import replacing, write_json
from parties.storage.serialization import mechanism_from_dict, mechanism_to_dict
from parties.tables.data_files import stamp_of

KEY_BYTES = 32

_PLAN, _KEYS = "plan.json", "keys"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPlan:
    """A release of columns that lie in several Parquet files.

    Attributes
    ----------
    parts : tuple of Path
        One file per partition, in the order of the records.
    stamps : tuple of (int, int)
        Of the files, as `parties.tables.parquet.stamp_of` gives them.
    rows : tuple of int
        Rows of each part.
    ids : tuple of str
        Per part, the digest of the ids in their order.
    mechanisms : tuple of ColumnMechanism
    exact : tuple of tuples of str
        Per part and column, the digest of the exact codes. A draw from anything else is never kept, so that no key
        serves two tables.
    ledger : str
        The name of the ledger that was charged.
    charges : tuple of int
        Per column, the line of the ledger.
    is_secure : bool
        Whether the keys are secret bits.
    """

    parts: tuple[Path, ...]
    stamps: tuple[tuple[int, int], ...]
    rows: tuple[int, ...]
    ids: tuple[str, ...]
    mechanisms: tuple[ColumnMechanism, ...]
    exact: tuple[tuple[str, ...], ...]
    ledger: str
    charges: tuple[int, ...]
    is_secure: bool

    @classmethod
    def read(cls, folder: Path) -> PartitionPlan | None:
        """The plan of a folder, or None if it has none yet.

        Raises
        ------
        RunFolderError
            If it cannot be read.
        """
        path = folder / _PLAN
        try:
            document = json.loads(path.read_text())
            return cls(
                parts=tuple(map(Path, document["parts"])),
                stamps=tuple((int(size), int(time)) for size, time in document["stamps"]),
                rows=tuple(map(int, document["rows"])),
                ids=tuple(map(str, document["ids"])),
                mechanisms=tuple(map(mechanism_from_dict, document["columns"])),
                exact=tuple(tuple(map(str, part)) for part in document["exact"]),
                ledger=str(document["ledger"]),
                charges=tuple(map(int, document["charges"])),
                is_secure=bool(document["is_secure"]),
            )
        except FileNotFoundError:
            return None
        except OSError as error:
            raise RunFolderError(f"{path} cannot be read: {error.strerror}") from None
        except (KeyError, TypeError, ValueError):
            raise RunFolderError(f"{path} is not the plan of a release. Nothing was drawn") from None

    def write(self, folder: Path) -> None:
        """Write the plan as a whole; from then on it is not changed."""
        document: dict[str, Any] = {
            "parts": [str(part) for part in self.parts],
            "stamps": self.stamps,
            "rows": self.rows,
            "ids": self.ids,
            "columns": [mechanism_to_dict(mechanism) for mechanism in self.mechanisms],
            "exact": self.exact,
            "ledger": self.ledger,
            "charges": self.charges,
            "is_secure": self.is_secure,
        }
        write_json(folder / _PLAN, document)

    def check(self, parts: Sequence[Path], mechanisms: Sequence[ColumnMechanism], *, ledger: str) -> None:
        """Refuse to go on with a plan that was made for something else.

        Raises
        ------
        RunFolderError, LedgerError
        """
        is_same = list(self.parts) == list(parts) and list(map(mechanism_to_dict, self.mechanisms)) == list(
            map(mechanism_to_dict, mechanisms)
        )
        if not is_same or [stamp_of(part) for part in parts] != list(self.stamps):
            raise RunFolderError(
                "the folder holds a release of other partitions, columns or mechanisms, or the data was changed since. "
                "That is another release: choose another folder. Nothing was drawn"
            )
        if self.ledger != ledger:
            raise LedgerError("the folder's release was charged to another ledger. Nothing was drawn")


def write_keys(folder: Path, count: int, *, rng: BitSource) -> None:
    """Draw so many keys and keep them, readable by their owner alone.

    Raises
    ------
    RunFolderError
        If two keys are alike: bits must never be drawn twice.
    """
    material = rng.words(count * KEY_BYTES // 8).tobytes()
    if len({material[i : i + KEY_BYTES] for i in range(0, len(material), KEY_BYTES)}) < count:
        raise RunFolderError("two partitions got one key, so that their noise would be the same. Nothing was drawn")
    with replacing(folder / _KEYS) as partial:
        partial.unlink(missing_ok=True)
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(material)
            file.flush()
            os.fsync(descriptor)


def bits_of(folder: Path, place: int, *, is_secure: bool) -> BitSource:
    """The bits of one partition of one column.

    Raises
    ------
    RunFolderError
        If the keys are not there, or may be read by others.
    """
    path = folder / _KEYS
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            file.seek(place * KEY_BYTES)
            key = file.read(KEY_BYTES)
    except OSError as error:
        raise RunFolderError(f"{path} cannot be read: {error.strerror}. Nothing was drawn") from None
    if mode & 0o077 or len(key) != KEY_BYTES:
        raise RunFolderError(f"{path} is damaged, or others may read it (0600 is allowed). Nothing was drawn")
    return BitSource(key, is_secure=is_secure)


def forget_keys(folder: Path) -> None:
    """Remove the keys once nothing is to be drawn any more: with them, noise could be taken off."""
    (folder / _KEYS).unlink(missing_ok=True)
