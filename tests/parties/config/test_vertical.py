"""Run files and schema files: checked as a whole, and refused by file, key and allowed values."""

from __future__ import annotations

import math
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from opboost.errors import ParameterError
from opboost.privacy.laws import Law
from opboost.schema import ColumnSchema, Kind, Missing, Outside, TableSchema
from opboost.trees.boosting import BoostingParameters
from parties.config.desensitize_section import ColumnBudget, DesensitizeSection
from parties.config.reading import read_role, read_run, read_schema
from parties.config.vertical import ActiveRun, BudgetSection, ModelSection, PassiveRun
from parties.errors import ConfigError
from parties.ledger.budget import Budget, Limit

ACTIVE: dict[str, Any] = {
    "role": "active",
    "party": "bank",
    "run_id": "spring",
    "data": "bank.csv",
    "schema": "bank.schema.yaml",
    "listen": "tcp://127.0.0.1:5555",
    "passive": [{"name": "shop", "public_key": "keys/shop.public"}],
}
PASSIVE: dict[str, Any] = {
    "role": "passive",
    "party": "shop",
    "run_id": "spring",
    "data": "shop.csv",
    "schema": "shop.schema.yaml",
    "connect": "tcp://127.0.0.1:5555",
    "active": {"name": "bank", "public_key": "keys/bank.public"},
}
SCHEMA: dict[str, Any] = {
    "id": "key",
    "label": "y",
    "ignore": ["note"],
    "columns": {
        "age": {"kind": "numeric", "lower": 18, "upper": 100},
        "tier": {"kind": "ordered", "categories": ["low", "high"], "missing": "impute", "fill": "low"},
        "town": {"kind": "unordered", "categories": ["x", "y"], "missing": "category"},
        "debt": {"lower": 0, "upper": 9, "outside": "refuse"},
    },
}


def changed(document: dict[str, Any], path: str, value: object) -> dict[str, Any]:
    """The document with another value at a dotted path."""
    key, _, rest = path.partition(".")
    return {**document, key: changed(document.get(key, {}), rest, value) if rest else value}


def read(folder: Path, document: object, kind: type = ActiveRun) -> Any:
    path = folder / "run.yaml"
    path.write_text(document if isinstance(document, str) else yaml.safe_dump(document))
    return read_run(path, kind)


def test_paths_are_relative_to_the_folder_of_the_run_file(tmp_path: Path) -> None:
    run = read(tmp_path, {**ACTIVE, "ids": "ids.txt", "secret_key": "/elsewhere/bank.secret"})
    assert run.data == tmp_path / "bank.csv"
    assert run.table_schema == tmp_path / "bank.schema.yaml"
    assert run.ids == tmp_path / "ids.txt"
    assert run.secret_key == Path("/elsewhere/bank.secret")
    assert run.passive[0].public_key == tmp_path / "keys" / "shop.public"
    assert run.run_folder == tmp_path / "runs" / "spring"


def test_the_run_folder_may_be_named(tmp_path: Path) -> None:
    assert read(tmp_path, {**PASSIVE, "folder": "here"}, PassiveRun).run_folder == tmp_path / "here"


def test_a_passive_run_keeps_its_thresholds_and_names_unless_told_otherwise(tmp_path: Path) -> None:
    run = read(tmp_path, PASSIVE, PassiveRun)
    assert (run.opaque_names, run.share_thresholds, run.seed) == (True, False, None)
    assert run.changed_values == "redraw"
    assert run.active.public_key == tmp_path / "keys" / "bank.public"


def test_the_ledger_lies_beside_the_run_folders_and_limits_nothing_unless_told_otherwise(tmp_path: Path) -> None:
    run = read(tmp_path, PASSIVE, PassiveRun)
    assert run.ledger.path == tmp_path / "runs" / "ledger.sqlite"
    assert run.ledger.budget.budget(TableSchema(columns=())) == Budget()
    named = read(tmp_path, {**PASSIVE, "folder": "here", "ledger": {"path": "books/q3.sqlite"}}, PassiveRun)
    assert named.ledger.path == tmp_path / "books" / "q3.sqlite"


