"""Run files: one YAML file per party and run, checked as a whole before anything else happens.

Paths in a run file are relative to the folder that holds it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from opboost.desensitize import ColumnMechanism
from opboost.errors import OpBoostError
from opboost.schema import TableSchema, column_from_mapping
from parties.cluster.dask_cluster import DaskSection
from parties.config.addresses import ConnectAddress, ListenAddress
from parties.config.agreed_terms import AgreedSection
from parties.config.align_section import AlignSection
from parties.config.desensitize_section import DesensitizeSection
from parties.config.model_section import ModelSection
from parties.config.protection import Epsilon, Finite, GivenBudget, budgets_of, check_protection, given_budgets
from parties.config.score_policy import RevealSection
from parties.config.serve_section import ServeSection
from parties.errors import ConfigError
from parties.ledger.budget import Budget, Limit
from parties.storage.documents import explain, read_yaml, shown
from protocols.transport.channel import Timing
from protocols.transport.keys import NAME_PATTERN

# FATE's names for the roles, accepted here and nowhere else.
_ALIASES = {"guest": "active", "host": "passive"}

# Of training on rows that are divided between owners; `parties.config.record_runs` reads their run files.
HORIZONTAL_ROLES = ("coordinator", "worker", "owner")

Name = Annotated[str, Field(pattern=f"^{NAME_PATTERN}$")]
RoleName = BeforeValidator(lambda value: _ALIASES.get(value, value) if isinstance(value, str) else value)


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Peer(_Section):
    """Another party: its name, its public key file, and what was agreed that it does."""

    name: Name
    public_key: Path | None = None
    agreed: AgreedSection = AgreedSection()


class LimitSection(_Section):
    """The most that may be spent of one column; what is left out is not limited."""

    epsilon: Epsilon | None = None
    category_epsilon: Epsilon | None = None


class BudgetSection(LimitSection):
    """What may be spent over all runs: of every column, of some columns instead, and of one record in all."""

    columns: dict[str, LimitSection] = {}
    per_record: Finite | None = None

    def budgets(self) -> Iterator[GivenBudget]:
        """The limits by their places in the run file."""
        for name in (None, *self.columns):
            own, place = (self, "") if name is None else (self.columns[name], f".columns.{name}")
            limits = {"epsilon": own.epsilon, "category_epsilon": own.category_epsilon}
            yield from given_budgets(f"ledger.budget{place}", **limits)

    def budget(self, schema: TableSchema) -> Budget:
        """The limits, checked against the columns there are."""
        unknown = sorted(set(self.columns) - set(schema.names))
        if unknown:
            raise ConfigError(f"ledger.budget.columns names columns that the schema lacks: {', '.join(unknown)}")
        columns = {name: Limit(own.epsilon, own.category_epsilon) for name, own in self.columns.items()}
        return Budget(Limit(self.epsilon, self.category_epsilon), columns, self.per_record)


class LedgerSection(_Section):
    """Where the passive party keeps account of its releases, for all its runs, and what it allows."""

    path: Path = Path("runs/ledger.sqlite")
    budget: BudgetSection = BudgetSection()


class _Run(_Section):
    party: Name
    run_id: Name
    data: Path
    table_schema: Path = Field(alias="schema")
    ids: Path | None = None
    align: AlignSection = AlignSection()
    secret_key: Path | None = None
    timeout: Annotated[float, Field(gt=0, le=3600)] = 10.0
    wait: Annotated[float, Field(gt=0, le=7 * 24 * 3600)] = 60.0
    folder: Path | None = None
    report: bool = True
    engine: Literal["dask"] | None = None
    dask: DaskSection = DaskSection()
    no_privacy: bool = False

    @model_validator(mode="after")
    def _check_engine(self) -> Self:
        if self.engine is None and "dask" in self.model_fields_set:
            raise ValueError("the section `dask` goes with `engine: dask`")
        if self.engine == "dask" and self.align.method_for(self.ids) != "prealigned":
            raise ValueError(
                "engine: dask takes records that all parties have in common already: give `align: {method: prealigned}`"
                f", which all parties must; found {self.align.method_for(self.ids)}"
            )
        return self

    @property
    def timing(self) -> Timing:
        return Timing(timeout_s=self.timeout, wait_s=self.wait)

    @property
    def run_folder(self) -> Path:
        assert self.folder is not None
        return self.folder


class ActiveRun(_Run):
    """The active party's run file; `no_privacy` lifts the bounds of `parties.config.protection`, in every role's."""

    role: Annotated[Literal["active"], RoleName]
    listen: ListenAddress
    passive: Annotated[tuple[Peer, ...], Field(min_length=1)]
    model: ModelSection = ModelSection()
    reveal: RevealSection = RevealSection()

    @model_validator(mode="after")
    def _check_protection(self) -> Self:
        agreed = (given_budgets(f"passive.{i}.agreed", epsilon=p.agreed.epsilon) for i, p in enumerate(self.passive))
        check_protection(chain.from_iterable(agreed), no_privacy=self.no_privacy)
        return self

    @model_validator(mode="after")
    def _check_model(self) -> Self:
        if self.engine == "dask":
            self.model.check_partitions()
        return self


class PassiveRun(_Run):
    """A passive party's run file."""

    role: Annotated[Literal["passive"], RoleName]
    connect: ConnectAddress
    active: Peer
    desensitize: DesensitizeSection = DesensitizeSection()
    opaque_names: bool = True
    share_thresholds: bool = False
    allow_routed: bool = True
    seed: int | None = None
    ledger: LedgerSection = LedgerSection()
    serve: ServeSection = ServeSection()

    @model_validator(mode="after")
    def _check_protection(self) -> Self:
        try:
            agreed = given_budgets("active.agreed", epsilon=self.active.agreed.epsilon)
            given = [*self.desensitize.budgets(), *self.ledger.budget.budgets(), *agreed]
        except ConfigError as error:
            raise ValueError(str(error)) from None
        check_protection(given, no_privacy=self.no_privacy)
        return self

    def mechanisms(self, schema: TableSchema) -> tuple[ColumnMechanism, ...]:
        """A mechanism for every column of the schema.

        Raises
        ------
        ConfigError, ParameterError
        """
        found = self.desensitize.mechanisms(schema)
        given = (budgets_of(one.settings, f"desensitize.columns.{one.schema.name}") for one in found)
        try:
            check_protection(chain.from_iterable(given), no_privacy=self.no_privacy)
        except ValueError as error:
            raise ConfigError(str(error)) from None
        return found


