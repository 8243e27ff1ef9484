"""Coordinator: trains a recipe on sums of its workers' answers; sees no row and no single worker's sum."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from opboost.horizontal.rows.client_rows import ClientHolder
from opboost.privacy.record_guarantee import RecordGuarantee
from opboost.rng import BitSource
from opboost.trees.tree import Ensemble
from parties.horizontal.remote_holder import RemoteHolder
from parties.horizontal.worker_group import WorkerGroup
from parties.session.handshake import conversation


class CoordinatorRecipe(Protocol):
    """Interface of a recipe for a coordinator; it does not depend on where the rows are."""

    def train(self, holder: ClientHolder, *, shape_bits: BitSource, rng: BitSource) -> Ensemble:
        """Grow a model on the holder's answers; `shape_bits` are known to everybody."""

    def guarantee(self, *, is_secure: bool) -> RecordGuarantee:
        """The guarantee of the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedModel:
    """Result of a horizontal training run.

    Attributes
    ----------
    ensemble : Ensemble
    guarantee : RecordGuarantee
    absent : tuple of str
        Workers that did not confirm that they have it.
    """

    ensemble: Ensemble
    guarantee: RecordGuarantee
    absent: tuple[str, ...] = ()


def run_coordinator(
    recipe: CoordinatorRecipe,
    workers: WorkerGroup,
    *,
    rng: BitSource,
    save: Callable[[SharedModel], None] = lambda model: None,
) -> SharedModel:
    """Run the coordinator's side of a training run with a group of workers.

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
        return replace(model, absent=tuple(workers.finish()))