def test_a_budget_limits_every_column_some_columns_and_a_record(tmp_path: Path) -> None:
    columns = {"age": {"epsilon": 0.2, "cell_bits": 3}, "town": {"category_epsilon": 6}}
    budget = {
        "epsilon": 0.5,
        "category_epsilon": 9,
        "cell_bits": 1,
        "columns": columns,
        "per_record": 30,
        "cell_bits_per_record": 4,
    }
    run = read(tmp_path, {**PASSIVE, "ledger": {"budget": budget}}, PassiveRun)
    schema, _ = read_schema_of(tmp_path, SCHEMA)
    found = run.ledger.budget.budget(schema)
    assert (found.per_record, found.cell_bits_per_record) == (30, 4)
    limits = [Limit(0.2, 9, 3), Limit(0.5, 6, 1), Limit(0.5, 9, 1)]
    assert [found.limit(name) for name in ("age", "town", "debt")] == limits
    with pytest.raises(ConfigError, match=r"ledger\.budget\.columns names columns that the schema lacks: colour"):
        BudgetSection.model_validate({"columns": {"colour": {"epsilon": 1}}}).budget(schema)


@pytest.mark.parametrize(("alias", "role"), [("guest", "active"), ("host", "passive")])
def test_the_roles_have_aliases(tmp_path: Path, alias: str, role: str) -> None:
    document, kind = (ACTIVE, ActiveRun) if role == "active" else (PASSIVE, PassiveRun)
    assert read(tmp_path, {**document, "role": alias}, kind).role == role
    assert read_role(tmp_path / "run.yaml") == role


def test_a_role_is_one_of_five(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("role: boss")
    with pytest.raises(
        ConfigError, match="role must be active or passive, or coordinator, worker or owner; found 'boss'"
    ):
        read_role(path)


def test_the_other_roles_run_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"run\.yaml is of role active; .* of role passive"):
        read(tmp_path, ACTIVE, PassiveRun)


@pytest.mark.parametrize(
    ("document", "kind", "place"),
    [
        (ACTIVE, ActiveRun, "epsilon"),
        (ACTIVE, ActiveRun, "connect"),
        (ACTIVE, ActiveRun, "desensitize"),
        (ACTIVE, ActiveRun, "model.etas"),
        (PASSIVE, PassiveRun, "model"),
        (PASSIVE, PassiveRun, "active.key"),
        (ACTIVE, ActiveRun, "ledger"),
        (PASSIVE, PassiveRun, "desensitize.delta"),
        (PASSIVE, PassiveRun, "serve.bits_per_day"),
        (PASSIVE, PassiveRun, "serve.reveal.first"),
        (PASSIVE, PassiveRun, "reveal"),
        (ACTIVE, ActiveRun, "serve"),
        (ACTIVE, ActiveRun, "reveal.first"),
        (PASSIVE, PassiveRun, "ledger.budget.delta"),
        (PASSIVE, PassiveRun, "desensitize.columns.age.bounds"),
    ],
)
def test_an_unknown_key_is_refused_by_its_place(tmp_path: Path, document: Any, kind: type, place: str) -> None:
    with pytest.raises(ConfigError, match=rf"run\.yaml: {place}: is no key here"):
        read(tmp_path, changed(document, place, 1), kind)


@pytest.mark.parametrize("key", sorted(ACTIVE))
def test_an_active_run_needs_every_one_of_its_keys(tmp_path: Path, key: str) -> None:
    with pytest.raises(ConfigError, match=f"{key}: is required"):
        read(tmp_path, {k: v for k, v in ACTIVE.items() if k != key})


