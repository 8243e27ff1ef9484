"""Release job: what a passive party brings to a training run, and how it greets the active party."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from opboost.desensitize import ColumnMechanism
from opboost.preprocess import Columns
from opboost.privacy.guarantee import Guarantee, compose, exposed
from opboost.rng import BitSource
from opboost.routing import Router, SplitTests
from opboost.table_format import TableFormat
from parties.ledger.due_cells import RunBlocks, run_in_process
from parties.tables.blocks import EncodedTable
from parties.vertical.prediction_server import Answerer
from parties.vertical.release_offer import ReleaseTable, greets_only, offered_names
from parties.vertical.resolution_limit import ResolvedTests
from protocols.alignment.id_proof import password_of
from protocols.messages.vertical import Hello, Role, Task, Terms


@dataclass(frozen=True, slots=True, kw_only=True)
class PassiveJob:
    """A passive party's inputs to a training run, and how its release is made.

    Attributes
    ----------
    party, run_id : str
    id_digest : str or None
        None before the records are aligned: such a job only greets.
    features : Columns or EncodedTable
        Raw columns, such as a DataFrame's, rows in the agreed order; or their exact codes.
    mechanisms : tuple of ColumnMechanism
    rng : BitSource
        Where the noise comes from.
    opaque_names : bool
        Whether the columns travel under numbers instead of their names.
    share_thresholds : bool
        Whether the active party may have the thresholds and the public encoding, and so score alone.
    share_codes : bool
        Whether the active party may know which codes of the mapped domain the ranks stand for.
    bounds_are_public : bool
        False if the schema's bounds were taken from the data; the guarantee then says so.
    alignment : str
        How the records were aligned, in words that must be the same on both sides.
    order : ndarray of int64, optional
        In which order the ranks travel, where that is not the order of the rows.
    release : callable
        Makes the release once both sides have agreed; by default it refuses.
    has_label : bool
        Whether this party's schema names a label column, as only the active party's should.
    agreed : Terms
        What the active party has agreed to.
    resolved : ResolvedTests
        Split tests that were resolved in earlier attempts and runs.
    n_cells : int, optional
        Cells of a column that records are answered with, at most; None to resolve and answer split tests instead.
    allow_routed : bool
        Whether split tests about new records may be answered from exact values.
    held_out_share : float
        Share of the common records that is held out of the release.
    most_records : int, optional
        How many of the others are released, at most.
    held_out : callable, optional
        Takes the router of the finished trees; returns the answerer for the held-out records. None until they are
        chosen.
    run_blocks : RunBlocks
        Calls a function on every block of records, in this process or on the cluster that holds them.
    format : TableFormat
        How the cells of the table are written; that of the released columns goes with shared thresholds.
    redraws : bool
        Whether `release` draws a changed value anew, which reveals that it was changed.
    """

    party: str
    run_id: str
    id_digest: str | None
    features: Columns | EncodedTable
    mechanisms: tuple[ColumnMechanism, ...]
    rng: BitSource
    opaque_names: bool = True
    share_thresholds: bool = False
    share_codes: bool = True
    bounds_are_public: bool = True
    alignment: str = "prealigned"
    order: NDArray[np.int64] | None = None
    release: ReleaseTable = greets_only
    has_label: bool = False
    agreed: Terms = field(default_factory=Terms)
    resolved: ResolvedTests = field(default_factory=ResolvedTests)
    n_cells: int | None = None
    allow_routed: bool = True
    held_out_share: float = 0.0
    most_records: int | None = None
    held_out: Callable[[Router], Answerer] | None = None
    run_blocks: RunBlocks = run_in_process
    format: TableFormat = field(default_factory=TableFormat)
    redraws: bool = False

    @property
    def n_rows(self) -> int:
        """Records."""
        return len(self.features)

    @property
    def password(self) -> bytes | None:
        """The password for the proof of ids, made of the aligned records' ids; None before they are aligned."""
        return None if self.id_digest is None else password_of(self.id_digest, self.order)

    def router(self, tests: SplitTests) -> Router:
        """The router that answers these split tests."""
        released = [mechanism.schema.name for mechanism in self.mechanisms]
        return Router(self.mechanisms, tests, self.format.of_cells(released))

    def guarantee(self) -> Guarantee:
        """The guarantee for the release of all columns."""
        return compose(
            tuple(mechanism.guarantee() for mechanism in self.mechanisms),
            is_secure=self.rng.is_secure,
            bounds_are_public=self.bounds_are_public,
            not_protected=exposed(allow_routed=self.allow_routed, redraws=self.redraws, n_cells=self.n_cells),
        )

    def hello(self, task: Task = Task.TRAIN) -> Hello:
        """The greeting for the active party."""
        settings = [mechanism.settings for mechanism in self.mechanisms]
        names = offered_names(self.mechanisms, opaque_names=self.opaque_names)
        plan = Terms(
            columns=len(names),
            mechanism=", ".join(sorted({setting.mechanism for setting in settings})) or None,
            law=", ".join(sorted({setting.law.value for setting in settings})) or None,
            # A column without points has no budget per point.
            epsilon=max(
                (float(mechanism.settings.epsilon) if mechanism.point else 0.0 for mechanism in self.mechanisms),
                default=None,
            ),
            total_epsilon=float(self.guarantee().epsilon),
            share_thresholds=self.share_thresholds,
            held_out=self.held_out_share,
            most_records=self.most_records,
            by_cells=self.n_cells is not None,
        )
        return Hello(
            role=Role.PASSIVE,
            party=self.party,
            run_id=self.run_id,
            task=task,
            n_rows=self.n_rows,
            alignment=self.alignment,
            has_label=self.has_label,
            plan=plan,
            agreed=self.agreed,
            names=names,
        )
