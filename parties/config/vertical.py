"""Run files: one YAML file per party and run, checked as a whole before anything else happens.

Paths in a run file are relative to the folder that holds it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from opboost.desensitize import ColumnMechanism, MechanismSettings, epsilon_in_units
from opboost.errors import OpBoostError
from opboost.privacy.laws import Law
from opboost.schema import ColumnSchema, TableSchema, column_from_mapping
from parties.cluster.dask_cluster import DaskSection
from parties.config.agreed_terms import AgreedSection
from parties.config.align_section import AlignSection, id_columns
from parties.config.model_section import ModelSection
from parties.config.score_policy import RevealSection
from parties.config.serve_section import ServeSection
from parties.errors import ConfigError
from parties.ledger.budget import Budget, Limit
from protocols.transport.channel import Timing
from protocols.transport.keys import NAME_PATTERN

# FATE's names for the roles, accepted here and nowhere else.
_ALIASES = {"guest": "active", "host": "passive"}

# Of training on rows that are divided between owners; `parties.config.record_runs` reads their run files.
HORIZONTAL_ROLES = ("coordinator", "worker", "owner")

Name = Annotated[str, Field(pattern=f"^{NAME_PATTERN}$")]
Positive = Annotated[float, Field(gt=0)]
RoleName = BeforeValidator(lambda value: _ALIASES.get(value, value) if isinstance(value, str) else value)


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Peer(_Section):
    """Another party: its name, its public key file, and what was agreed that it does."""

    name: Name
    public_key: Path | None = None
    agreed: AgreedSection = AgreedSection()


class ColumnBudget(_Section):
    """What differs for one column: its own settings, or a budget in original units (`cost` for a difference `per`)."""

    epsilon: Positive | None = None
    cost: Positive | None = None
    per: Positive | None = None
    mechanism: Literal["global", "local", "adj"] | None = None
    law: Law | None = None
    theta: int | None = None
    alpha: Positive | None = None
    domain_size: int | None = None
    category_epsilon: Positive | None = None


class DesensitizeSection(_Section):
    """How the passive party's columns are randomised."""

    mechanism: Literal["global", "local", "adj"] = "global"
    epsilon: Positive = 0.1
    law: Law = Law.CLAMPED
    theta: int | None = None
    alpha: Positive = 1.0
    domain_size: int = 1000
    category_epsilon: Positive | None = None
    columns: dict[str, ColumnBudget] = {}

    def mechanisms(self, schema: TableSchema) -> tuple[ColumnMechanism, ...]:
        """A mechanism for every column of the schema."""
        unknown = sorted(set(self.columns) - set(schema.names))
        if unknown:
            raise ConfigError(f"desensitize.columns names columns that the schema lacks: {', '.join(unknown)}")
        return tuple(ColumnMechanism(column, self._settings(column)) for column in schema.columns)

    def _settings(self, column: ColumnSchema) -> MechanismSettings:
        own = self.columns.get(column.name, ColumnBudget())
        changed = own.model_dump(exclude_none=True, exclude={"cost", "per"})
        settings = MechanismSettings(**{**self.model_dump(exclude={"columns"}), **changed})
        if (own.cost is None) != (own.per is None) or (own.cost is not None and own.epsilon is not None):
            raise ConfigError(f"desensitize.columns.{column.name}: give either epsilon, or cost together with per")
        if own.cost is None or own.per is None:
            return settings
        epsilon = epsilon_in_units(own.cost, own.per, column, settings)
        return MechanismSettings(**{**self.model_dump(exclude={"columns"}), **changed, "epsilon": epsilon})


class LimitSection(_Section):
    """The most that may be spent of one column; what is left out is not limited."""

    epsilon: Positive | None = None
    category_epsilon: Positive | None = None


class BudgetSection(LimitSection):
    """What may be spent over all runs: of every column, of some columns instead, and of one record in all."""

    columns: dict[str, LimitSection] = {}
    per_record: Positive | None = None

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
    stall: Annotated[float, Field(gt=0, le=7 * 24 * 3600)] = 900.0
    folder: Path | None = None
    report: bool = True
    engine: Literal["dask"] | None = None
    dask: DaskSection = DaskSection()

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
        return Timing(timeout_s=self.timeout, wait_s=self.wait, stall_s=self.stall)

    @property
    def run_folder(self) -> Path:
        assert self.folder is not None
        return self.folder


class ActiveRun(_Run):
    """The active party's run file."""

    role: Annotated[Literal["active"], RoleName]
    listen: str
    passive: Annotated[tuple[Peer, ...], Field(min_length=1)]
    model: ModelSection = ModelSection()
    reveal: RevealSection = RevealSection()

    @model_validator(mode="after")
    def _check_model(self) -> Self:
        if self.engine == "dask":
            self.model.check_partitions()
        return self


class PassiveRun(_Run):
    """A passive party's run file."""

    role: Annotated[Literal["passive"], RoleName]
    connect: str
    active: Peer
    desensitize: DesensitizeSection = DesensitizeSection()
    opaque_names: bool = True
    share_thresholds: bool = False
    allow_routed: bool = True
    seed: int | None = None
    ledger: LedgerSection = LedgerSection()
    serve: ServeSection = ServeSection()


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
        described = tuple(column_from_mapping(str(name), column) for name, column in columns.items())
        schema = TableSchema(columns=described, id=id_columns(document.get("id", "id")), label=document.get("label"))
    except OpBoostError as error:
        raise ConfigError(f"{path}: {error}") from None
    return schema, tuple(map(str, ignore))


def read_yaml(path: Path) -> dict[str, Any]:
    """A YAML file of keys and values."""
    try:
        document = yaml.safe_load(path.read_text())
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        place = getattr(error, "problem_mark", None)
        raise ConfigError(f"{path} is not YAML{f' at line {place.line + 1}' if place else ''}") from None
    if not isinstance(document, dict):
        raise ConfigError(f"{path} must hold keys and values")
    return document


def explain(error: ValidationError) -> str:
    """What is wrong with a document, key by key."""
    sentences = []
    for problem in error.errors(include_url=False):
        place = ".".join(map(str, problem["loc"])) or "the file"
        found = "" if problem["type"] in ("missing", "extra_forbidden") else f"; found {problem['input']!r}"
        sentences.append(f"{place}: {problem['msg']}{found}")
    return " | ".join(sentences)


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
