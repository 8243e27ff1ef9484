"""A worker's partitions on its own Dask cluster: every question is a task per partition and a tree of sums.

::

    partition 0   read ─► state ─► state' ─► state'' ...        state' = task(state, words), never changed
                                  │         │
    partition 1   read ─► state ─► state' ─► state'' ...
                                  sums ──┬── sums ──► the worker's process: noise, mask, send
                                         ▲ added by tasks

A state that is lost with the machine that held it is computed again by Dask, from its file and the words since: it is
the same, since its rows are compared with those before, and the coins of sampled records depend on a key, the record
and the round alone. Noise is drawn by the worker's process, from the sum, once.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import partial
from operator import methodcaller
from typing import TYPE_CHECKING, Any

from opboost.arrays import Sums, Values
from opboost.errors import OpBoostError
from opboost.rng import RepeatableWords
from opboost.trees.tree import Ensemble
from parties.cluster.dask_cluster import reporting_lost_workers
from parties.config.recipes import SummedRecipe
from parties.errors import PartyError, WorkersLost
from parties.horizontal.partition_files import PartFile, check_ids
from parties.horizontal.row_partitions import Call, HeldPart, added

if TYPE_CHECKING:
    from distributed import Client, Future

# Answers that a task adds up.
_ADDED = 8


class PartsOnDask:
    """Partitions at the workers of a cluster, as `parties.horizontal.row_partitions.Parts`.

    Parameters
    ----------
    files : sequence of PartFile
        On a file system that the cluster's workers share with this process.
    recipe : SummedRecipe
    coins : sequence of RepeatableWords, optional
        Of each partition, where records are sampled.
    client : distributed.Client
        Of this party's own cluster.

    Raises
    ------
    TableError, DataError, ConfigError
        If partitions cannot be read or do not fit.
    WorkersLost

    Notes
    -----
    Privacy: what goes through Dask are rows and exact sums; the cluster must be this party's alone.
    """

    def __init__(
        self,
        files: Sequence[PartFile],
        recipe: SummedRecipe,
        *,
        coins: Sequence[RepeatableWords] | None = None,
        client: Client,
    ) -> None:
        self._client = client
        self._files = files
        check_ids(self._had(client.map(PartFile.names, files, pure=False)))
        of_parts = [None] * len(files) if coins is None else list(coins)
        self._states: list[Future[HeldPart]] = client.map(partial(_read, recipe), files, of_parts, pure=False)
        self._digests: list[str] = self._had(client.map(_digest, self._states, pure=False))

    @property
    def digests(self) -> list[str]:
        return self._digests

    def ask(self, calls: Sequence[Call]) -> Sums:
        submit = partial(self._client.submit, pure=False)
        with reporting_lost_workers(self._client):
            # The states before are held until the answer is here; then Dask keeps only how they were made.
            states = [
                submit(_after, state, [methodcaller("check_digest", digest), *calls])
                for state, digest in zip(self._states, self._digests, strict=True)
            ]
            sums = [submit(_sums, state) for state in states]
            while len(sums) > 1:
                sums = [submit(added, sums[begin : begin + _ADDED]) for begin in range(0, len(sums), _ADDED)]
            answer: Sums = self._had(sums)[0].copy()
        self._states = states
        return answer

    def predictions(self, model: Ensemble) -> list[tuple[Values, Values]]:
        with reporting_lost_workers(self._client):
            found: list[tuple[Values, Values]] = self._had(
                self._client.map(partial(PartFile.predictions, model=model), self._files, self._digests, pure=False)
            )
        return found

    def _had(self, futures: Sequence[Future[Any]]) -> list[Any]:
        """Results, or what is wrong in a sentence."""
        try:
            return list(self._client.gather(list(futures)))
        except (OpBoostError, PartyError):
            raise
        except Exception as error:  # Dask and sockets each tell lost workers in their own way
            raise WorkersLost(
                f"the cluster of `dask` did not finish a task: {type(error).__name__}. Nothing was sent"
            ) from None


def _read(recipe: SummedRecipe, file: PartFile, coins: RepeatableWords | None) -> HeldPart:
    # A task may run again with the same arguments, which must be as they were.
    return HeldPart.read(file, recipe, coins=copy(coins))


def _after(state: HeldPart, calls: Sequence[Call]) -> HeldPart:
    """A new state; the one before stays as it is, so that this may run again."""
    part = HeldPart(state.file, state.records.copied(), state.digest, state.sums)
    for call in calls:
        call(part)
    return part


def _sums(state: HeldPart) -> Sums:
    return state.sums


def _digest(state: HeldPart) -> str:
    return state.digest