@pytest.mark.parametrize(
    ("document", "place", "value", "words"),
    [
        (ACTIVE, "party", "a/b", "party: must be a name: .* found 'a/b'"),
        (ACTIVE, "run_id", "../up", "run_id: must be a name"),
        (ACTIVE, "run_id", 7, "run_id: must be text; found 7"),
        (ACTIVE, "passive", [], "passive: must have at least 1 entries"),
        (ACTIVE, "timeout", 0, "timeout: must be greater than 0; found 0"),
        (ACTIVE, "timeout", math.inf, "timeout: must be less than or equal to 3600; found inf"),
        (ACTIVE, "wait", math.inf, "wait: must be less than or equal to 604800; found inf"),
        (ACTIVE, "wait", -1, "wait: must be greater than 0"),
        (ACTIVE, "reveal.round", 13, "reveal.round: must be less than or equal to 12; found 13"),
        (PASSIVE, "serve.routed_bits_per_day", 0, "serve.routed_bits_per_day: .* greater than or equal to 1; found 0"),
        (ACTIVE, "model.objective", "rank", "model.objective: must be 'binary:logistic', 'reg:squarederror'"),
        (ACTIVE, "model.max_depth", 2.5, "model.max_depth: must be a whole number"),
        (ACTIVE, "model.engine", "lightgbm", "model.engine: must be 'native' or 'xgboost'; found 'lightgbm'"),
        (ACTIVE, "model.validation_fraction", 0, "model.validation_fraction: must be greater than 0"),
        (ACTIVE, "model.validation_fraction", 1, "model.validation_fraction: must be less than 1"),
        (ACTIVE, "model.validation_fraction", math.nan, "model.validation_fraction: must be"),
        (ACTIVE, "model.monotone_constraints", [1, 0], "model.monotone_constraints: must hold keys and values"),
        (ACTIVE, "model.monotone_constraints", {"age": 2}, "model.monotone_constraints.age: must be -1, 0 or 1"),
        (ACTIVE, "model.monotone_constraints", {"age": 0.5}, "model.monotone_constraints.age: must be"),
        (ACTIVE, "model.interaction_constraints", "age", "model.interaction_constraints: must be "),
        (ACTIVE, "model.interaction_constraints", [[1]], "model.interaction_constraints.0.0: must be "),
        (ACTIVE, "model.eval_metric", "auc", "model.eval_metric: must be "),
        (ACTIVE, "model.early_stopping_rounds", 1.5, "model.early_stopping_rounds: must be a whole number"),
        (PASSIVE, "desensitize.epsilon", 0, "desensitize.epsilon: must be greater than 0; found 0"),
        (PASSIVE, "desensitize.epsilon", -0.1, "desensitize.epsilon: must be greater than 0; found -0.1"),
        (PASSIVE, "desensitize.epsilon", math.nan, "desensitize.epsilon: must be greater than 0; found nan"),
        (PASSIVE, "desensitize.epsilon", "lots", "desensitize.epsilon: must be a number"),
        (PASSIVE, "desensitize.mechanism", "map", "desensitize.mechanism: must be 'global', 'local' or 'adj'"),
        (PASSIVE, "desensitize.law", "gauss", "desensitize.law: must be .*'clamped'.*; found 'gauss'"),
        (PASSIVE, "desensitize.theta", 2.5, "desensitize.theta: must be a whole number"),
        (PASSIVE, "desensitize.columns.age.epsilon", 0, "desensitize.columns.age.epsilon: must be greater"),
        (PASSIVE, "ledger.budget.epsilon", 0, "ledger.budget.epsilon: must be greater than 0; found 0"),
        (PASSIVE, "ledger.budget.per_record", math.nan, "ledger.budget.per_record: must be a finite number"),
        (PASSIVE, "share_thresholds", "perhaps", "share_thresholds: must be true or false"),
    ],
)
def test_a_value_that_is_not_allowed_is_refused_by_its_place(
    tmp_path: Path, document: Any, place: str, value: object, words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        read(tmp_path, changed(document, place, value), ActiveRun if document is ACTIVE else PassiveRun)


def test_all_faults_of_a_run_file_are_listed_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"party: .* \| timeout: .* \| colour: "):
        read(tmp_path, {**ACTIVE, "party": "", "timeout": 0, "colour": "red"})


@pytest.mark.parametrize("names", [["shop", "shop"], ["bank"]])
def test_two_parties_of_one_name_are_refused(tmp_path: Path, names: list[str]) -> None:
    with pytest.raises(ConfigError, match=f"distinct names; found bank, {', '.join(names)}"):
        read(tmp_path, {**ACTIVE, "passive": [{"name": name} for name in names]})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("party: [", r"run\.yaml is not YAML at line 1"),
        ("a: 1\nb: *nowhere", r"run\.yaml is not YAML at line 2"),
        ("- bank\n- shop", "must hold keys and values"),
        ("", "must hold keys and values"),
        ("!!python/object/apply:os.getcwd []", "is not YAML"),
    ],
)
def test_a_file_that_is_no_mapping_in_yaml_is_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read(tmp_path, text)


