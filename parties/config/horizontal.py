"""Run files of horizontal training: the coordinator's and a worker's, with a `training` section that both must share.

Paths in a run file are relative to the folder that holds it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

from pydantic import Field, JsonValue, ValidationError, model_validator

from opboost.privacy.record_guarantee import RecordGuarantee
from opboost.schema import TableSchema
from parties.config.addresses import ConnectAddress, ListenAddress
from parties.config.cluster_section import DaskSection
from parties.config.protection import MOST_DELTA, Delta, Epsilon, GivenBudget, check_protection, given_budgets
from parties.config.section import Section
from parties.config.training_section import TrainingSection
from parties.config.vertical import KnownPeer, Name
from parties.errors import ConfigError
from parties.ledger.model_ledger import RunBudget, RunCharge
from parties.storage.documents import explain, read_yaml
from protocols.transport.channel import Timing


class HorizontalRun(Section):
    """What every run file of horizontal training has, whatever is trained."""

    party: Name = Field(description="This party's name.")
    run_id: Name = Field(description="Name of the run, the same on all sides.")
    table_schema: Path = Field(alias="schema", description="Schema file; the same public columns at all.")
    secret_key: Path | None = Field(None, description="This party's secret key file.")
    timeout: float = Field(10.0, gt=0, le=3600, description="Seconds of silence after which a peer counts as lost.")
    wait: float = Field(60.0, gt=0, le=7 * 24 * 3600, description="Seconds to look for the peers after the start.")
    stall: float = Field(
        900.0,
        gt=0,
        le=7 * 24 * 3600,
        description="Seconds without a sign of life of a peer's program until it counts as hung.",
    )
    folder: Path | None = Field(None, description="Run folder; by default `runs/RUN_ID` beside the run file.")
    report: bool = Field(True, description="Whether reports are written.")
    seed: int | None = Field(None, description="Seed of the noise, for tests; costs the ledger infinitely much.")
    no_privacy: bool = Field(False, description="Allows budgets that protect nothing.")

    @property
    def timing(self) -> Timing:
        return Timing(timeout_s=self.timeout, wait_s=self.wait, stall_s=self.stall)

    @property
    def run_folder(self) -> Path:
        assert self.folder is not None
        return self.folder

    def charge_for(self, promise: RecordGuarantee, whom: str) -> RunCharge:
        """What a run that promises this costs each of the party's records; without end if noise can be drawn again."""
        epsilon = promise.epsilon if self.seed is None else math.inf
        return RunCharge(run=self.run_id, coordinator=whom, epsilon=epsilon, delta=promise.delta)


class _Run(HorizontalRun):
    training: TrainingSection = Field(description="What all who take part agreed on.")

    @model_validator(mode="after")
    def _know_workers(self) -> Self:
        """Where there are keys, workers are known to each other unless the run file says otherwise."""
        if self.training.known_workers is None:
            training = self.training.model_copy(update={"known_workers": self.secret_key is not None})
            object.__setattr__(self, "training", training)
        return self

    def terms(self, schema: TableSchema) -> dict[str, JsonValue]:
        """What all must have agreed on, as it travels; noise that one side can draw again is agreed on too."""
        return {**self.training.terms(schema), "seeded": self.seed is not None}

    @model_validator(mode="after")
    def _check_protection(self) -> Self:
        given = [
            *given_budgets("training", epsilon=self.training.epsilon),
            GivenBudget.at("training.delta", self.training.delta, MOST_DELTA),
            *(self.ledger.budgets() if isinstance(self, WorkerRun) else ()),
        ]
        check_protection(given, no_privacy=self.no_privacy)
        return self


class CoordinatorRun(_Run):
    """The coordinator's run file. `patience` is how long a worker may take for an answer, in seconds."""

    role: Literal["coordinator"] = Field(description="The role.")
    listen: ListenAddress = Field(description="Address that workers connect to.")
    workers: tuple[KnownPeer, ...] = Field(description="The workers.")
    patience: float = Field(30.0, gt=0, le=3600, description="Seconds that a worker may take for an answer.")

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
    """Where a worker keeps account of all its runs, and the most that they may cost together."""

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
    coordinator: KnownPeer = Field(description="The coordinator.")
    peers: tuple[KnownPeer, ...] = Field((), description="All other workers, if they are known to each other.")
    ledger: WorkerLedgerSection = Field(WorkerLedgerSection(), description="The privacy ledger and its limits.")

    @model_validator(mode="after")
    def _check_engine(self) -> Self:
        if (self.engine == "dask") != (self.dask is not None):
            raise ValueError(
                "`engine: dask` goes with a section `dask` that says which `scheduler`, or how many `workers`"
            )
        if self.engine == "dask" and self.training.recipe == "sgbdt" and self.training.sgbdt.subsample < 1:
            raise ValueError(
                "engine: dask has no coins for sampled records, whose stream is one for all rows: leave out `engine`, "
                "or `subsample`"
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

    def charge(self, promise: RecordGuarantee) -> RunCharge:
        """What the run costs each of this worker's records."""
        return self.charge_for(promise, self.coordinator.name)


R = TypeVar("R", CoordinatorRun, WorkerRun)
H = TypeVar("H", bound=HorizontalRun)


def read_horizontal(path: Path, kind: type[R]) -> R:
    """Read a run file of one role.

    Raises
    ------
    ConfigError
        Naming the file, the key, what was found and what is allowed.
    """
    run, folder = read_common(path, kind)
    update: dict[str, Any] = {}
    if isinstance(run, CoordinatorRun):
        update["workers"] = tuple(_resolved(worker, folder) for worker in run.workers)
    else:
        update["data"] = folder / run.data if isinstance(run.data, Path) else tuple(folder / path for path in run.data)
        update["ledger"] = run.ledger.model_copy(update={"path": folder / run.ledger.path})
        update["coordinator"] = _resolved(run.coordinator, folder)
        update["peers"] = tuple(_resolved(peer, folder) for peer in run.peers)
    return run.model_copy(update=update)


def read_common(path: Path, kind: type[H]) -> tuple[H, Path]:
    """Read a run file, the paths that all kinds have resolved against its folder, which comes with it.

    Raises
    ------
    ConfigError
        Naming the file, the key, what was found and what is allowed.
    """
    try:
        run = kind.model_validate(read_yaml(path))
    except ValidationError as error:
        raise ConfigError(f"{path}: {explain(error)}") from None
    folder = path.resolve().parent
    update: dict[str, Any] = {
        "table_schema": folder / run.table_schema,
        "secret_key": None if run.secret_key is None else folder / run.secret_key,
        "folder": folder / (run.folder or Path("runs") / run.run_id),
    }
    return run.model_copy(update=update), folder


def _resolved(peer: KnownPeer, folder: Path) -> KnownPeer:
    return peer if peer.public_key is None else peer.model_copy(update={"public_key": folder / peer.public_key})
