"""Plan of a horizontal run: guarantee, noise, traffic and cost, from the run file, the schema and the ledger.

Nothing is drawn for a release, charged or sent. Apart from a party's own number of rows and its ledger, everything here
follows from what all who take part have agreed on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from opboost.errors import OpBoostError
from opboost.horizontal.inprivate.owners import InPrivateAmongOwners
from opboost.horizontal.noise.distributed_noise import epsilon_of_shares
from opboost.horizontal.noise.leaf_noise import LeafNoise
from opboost.horizontal.noise.query_account import QueryAccount
from opboost.horizontal.recommended.owners import RecommendedAmongOwners
from opboost.privacy.accounting import by_loss_distribution
from opboost.schema import TableSchema
from parties.cluster.worker_rows import count_rows
from parties.config.horizontal import CoordinatorRun
from parties.config.reading import read_schema
from parties.config.recipes import SummedRecipe, make_recipe
from parties.config.record_runs import RecordRecipe, RecordRun, peers_of, read_record_run, recipe_of
from parties.config.training_section import TrainingSection
from parties.errors import PartyError
from parties.horizontal.traffic_estimate import EstimatedTraffic, estimate_traffic
from parties.progress import Progress, no_progress
from parties.reports.horizontal_facts import RecordTerms, record_terms, releases_of
from parties.reports.sentences import HAS_RELEASED
from parties.runs.run_folder import RunFolder

# Multiples of the agreed budget at which the noise is shown, where no budgets were asked for.
NOISE_MULTIPLES = (0.25, 0.5, 1.0, 2.0, 4.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseAt:
    """The noise that a budget needs.

    Attributes
    ----------
    epsilon : float
    multiplier : float
        Deviation on an answer about a tree, over how far one record can move it; the least, where trees differ.
    """

    epsilon: float
    multiplier: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SharesAt:
    """Guarantee of noise in shares if so many workers add theirs to every sum.

    Attributes
    ----------
    n_workers : int
    multiplier : float
        As in `NoiseAt`.
    epsilon : float
        At the run's delta.
    """

    n_workers: int
    multiplier: float
    epsilon: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordPlan(RecordTerms):
    """Plan of a horizontal run.

    Attributes
    ----------
    party, run_id : str
    peers : tuple of str
    n_columns, n_trees : int
        Of the model.
    n_records : int or None
        The party's own rows; None at a coordinator, which has none.
    noises : tuple of NoiseAt
        Empty without noise, and in a chain.
    shares : tuple of SharesAt
        Empty unless there is noise in shares.
    traffic : EstimatedTraffic or None
        None in a chain.
    warnings : tuple of str
        What a plan leaves out.
    """

    party: str
    run_id: str
    peers: tuple[str, ...]
    n_columns: int
    n_trees: int
    n_records: int | None
    noises: tuple[NoiseAt, ...] = ()
    shares: tuple[SharesAt, ...] = ()
    traffic: EstimatedTraffic | None = None
    warnings: tuple[str, ...] = ()


def record_plan(path: Path, *, epsilons: Sequence[float] = (), progress: Progress = no_progress) -> RecordPlan:
    """Compute the plan of a run file.

    Parameters
    ----------
    path : Path
    epsilons : sequence of float
        Other budgets to show the noise of; by default some around the agreed one.
    progress : Progress

    Raises
    ------
    ConfigError, TableError
        If the run file or the data could not be used for the run either.
    """
    run = read_record_run(path)
    schema, ignore = read_schema(run.table_schema)
    recipe = recipe_of(run, schema, path)
    n_records = None if isinstance(run, CoordinatorRun) else count_rows(run, schema, ignore)
    promise = recipe.guarantee(is_secure=run.seed is None)
    plan = RecordPlan(
        **record_terms(run, recipe, promise),
        party=run.party,
        run_id=run.run_id,
        peers=peers_of(run),
        n_columns=len(schema.names),
        n_trees=n_model_trees(run, recipe),
        n_records=n_records,
        warnings=(HAS_RELEASED,) * RunFolder(run.run_folder).has_released,
    )
    if isinstance(recipe, InPrivateAmongOwners) or not isinstance(run.training, TrainingSection):
        return plan
    return replace(
        plan,
        noises=_noises(run.training, recipe, schema, epsilons, progress),
        shares=_shares(run.training, recipe),
        traffic=estimate_traffic(recipe, run.training.workers),
    )


def n_model_trees(run: RecordRun, recipe: RecordRecipe) -> int:
    """Trees of the model that a run trains."""
    if isinstance(recipe, InPrivateAmongOwners):
        return recipe.settings.n_rounds * (len(peers_of(run)) + 1)
    # First rounds are trees on the wire alone.
    return recipe.n_model_trees if isinstance(recipe, RecommendedAmongOwners) else recipe.n_trees


def _noises(
    training: TrainingSection, recipe: SummedRecipe, schema: TableSchema, epsilons: Sequence[float], progress: Progress
) -> tuple[NoiseAt, ...]:
    """Noise of the same recipe for other budgets; infeasible ones are left out.

    A search for noise by loss distributions takes seconds, so that those are for budgets that were asked for.
    """
    if not releases_of(recipe):
        return ()
    agreed, noise = training.epsilon, recipe.noise
    is_slow = isinstance(noise, LeafNoise) and noise.account is by_loss_distribution
    wanted = {*epsilons} if epsilons or is_slow else {agreed * multiple for multiple in NOISE_MULTIPLES}
    noises = [NoiseAt(epsilon=agreed, multiplier=noise.multiplier)]
    for done, epsilon in enumerate(sorted(wanted - {agreed}), start=1):
        with suppress(OpBoostError, PartyError):
            one = make_recipe(training.model_copy(update={"epsilon": epsilon}), schema)
            noises.append(NoiseAt(epsilon=epsilon, multiplier=one.noise.multiplier))
        progress("noise for other budgets", done, len(wanted))
    return tuple(sorted(noises, key=lambda noise_at: noise_at.epsilon))


def _shares(training: TrainingSection, recipe: SummedRecipe) -> tuple[SharesAt, ...]:
    """Guarantees for one share to all: variances add up, so k shares have ``k / honest`` of the agreed variance."""
    noise = recipe.noise
    if isinstance(noise, QueryAccount) or not noise.n_honest or not noise.releases:
        return ()
    return tuple(
        SharesAt(
            n_workers=k,
            multiplier=noise.multiplier * math.sqrt(k / noise.n_honest),
            epsilon=epsilon_of_shares(noise, k, delta=training.delta),
        )
        for k in range(1, training.workers + 1)
    )