def test_an_absent_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml cannot be read: No such file or directory"):
        read_run(tmp_path / "none.yaml", ActiveRun)


def read_schema_of(folder: Path, document: object) -> tuple[TableSchema, tuple[str, ...]]:
    path = folder / "schema.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return read_schema(path)


def test_a_model_has_the_defaults_of_the_boosting_parameters() -> None:
    assert ModelSection().parameters() == BoostingParameters()


SETTINGS: list[tuple[str, dict[str, Any]]] = [
    ("reg:quantileerror", {"quantile_alpha": (0.1, 0.9)}),
    ("reg:tweedie", {"tweedie_variance_power": 1.2}),
    ("reg:pseudohubererror", {"huber_slope": 0.5}),
    ("survival:aft", {"aft_loss_distribution": "logistic", "aft_loss_distribution_scale": 0.5}),
    ("rank:ndcg", {"lambdarank_num_pair_per_sample": 8}),
]
MODEL: dict[str, Any] = {
    "objective": "count:poisson",
    "engine": "xgboost",
    "n_estimators": 7,
    "max_depth": 0,
    "max_leaves": 9,
    "learning_rate": 0.1,
    "reg_lambda": 2.0,
    "reg_alpha": 0.2,
    "colsample_bylevel": 0.7,
    "colsample_bynode": 0.6,
    "gamma": 0.5,
    "min_child_weight": 3.0,
    "max_delta_step": 0.4,
    "subsample": 0.9,
    "colsample_bytree": 0.8,
    "max_bin": 64,
    "max_cat_to_onehot": 2,
    "scale_pos_weight": 1.5,
    "class_weight": {0: 2.0},
    "base_score": 0.3,
    "early_stopping_rounds": 4,
    "n_jobs": 1,
    "device": "cuda",
    "booster": "dart",
    "rate_drop": 0.2,
    "skip_drop": 0.4,
    "one_drop": True,
    "sample_type": "weighted",
    "normalize_type": "forest",
    "validation_fraction": 0.25,
    "eval_metric": ["mae", "rmse"],
    "monotone_constraints": {"age": 1, "c0": -1},
    "interaction_constraints": [["age", "c0"], ["c1"]],
    "seed": 5,
}


def test_every_key_of_a_model_is_read_and_reaches_what_it_is_for(tmp_path: Path) -> None:
    of_losses = {key for _, settings in SETTINGS for key in settings}
    assert MODEL.keys() | {"n_classes"} | of_losses == ModelSection.model_fields.keys()
    section = read(tmp_path, {**ACTIVE, "model": MODEL}).model
    parameters, names = section.parameters(), {field.name for field in fields(BoostingParameters)}
    assert names < MODEL.keys()
    assert {name: getattr(parameters, name) for name in names} == {name: MODEL[name] for name in names}
    assert section.constraints.monotone == {"age": 1, "c0": -1}
    assert [list(group) for group in section.constraints.interactions] == [["age", "c0"], ["c1"]]
    assert (section.engine, section.loss().name) == ("xgboost", "count:poisson")
    plan = section.validation(200)
    assert plan is not None
    assert [metric.name for metric in plan.metrics] == ["mae", "rmse"]
    assert plan.is_held_out.sum() == 50
    again = section.validation(200)
    assert again is not None
    assert again.is_held_out.tolist() == plan.is_held_out.tolist()


@pytest.mark.parametrize(("objective", "settings"), SETTINGS)
def test_the_settings_of_a_loss_reach_it_and_no_other(objective: Any, settings: dict[str, Any]) -> None:
    assert ModelSection(objective=objective, **settings).loss().settings == settings
    with pytest.raises(ParameterError, match=f"the objective reg:gamma has no {min(settings)}"):
        ModelSection(objective="reg:gamma", **settings).loss()


def test_without_a_share_to_validate_on_nothing_is_held_out() -> None:
    assert ModelSection().validation(100) is None


@pytest.mark.parametrize("found", [99, 2**31])
def test_records_to_release_are_counted_as_far_as_messages_count(tmp_path: Path, found: int) -> None:
    with pytest.raises(ConfigError, match=f"most_records: must be .*; found {found}"):
        read(tmp_path, {**ACTIVE, "most_records": found})