Run = ActiveRun | PassiveRun
R = TypeVar("R", ActiveRun, PassiveRun)
S = TypeVar("S", bound=BaseModel)


def read_run(path: Path, kind: type[R]) -> R:
    """Read a run file of one role.

    Raises
    ------
    ConfigError
        Naming the file, the key, what was found and what is allowed.
    """
    document = read_yaml(path)
    try:
        run = kind.model_validate(document)
    except ValidationError as error:
        raise ConfigError(f"{path}: {explain(error)}") from None
    return _resolve(run, path.resolve().parent, path)


def read_any_run(path: Path) -> Run:
    """Read a run file of either role of vertical training.

    Raises
    ------
    ConfigError
    """
    return read_run(path, ActiveRun) if read_role(path) == "active" else read_run(path, PassiveRun)


def read_section(kind: type[S], settings: dict[str, Any]) -> S:
    """Check settings that do not come from a file.

    Raises
    ------
    ConfigError
    """
    try:
        return kind.model_validate(settings)
    except ValidationError as error:
        raise ConfigError(explain(error)) from None


def read_role(path: Path) -> str:
    """Which role a run file is for."""
    role = read_yaml(path).get("role")
    role = _ALIASES.get(role, role) if isinstance(role, str) else role
    if role not in ("active", "passive", *HORIZONTAL_ROLES):
        raise ConfigError(
            f"{path}: role must be active or passive, or {', '.join(HORIZONTAL_ROLES[:-1])} or {HORIZONTAL_ROLES[-1]}; "
            f"found {role!r}"
        )
    return str(role)


def read_schema(path: Path) -> tuple[TableSchema, tuple[str, ...]]:
    """Read a schema file: the table's description, and the columns of the file to ignore.

    Raises
    ------
    ConfigError
    """
    document = read_yaml(path)
    unknown = sorted(map(str, set(document) - {"id", "label", "columns", "ignore"}))
    columns, ignore = document.get("columns"), document.get("ignore", [])
    if unknown:
        raise ConfigError(f"{path}: unknown keys {', '.join(unknown)}; allowed are id, label, columns, ignore")
    if not isinstance(columns, dict) or not all(isinstance(column, dict) for column in columns.values()):
        raise ConfigError(f"{path}: `columns` must map each column's name to its description")
    if not isinstance(ignore, list):
        raise ConfigError(f"{path}: `ignore` must be a list of column names")
    try:
        described = tuple(
            column_from_mapping(_name(name, "a column's name"), column) for name, column in columns.items()
        )
        ids, label = document.get("id", "id"), document.get("label")
        schema = TableSchema(
            columns=described,
            id=tuple(_name(one, "`id`") for one in ids) if isinstance(ids, list) else _name(ids, "`id`"),
            label=None if label is None else _name(label, "`label`"),
        )
        left_out = tuple(_name(name, "`ignore`") for name in ignore)
        for key, names in (("columns", schema.names), ("id", schema.id_columns), ("label", (schema.label,))):
            if both := sorted({name for name in names if name in left_out and name is not None}):
                raise ConfigError(f"{', '.join(both)} stand under `{key}` and under `ignore`; name each once")
    except (OpBoostError, ConfigError) as error:
        raise ConfigError(f"{path}: {error}") from None
    return schema, left_out


def _name(found: object, what: str) -> str:
    """A column's name, which may be a number; YAML reads ``yes`` and ``no`` as truth values."""
    if isinstance(found, bool) or not isinstance(found, (str, int)):
        raise ConfigError(f"{what} reads as {shown(found)}; put words like yes and no in quotes")
    return str(found)


def _resolve(run: R, folder: Path, path: Path) -> R:
    """Make every path of a run file absolute."""
    update: dict[str, Any] = {}
    for key in ("data", "table_schema", "ids", "secret_key"):
        value = getattr(run, key)
        update[key] = folder / value if value is not None else None
    update["align"] = run.align.within(folder)
    of_run = folder / (run.folder or Path("runs") / run.run_id)
    partitions = folder / run.dask.folder if run.dask.folder is not None else of_run.parent / "partitions"
    update |= {"folder": of_run, "dask": run.dask.model_copy(update={"folder": partitions})}
    if isinstance(run, ActiveRun):
        update["passive"] = tuple(_resolve_peer(peer, folder) for peer in run.passive)
        parties = [run.party, *(peer.name for peer in run.passive)]
        if len(set(parties)) < len(parties):
            raise ConfigError(f"{path}: parties must have distinct names; found {', '.join(parties)}")
    else:
        update["active"] = _resolve_peer(run.active, folder)
        update["ledger"] = run.ledger.model_copy(update={"path": folder / run.ledger.path})
    return run.model_copy(update=update)


def _resolve_peer(peer: Peer, folder: Path) -> Peer:
    return peer.model_copy(update={"public_key": folder / peer.public_key if peer.public_key is not None else None})
