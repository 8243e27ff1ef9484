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

from opboost.schema import TableSchema
from parties.cluster.dask_cluster import DaskSection
from parties.config.addresses import ConnectAddress, ListenAddress
from parties.config.federated_section import FederatedSection
from parties.config.protection import (
    MOST_DELTA,
    Delta,
    Epsilon,
    GivenBudget,
    LabelBounds,
    check_protection,
    given_budgets,
)
from parties.config.sgbdt_section import SGBDTSection
from parties.config.vertical import Name, Peer
from parties.errors import ConfigError
from parties.ledger.model_ledger import RunBudget
from parties.storage.documents import explain, read_yaml
from protocols.secure_aggregation.epochs import MAX_WORKERS
from protocols.transport.channel import Timing

_WorkerCount = Annotated[int, Field(ge=2, le=MAX_WORKERS)]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class TrainingSection(_Section):
    """What all who take part must have agreed on.

    `noise` says who draws it: the ``aggregator``, which then sees exact sums, or the ``workers`` in shares, of which
    any `honest` make up the whole. Every sum is over at least `threshold` of the `workers`. With `known_workers` every
    worker has the others' public keys. In ``paper`` mode every worker draws noise of its own.
    """

    recipe: Literal["sgbdt", "federated"] = "sgbdt"
    mode: Literal["certified", "paper"] = "certified"
    objective: Literal["binary:logistic", "reg:squarederror"] = "binary:logistic"
    label_bounds: LabelBounds | None = None
    epsilon: Epsilon
    delta: Delta
    noise: Literal["aggregator", "workers"] = "workers"
    workers: _WorkerCount
    threshold: _WorkerCount
    honest: Annotated[int, Field(ge=1)] | None = None
    known_workers: bool = False
    sgbdt: SGBDTSection = SGBDTSection()
    federated: FederatedSection = FederatedSection()

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

    party: Name
    run_id: Name
    table_schema: Path = Field(alias="schema")
    secret_key: Path | None = None
    timeout: Annotated[float, Field(gt=0, le=3600)] = 10.0
    wait: Annotated[float, Field(gt=0, le=7 * 24 * 3600)] = 60.0
    folder: Path | None = None
    report: bool = True
    seed: int | None = None
    no_privacy: bool = False

    @property
    def timing(self) -> Timing:
        return Timing(timeout_s=self.timeout, wait_s=self.wait)

    @property
    def run_folder(self) -> Path:
        assert self.folder is not None
        return self.folder


class _Run(HorizontalRun):
    training: TrainingSection

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

    role: Literal["coordinator"]
    listen: ListenAddress
    workers: tuple[Peer, ...]
    patience: Annotated[float, Field(gt=0, le=3600)] = 30.0

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

    path: Path = Path("runs/worker-ledger.sqlite")
    epsilon: Epsilon | None = None
    delta: Delta | None = None

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

    role: Literal["worker"]
    data: Path | tuple[Path, ...]
    engine: Literal["native", "dask"] = "native"
    dask: DaskSection | None = None
    connect: ConnectAddress
    coordinator: Peer
    peers: tuple[Peer, ...] = ()
    ledger: WorkerLedgerSection = WorkerLedgerSection()

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
            raise ValueError(f"`peers` must list {due} other workers, as `known_workers` in `training` says")
        return self


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