@pytest.mark.parametrize(
    "rest", [{"answers": "tests"}, {"answers": "cells", "held_out": 0}, {"answers": "cells", "label_epsilon": 1.0}]
)
def test_early_stopping_needs_rows_to_validate_on(tmp_path: Path, rest: dict[str, Any]) -> None:
    with pytest.raises(
        ConfigError, match=r"needs rows to validate on: model\.validation_fraction, or held-out records"
    ):
        read(tmp_path, {**ACTIVE, **rest, "model": {"early_stopping_rounds": 3}})


@pytest.mark.parametrize(("share", "metrics"), [({}, ["logloss"]), ({"validation_fraction": 0.2}, [])])
def test_held_out_records_decide_when_to_stop_where_no_other_rows_do(
    tmp_path: Path, share: dict[str, float], metrics: list[str]
) -> None:
    run = read(tmp_path, {**ACTIVE, "answers": "cells", "model": {"early_stopping_rounds": 3, **share}})
    assert [metric.name for metric in run.held_out_metrics] == metrics


@pytest.mark.parametrize(
    ("objective", "metric"),
    [
        ("binary:logistic", "logloss"),
        ("reg:squarederror", "rmse"),
        ("count:poisson", "poisson-nloglik"),
        ("multi:softprob", "mlogloss"),
    ],
)
def test_rows_held_out_are_scored_by_the_objectives_own_metric_unless_told_otherwise(
    objective: Any, metric: str
) -> None:
    plan = ModelSection(objective=objective, n_classes=3, validation_fraction=0.5).validation(10)
    assert plan is not None
    assert [found.name for found in plan.metrics] == [metric]


@pytest.mark.parametrize("budget", [{"whole_range": 3500}, {"cost": 250, "per": 1}, {"epsilon": 35}])
def test_a_budget_under_which_neighbouring_values_are_certain_needs_no_privacy(
    tmp_path: Path, budget: dict[str, float]
) -> None:
    """A column's own step has several points of the mapped domain."""
    schema = TableSchema(columns=(ColumnSchema(name="years", lower=1, upper=16),))
    document = {**PASSIVE, "desensitize": budget}
    with pytest.raises(ConfigError, match=r"columns\.years comes to .* per 1 original unit, .* protects nothing"):
        read(tmp_path, document, PassiveRun).mechanisms(schema)
    assert read(tmp_path, {**document, "no_privacy": True}, PassiveRun).mechanisms(schema)
    few = {name: value / 100 for name, value in budget.items() if name != "per"}
    assert read(tmp_path, {**document, "desensitize": {**budget, **few}}, PassiveRun).mechanisms(schema)


def test_a_local_map_that_would_publish_every_value_is_refused_when_the_run_file_is_read(tmp_path: Path) -> None:
    schema, _ = read_schema_of(tmp_path, SCHEMA)
    section = DesensitizeSection(mechanism="local", epsilon=0.1, theta=100, columns={"tier": ColumnBudget(theta=999)})
    with pytest.raises(ParameterError, match=r"column 'tier': neighbouring values are 999 points apart"):
        section.mechanisms(schema)
    assert section.model_copy(update={"columns": {"tier": ColumnBudget(mechanism="global")}}).mechanisms(schema)


