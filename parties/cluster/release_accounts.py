"""A run's release on Dask: named after what it is a release of, so that it is found where it was made before.

The name is a digest of columns, mechanisms, exact codes and ids, partition by partition. A second run on the same
partitions finds the first one's release and draws nothing; one on other partitions makes another release, and pays.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from opboost.desensitize import ColumnMechanism
from parties.cluster.kept_draws import has_all
from parties.cluster.release import PartitionedRelease, release_partitions
from parties.cluster.release_plan import PartitionPlan
from parties.cluster.survey import Surveyed
from parties.cluster.transfer import StoredRelease
from parties.errors import LedgerError
from parties.ledger.charged_release import Account
from parties.ledger.ledger_lines import Reuse, digest_of
from parties.vertical.release_offer import PackedColumn

if TYPE_CHECKING:
    from distributed import Client


@dataclass(slots=True)
class DueRelease:
    """A release that is made, or found, once both sides have agreed: when it is packed.

    Attributes
    ----------
    n_rows : int
    is_secure : bool
        Whether it is drawn from secret bits.
    mechanisms : tuple of ColumnMechanism
    make : callable
    """

    n_rows: int
    is_secure: bool
    mechanisms: tuple[ColumnMechanism, ...]
    make: Callable[[], PartitionedRelease]
    _stored: StoredRelease | None = field(default=None, init=False)

    def packed(self) -> list[PackedColumn]:
        """Make the release, and read its columns as they will travel."""
        self._stored = StoredRelease(self.make())
        return self._stored.packed()

    def get(self, number: int, start: int = 0, end: int | None = None) -> NDArray[Any]:
        """Of a packed column, the ranks from `start` to `end`."""
        assert self._stored is not None
        return self._stored.get(number, start, end)


def release_folder(surveyed: Surveyed, home: Path, *, is_secure: bool) -> Path:
    """Where a release of these partitions lies, whether it was made or not."""
    keys = [release.key for release in surveyed.releases(is_secure=is_secure)]
    return home / "releases" / digest_of(keys)[:32]


def release_on_account(
    surveyed: Surveyed, home: Path, account: Account, *, id_columns: tuple[str, ...], may_draw: bool, client: Client
) -> PartitionedRelease:
    """Release partitions, or find their release; what was begun is finished from the same keys.

    Parameters
    ----------
    surveyed : Surveyed
    home : Path
        Holds all releases, on a file system that the workers share.
    account : Account
        Releases of partitions lie at `home`; its store serves where first draws are kept, else not.
    id_columns : tuple of str
    may_draw : bool
        False if this run has released before: then the release must be there.
    client : distributed.Client

    Raises
    ------
    LedgerError
        Before anything is drawn.

    Notes
    -----
    Privacy: as `parties.cluster.release.release_partitions`; a release that is found costs nothing and is noted as used
    again.
    """
    folder = release_folder(surveyed, home, is_secure=account.rng.is_secure)
    ledger, plan = account.ledger, PartitionPlan.read(folder)
    ledger.refresh()
    store, is_secure = account.store if account.keeps else None, account.rng.is_secure
    if plan is None and not may_draw and (store is None or not has_all(surveyed, store, is_secure=is_secure)):
        raise LedgerError(
            f"this run has released before, and {home} holds no release that fits: data, ids, partitions, schema or "
            "mechanism were changed, or the folder was. Drawing anew is another release: choose another run_id. "
            "Nothing was released"
        )
    is_made = plan is not None and (folder / "release.json").exists()
    if plan is not None and is_made and not all(ledger.content(charge) for charge in plan.charges if charge):
        raise LedgerError(
            f"{ledger.path} does not know the release in {folder}. Restore the ledger that it was charged to. "
            "Nothing was released"
        )
    found = release_partitions(
        surveyed.parts,
        surveyed.mechanisms,
        folder,
        id_columns=id_columns,
        client=client,
        rng=account.rng,
        ledger=ledger,
        occasion=account.occasion,
        budget=account.budget,
        surveyed=surveyed,
        store=store,
    )
    if plan is not None and is_made:
        reuses = {
            mechanism.schema.name: Reuse((charge,) if charge else (), len(surveyed.records))
            for mechanism, charge in zip(plan.mechanisms, plan.charges, strict=True)
        }
        ledger.charge([], reuses, account.occasion, account.budget)
    made = PartitionPlan.read(folder)
    n_drawn = 0 if made is None or is_made else sum(map(bool, made.charges))
    account.note(n_drawn, len(surveyed.mechanisms) - n_drawn)
    return found
