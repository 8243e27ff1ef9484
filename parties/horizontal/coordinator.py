"""The coordinator: runs a recipe on the sums of its workers' answers, and never sees a row or a worker's own sum."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from opboost.horizontal.rows.client_rows import ClientHolder
from opboost.privacy.record_guarantee import RecordGuarantee
from opboost.rng import BitSource
from opboost.trees.tree import Ensemble
from parties.horizontal.remote_holder import RemoteHolder
from parties.horizontal.worker_group import WorkerGroup
from parties.session.handshake import conversation


class CoordinatorRecipe(Protocol):
    """What a coordinator needs of a recipe; it knows nothing of where the rows are."""

    def train(self, holder: ClientHolder, *, shape_bits: BitSource, rng: BitSource) -> Ensemble:
        """Grow a model on the holder's answers; `shape_bits` are known to everybody."""

    def guarantee(self, *, is_secure: bool) -> RecordGuarantee:
        """What the model promises."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedModel:
    """What a run of workers results in.

    Attributes
    ----------
    ensemble : Ensemble
    guarantee : RecordGuarantee
    """

    ensemble: Ensemble
    guarantee: RecordGuarantee


def run_coordinator(
    recipe: CoordinatorRecipe,
    workers: WorkerGroup,
    *,
    rng: BitSource,
    save: Callable[[SharedModel], None] = lambda model: None,
) -> SharedModel:
    """Train with the workers at the other ends of the group's channels.

    They are told that the job is done only after `save` has returned.

    Notes
    -----
    Privacy: the recipe's guarantee. Exact sums over at least the threshold of workers pass through here unless the
    workers add the noise.
    """
    with conversation(workers.channels) as phase:
        phase.enter("gathering the workers")
        bits = workers.gather()
        phase.enter("growing trees")
        ensemble = recipe.train(RemoteHolder(workers), shape_bits=bits, rng=rng)
        model = SharedModel(
            ensemble=ensemble, guarantee=recipe.guarantee(is_secure=rng.is_secure and workers.is_secure)
        )
        phase.enter("saving the model")
        save(model)
        workers.finish()
        return model