def test_a_schema_file_describes_columns_in_its_order(tmp_path: Path) -> None:
    schema, ignore = read_schema_of(tmp_path, SCHEMA)
    assert (schema.id, schema.label, ignore) == ("key", "y", ("note",))
    assert schema.columns == (
        ColumnSchema(name="age", lower=18, upper=100),
        ColumnSchema(name="tier", kind=Kind.ORDERED, categories=("low", "high"), missing=Missing.IMPUTE, fill="low"),
        ColumnSchema(name="town", kind=Kind.UNORDERED, categories=("x", "y"), missing=Missing.CATEGORY),
        ColumnSchema(name="debt", lower=0, upper=9, outside=Outside.REFUSE),
    )


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        ("bounds", 1, "unknown keys bounds; allowed are base_margin, columns, group, id, ignore, label, missing_label"),
        ("columns", ["age"], "must map each column's name to its description"),
        ("columns.age", None, "must map each column's name to its description"),
        ("ignore", "note", "`ignore` must be a list"),
        ("id", "age", "'age' cannot be both the id and a feature"),
        ("label", "age", "'age' cannot be both the label and a feature"),
        ("label", "key", "'key' cannot be both the id and the label"),
        ("columns.age.unit", "years", "column 'age': unknown keys unit"),
        ("columns.age.kind", "colour", "column 'age': kind is 'colour'; allowed are numeric, ordered, unordered"),
        ("columns.age.lower", "low", "column 'age': lower must be a number"),
        ("columns.age.lower", 100, "column 'age': bounds must be finite with lower < upper"),
        ("columns.age.upper", math.inf, "column 'age': bounds must be finite"),
        ("columns.town.categories", ["x"], "column 'town' .* at least two distinct"),
        ("columns.town.categories", "xy", "column 'town': categories must be a list; found str"),
        ("columns.town.missing", "drop", "column 'town': missing is 'drop'; allowed are refuse, category, impute"),
        ("columns.debt.outside", "warn", "column 'debt': outside is 'warn'; allowed are clip, refuse"),
        ("columns.tier.fill", "middle", "column 'tier': fill 'middle' is not one of its categories"),
    ],
)
def test_a_fault_in_a_schema_file_is_refused_by_file_and_column(
    tmp_path: Path, place: str, value: object, words: str
) -> None:
    with pytest.raises(ConfigError, match=rf"schema\.yaml: .*{words}"):
        read_schema_of(tmp_path, changed(SCHEMA, place, value))


def test_unknown_keys_of_a_schema_file_are_named_whatever_their_type(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unknown keys 1, colour; allowed are"):
        read_schema_of(tmp_path, {**SCHEMA, 1: 2, "colour": "red"})


def section(**columns: dict[str, Any]) -> DesensitizeSection:
    return DesensitizeSection.model_validate({"mechanism": "adj", "epsilon": 0.2, "theta": 50, "columns": columns})


def test_a_column_takes_the_common_settings_except_its_own(tmp_path: Path) -> None:
    schema, _ = read_schema_of(tmp_path, SCHEMA)
    age, _, _, debt = section(debt={"mechanism": "global", "epsilon": 0.7, "law": "exponential"}).mechanisms(schema)
    assert (age.settings.mechanism, age.settings.epsilon, age.settings.theta) == ("adj", 0.2, 50)
    assert (debt.settings.mechanism, debt.settings.epsilon, debt.settings.law) == ("global", 0.7, Law.EXPONENTIAL)
    assert debt.settings.theta == 50


@settings(max_examples=50, deadline=None)
@given(cost=st.floats(0.01, 20), per=st.floats(0.05, 82), domain_size=st.integers(2, 5000))
def test_a_budget_in_original_units_holds_for_every_two_values_that_far_apart(
    cost: float, per: float, domain_size: int
) -> None:
    schema = TableSchema(columns=(ColumnSchema(name="age", lower=18, upper=100),))
    budget = {"mechanism": "global", "domain_size": domain_size, "columns": {"age": {"cost": cost, "per": per}}}
    (age,) = DesensitizeSection.model_validate(budget).mechanisms(schema)
    # Encoding rounds up, so values `per` apart are at most this many points apart.
    n_points = math.ceil(per * (domain_size - 1) / 82)
    assert age.settings.epsilon * n_points <= cost * (1 + 1e-12)
    assert age.settings.epsilon * (n_points + 1) > cost * (1 - 1e-12)


@pytest.mark.parametrize(
    "own", [{"cost": 1.0}, {"per": 2.0}, {"cost": 1.0, "per": 2.0, "epsilon": 0.1}], ids=lambda own: "+".join(own)
)
def test_a_budget_is_given_in_one_way(tmp_path: Path, own: dict[str, float]) -> None:
    schema, _ = read_schema_of(tmp_path, SCHEMA)
    with pytest.raises(ConfigError, match=r"columns\.age: give the budget in one way"):
        section(age=own).mechanisms(schema)


def test_a_budget_for_a_column_that_the_schema_lacks_is_refused(tmp_path: Path) -> None:
    schema, _ = read_schema_of(tmp_path, SCHEMA)
    with pytest.raises(ConfigError, match="names columns that the schema lacks: agee"):
        section(agee={"epsilon": 1}).mechanisms(schema)
