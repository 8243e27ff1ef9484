"""Traffic estimate: rounds and bytes of a horizontal run, from its recipe on simulated workers that answer zeros.

The messages are those of a run, so that sizes are right. Random trees do not depend on the answers, so that their count
is right for a run in which nobody drops out; trees that are chosen by noisy answers are here chosen by the noise alone.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from opboost.horizontal.federated.owners import FederatedAmongOwners
from opboost.rng import seeded
from parties.config.recipes import SummedRecipe
from parties.horizontal.remote_holder import RemoteHolder
from protocols.messages.horizontal import (
    AddUp,
    Confirmed,
    Masked,
    Shares,
    Survivors,
    Unmask,
    WantHistograms,
    WantTotals,
)
from protocols.messages.message import Message
from protocols.secure_aggregation.epochs import DIGESTS_BYTES, SEALED_BYTES
from protocols.secure_aggregation.masking import CONFIRMATION_BYTES, SEED_BYTES, TAG_BYTES
from protocols.secure_aggregation.sharing import SECRET_BYTES
from protocols.transport.codec import encode, size_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimatedTraffic:
    """Estimated traffic of a run, for one worker that takes part from beginning to end.

    Attributes
    ----------
    n_rounds : int
        Of secure aggregation.
    n_totals, n_histograms : int
        Questions for sums of nodes, and for their histograms; those of one round are answered together.
    n_numbers : int
        In all of a worker's vectors.
    sent_bytes, received_bytes : int
        By a worker, with what secure aggregation adds; handshakes and the drawing of public bits not counted.
    n_queries, paper_rounds, paper_bytes : int or None
        Queries of the privacy accounting, and rounds and bytes per owner as the publication counts them (Maddock et
        al., 2022, appendix B: 8 bytes for every number that is released, without secure aggregation); None for other
        recipes.
    """

    n_rounds: int
    n_totals: int
    n_histograms: int
    n_numbers: int
    sent_bytes: int
    received_bytes: int
    n_queries: int | None
    paper_rounds: int | None
    paper_bytes: int | None


def estimate_traffic(recipe: SummedRecipe, n_workers: int) -> EstimatedTraffic:
    """Estimate the traffic of a recipe. No data is used, and what is drawn here is discarded."""
    workers, bits = _SimulatedWorkers(n_workers), seeded(0)
    holder = RemoteHolder(workers)
    by_paper: tuple[int | None, int | None, int | None] = (None, None, None)
    if isinstance(recipe, FederatedAmongOwners):
        trained = recipe.trained(holder, shape_bits=bits.fork("shape"), rng=bits.fork("noise"))
        by_paper = recipe.choices.n_queries(len(recipe.task.names)), trained.n_rounds, trained.n_bytes
    else:
        recipe.train(holder, shape_bits=bits.fork("shape"), rng=bits.fork("noise"))
    return EstimatedTraffic(
        n_rounds=workers.n_rounds,
        n_totals=workers.asked[WantTotals.kind],
        n_histograms=workers.asked[WantHistograms.kind],
        n_numbers=workers.n_numbers,
        sent_bytes=workers.sent_bytes,
        received_bytes=workers.received_bytes,
        n_queries=by_paper[0],
        paper_rounds=by_paper[1],
        paper_bytes=by_paper[2],
    )


class _SimulatedWorkers:
    """Simulated workers without rows; the messages of one are counted."""

    def __init__(self, n_workers: int) -> None:
        self._everybody = np.ones(n_workers, np.bool_)
        self._sealed = np.zeros((n_workers, SEALED_BYTES), np.uint8)
        self._digests = np.zeros((n_workers, DIGESTS_BYTES), np.uint8)
        self._shares = np.zeros((n_workers, SECRET_BYTES), np.uint8)
        self._confirmations = np.zeros((n_workers, CONFIRMATION_BYTES), np.uint8)
        self._seeds = bytes(n_workers * SEED_BYTES + TAG_BYTES)
        self._n_wanted = 0
        self.asked: Counter[str] = Counter()
        self.n_rounds = self.n_numbers = self.sent_bytes = self.received_bytes = 0

    def tell(self, message: Message) -> None:
        self.received_bytes += size_bytes(encode(message))

    def want(self, message: Message) -> None:
        self.asked[message.kind] += 1
        self._n_wanted += 1
        self.tell(message)

    def total(self, length: int) -> NDArray[np.int64]:
        number, self._n_wanted, n_wanted = self.n_rounds, 0, self._n_wanted
        self.n_rounds += 1
        self.n_numbers += length
        self.tell(AddUp(n_wanted=n_wanted, epoch=1, round=number, present=self._everybody))
        self.tell(Survivors(epoch=1, round=number, survivors=self._everybody))
        self.tell(Unmask(epoch=1, round=number, sealed=self._sealed, confirmations=self._confirmations))
        masked = Masked(
            epoch=1,
            round=number,
            vector=np.zeros(length, "<u8"),
            sealed=self._sealed,
            seeds=self._seeds,
            mark=bytes(SEED_BYTES),
            digests=self._digests,
        )
        confirmed = Confirmed(epoch=1, round=number, rows=self._confirmations)
        shares = Shares(epoch=1, round=number, rows=self._shares, confirmed=self._everybody)
        self.sent_bytes += sum(size_bytes(encode(message)) for message in (masked, confirmed, shares))
        return np.zeros(length, np.int64)
