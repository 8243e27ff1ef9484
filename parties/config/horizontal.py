"""Run files of horizontal training: the coordinator's and a worker's, with a `training` section that both must share.

Paths in a run file are relative to the folder that holds it.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, field_validator, model_validator

from opboost.privacy.guarantee import RecordGuarantee
from opboost.schema import TableSchema
from parties.config.addresses import ConnectAddress, ListenAddress
from parties.config.cluster_section import DaskSection
from parties.config.federated_section import FederatedSection
from parties.config.protection import MOST_DELTA, Delta, Epsilon, GivenBudget, check_protection, given_budgets
from parties.config.sgbdt_section import SGBDTSection
from parties.config.vertical import Name, Peer
from parties.errors import ConfigError
from parties.ledger.model_ledger import RunBudget, RunCharge
from parties.storage.documents import explain, read_yaml
from protocols.secure_aggregation.epochs import MAX_WORKERS
from protocols.transport.channel import Timing

_WorkerCount = Annotated[int, Field(ge=2, le=MAX_WORKERS)]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class TrainingSection(_Section):
    """What all who take part must have agreed on.

    `noise` says who draws it: the ``aggregator``, which then sees exact sums, or the ``workers`` in shares, of which
    any `honest` make up the whole. Every sum is over at least `threshold` of the `workers`. With `known_workers`, the
    default in run files with a `secret_key`, every worker has the others' public keys, and no coordinator can make up
    workers. In ``paper`` mode every worker draws noise of its own.
    """

    recipe: Literal["sgbdt", "federated"] = Field("sgbdt", description="The training algorithm.")
    mode: Literal["certified", "paper"] = Field(
        "certified", description="The certified recipe, or the letter of its paper."
    )
    objective: Literal["binary:logistic", "reg:squarederror"] = Field("binary:logistic", description="The loss.")
    label_bounds: tuple[float, float] | None = Field(None, description="Public bounds of a numeric label.")
    epsilon: Epsilon = Field(description="The epsilon of the guarantee, per record.")
    delta: Delta = Field(description="The delta of the guarantee, per record.")
    noise: Literal["aggregator", "workers"] = Field(
        "workers", description="Who draws noise; an `aggregator` sees exact sums."
    )
    workers: _WorkerCount = Field(description="Number of workers.")
    threshold: _WorkerCount = Field(description="Least workers in a sum; more than half.")
    honest: Annotated[int, Field(ge=1)] | None = Field(
        None, description="Workers in every sum that are sure to add noise."
    )
    known_workers: bool | None = Field(
        None, description="Whether workers have each other's keys; by default with a `secret_key`."
    )
    sgbdt: SGBDTSection = Field(SGBDTSection(), description="Parameters of S-GBDT.")
    federated: FederatedSection = Field(FederatedSection(), description="Parameters of the federated framework.")

    @field_validator("recipe", mode="before")
    @classmethod
    def _check_recipe(cls, recipe: object) -> object:
        if recipe == "dpboost":
            raise ValueError(
                "DPBoost chooses splits from exact histograms, of which no worker has an account; it runs in one "
                "process only"
            )
        return recipe

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.workers < 2 * self.threshold <= 2 * self.workers:
            raise ValueError("`threshold` must be more than half of the `workers` and at most all of them")
        other = "sgbdt" if self.recipe == "federated" else "federated"
        if other in self.model_fields_set:
            raise ValueError(f"there is a section `{other}`, but the recipe is {self.recipe}")
        if self.mode == "paper" and self.recipe != "sgbdt":
            raise ValueError("`mode: paper` of this recipe is for comparison in one process: leave it out")
        if self.mode == "paper" and self.noise != "workers":
            raise ValueError("in `mode: paper` every worker draws its own noise: say `noise: workers`")
        if self.mode == "paper" and math.isinf(self.epsilon):
            raise ValueError("`mode: paper` is about noise: it needs a finite `epsilon`")
        is_shared = self.mode == "certified" and self.noise == "workers"
        if is_shared != (self.honest is not None):
            raise ValueError("`honest`, how many workers are sure to add their share, goes with noise in shares alone")
        if self.honest is not None and self.honest > self.threshold:
            raise ValueError("a sum may be over `threshold` workers, so no more than these can be promised as `honest`")
        if is_shared and self.recipe == "sgbdt" and self.sgbdt.subsample < 1:
            raise ValueError("there is no account of sampled records with noise in shares: leave `subsample` at 1")
        if (self.objective == "reg:squarederror") != (self.label_bounds is not None):
            raise ValueError("public `label_bounds` go with `reg:squarederror`, and with nothing else")
        return self

    @model_validator(mode="after")
    def _complete(self) -> Self:
        object.__setattr__(self, "sgbdt", self.sgbdt.completed(self.objective))
        return self

    def terms(self, schema: TableSchema) -> dict[str, JsonValue]:
        """The same as it travels, with a digest of what is public about the columns."""
        other = "sgbdt" if self.recipe == "federated" else "federated"
        return {**terms_of(self, schema, without=other), "epsilon": self.epsilon}


def terms_of(training: BaseModel, schema: TableSchema, *, without: str = "") -> dict[str, JsonValue]:
    """A section as it travels, with a digest of what is public about the columns; `without` one of its parts."""
    columns = json.dumps([asdict(column) for column in schema.columns], default=str)
    found: dict[str, JsonValue] = {"schema": hashlib.sha256(columns.encode()).hexdigest()}
    for name, value in training.model_dump(mode="json", exclude={without}).items():
        if isinstance(value, dict):
            found |= {f"{name}.{key}": item for key, item in value.items()}
        else:
            found[name] = value
    return found


class HorizontalRun(_Section):
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
    workers: tuple[Peer, ...] = Field(description="The workers.")
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


class WorkerLedgerSection(_Section):
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
    coordinator: Peer = Field(description="The coordinator.")
    peers: tuple[Peer, ...] = Field((), description="All other workers, if they are known to each other.")
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


def _resolved(peer: Peer, folder: Path) -> Peer:
    return peer if peer.public_key is None else peer.model_copy(update={"public_key": folder / peer.public_key})
