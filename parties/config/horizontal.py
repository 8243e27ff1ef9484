"""Run files of horizontal training: the coordinator's and a worker's, which share their `training` section."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, JsonValue, ValidationInfo, field_validator, model_validator

from opboost import rng
from opboost.privacy.record_guarantee import MOST_DELTA
from opboost.rng import BitSource
from opboost.schema import TableSchema
from parties.config.addresses import ConnectAddress, ListenAddress
from parties.config.cluster_section import DaskSection
from parties.config.party_run import NamedKey, PartyRun, Wiring
from parties.config.protection import Delta, Epsilon, GivenBudget, given_budgets
from parties.config.section import Section
from parties.config.training_section import TrainingSection
from parties.ledger.run_charge import RunBudget
from protocols.transport.channel import Timing


class HorizontalRun(PartyRun):
    """The keys that every run file of horizontal training has, whatever is trained."""

    seed: int | None = Field(None, description="Seed of the noise, for tests; costs the ledger infinitely much.")

    @property
    def bits(self) -> BitSource:
        """Secure random bits; with a seed, bits that can be drawn again, on which no guarantee rests."""
        return rng.secure() if self.seed is None else rng.seeded(self.seed)


class _Run(HorizontalRun):
    training: TrainingSection = Field(description="What all who take part agreed on.")
    continue_from: Path | None = Field(
        None, description="Folder of a finished run, which this one continues with records that have arrived."
    )

    @field_validator("training")
    @classmethod
    def _know_workers(cls, training: TrainingSection, info: ValidationInfo) -> TrainingSection:
        """Where there are keys, workers are known to each other unless the run file says otherwise."""
        if training.known_workers is not None:
            return training
        return training.model_copy(update={"known_workers": info.data.get("secret_key") is not None})

    @model_validator(mode="after")
    def _check_continued(self) -> Self:
        training = self.training
        if self.continue_from is not None and (training.recipe == "federated" or training.mode == "paper"):
            raise ValueError("continue_from goes with `recipe: recommended`, or `recipe: sgbdt` in its certified mode")
        return self

    def terms(self, schema: TableSchema) -> dict[str, JsonValue]:
        """The terms of this run alone; also whether noise can be drawn again."""
        return {**self.training.terms(schema), "seeded": self.seed is not None}

    def budgets(self) -> Iterator[GivenBudget]:
        yield from given_budgets("training", epsilon=self.training.epsilon)
        yield GivenBudget.at("training.delta", self.training.delta, MOST_DELTA)


class CoordinatorRun(_Run):
    """The coordinator's run file. `patience` is how long a worker may take for an answer, in seconds."""

    role: Literal["coordinator"] = Field(description="The role.")
    listen: ListenAddress = Field(description="Address that workers connect to.")
    workers: tuple[NamedKey, ...] = Field(description="The workers.")
    patience: float = Field(30.0, gt=0, le=3600, description="Seconds that a worker may take for an answer.")

    @property
    def wiring(self) -> Wiring:
        return Wiring(self.workers, {}, self.listen)

    @property
    def timing(self) -> Timing:
        # A worker that takes as long for an answer as it may says nothing meanwhile.
        stall_s = max(self.stall, 2 * self.patience)
        return Timing(timeout_s=self.timeout, wait_s=self.wait, stall_s=stall_s, send_s=self.patience)

    @model_validator(mode="after")
    def _check_workers(self) -> Self:
        names = [self.party, *(worker.name for worker in self.workers)]
        if len(set(names)) < len(names) or len(self.workers) != self.training.workers:
            raise ValueError(
                f"`workers` must list the {self.training.workers} workers of `training`, each under a name of its own"
            )
        return self


class WorkerLedgerSection(Section):
    """The `ledger` section of a worker: the ledger of all its runs, and the budget of all of them."""

    path: Path = Field(
        Path("runs/worker-ledger.sqlite"), description="The ledger, one for all runs on the same people."
    )
    epsilon: Epsilon | None = Field(None, description="Most epsilon of a record over all runs.")
    delta: Delta | None = Field(None, description="Most delta of a record over all runs.")

    def budgets(self) -> Iterator[GivenBudget]:
        """The limits by their places in the run file."""
        yield from given_budgets("ledger", epsilon=self.epsilon)
        if self.delta is not None:
            yield GivenBudget.at("ledger.delta", self.delta, MOST_DELTA)

    @property
    def budget(self) -> RunBudget:
        return RunBudget(epsilon=self.epsilon, delta=self.delta)


class WorkerRun(_Run):
    """A worker's run file. `peers` are the other workers, if they are known to each other.

    `data` is a file with all rows; or Parquet partitions, as a folder, a pattern such as ``rows/*.parquet``, or a list
    of files. With ``engine: dask`` partitions lie at the workers of the cluster that `dask` names; otherwise they are
    read here, one after the other.
    """

    role: Literal["worker"] = Field(description="The role.")
    data: Path | tuple[Path, ...] = Field(
        description="Data file; or Parquet partitions: a folder, a pattern or a list of files."
    )
    engine: Literal["native", "dask"] = Field(
        "native", description="Who holds partitions: this process, or a Dask cluster."
    )
    dask: DaskSection | None = Field(None, description="The cluster, with `engine: dask`.")
    connect: ConnectAddress = Field(description="Address of the coordinator.")
    coordinator: NamedKey = Field(description="The coordinator.")
    peers: tuple[NamedKey, ...] = Field((), description="All other workers, if they are known to each other.")
    ledger: WorkerLedgerSection = Field(WorkerLedgerSection(), description="The privacy ledger and its limits.")

    @property
    def kept_files(self) -> dict[str, Path]:
        return {"ledger.path": self.ledger.path}

    @property
    def wiring(self) -> Wiring:
        return Wiring([self.coordinator, *self.peers], {self.coordinator.name: self.connect}, None)

    def budgets(self) -> Iterator[GivenBudget]:
        yield from super().budgets()
        yield from self.ledger.budgets()

    @model_validator(mode="after")
    def _check_engine(self) -> Self:
        if (self.engine == "dask") != (self.dask is not None):
            raise ValueError(
                "`engine: dask` goes with a section `dask` that says which `scheduler`, or how many `workers`"
            )
        return self

    @model_validator(mode="after")
    def _check_peers(self) -> Self:
        due = self.training.workers - 1 if self.training.known_workers else 0
        if len({peer.name for peer in self.peers} - {self.party}) != due or len(self.peers) != due:
            raise ValueError(
                f"`peers` must list the {due} other workers with their public keys; or all agree on `known_workers: "
                "false` in `training`, and trust the coordinator not to make up workers"
                if due
                else "`peers` go with `known_workers: true` in `training`"
            )
        return self
