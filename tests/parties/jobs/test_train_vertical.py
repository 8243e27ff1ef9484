"""Run files in, finished jobs out: every fault is found as early as it can be, and both sides learn why a run ends."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from opboost.errors import DataError, ParameterError
from opboost.trees.model_file import load_model
from parties.errors import ConfigError, Disagreement, RunFolderError
from parties.jobs.answer_vertical import serve_passive
from parties.jobs.predict_vertical import predict_active
from parties.jobs.train_vertical import Terminal, train_active, train_passive
from parties.runs.run_folder import RunFolder
from parties.vertical import party_b
from protocols.errors import KeyFileError, PeerAborted, PeerLost, PeerRefused, PeerRestarted, UnexpectedMessage
from protocols.messages.vertical import Thresholds
from protocols.transport.keys import generate
from tests.support.kept_runs import before_concluding
from tests.support.sites import Site

Outcomes = Callable[..., dict[str, Any]]

N_CUSTOMERS = 400
SILENT = Terminal()


def changed(document: dict[str, Any], path: str, value: object) -> dict[str, Any]:
    """The document with another value at a dotted path, or without it where the value is None."""
    key, _, rest = path.partition(".")
    if value is None and not rest:
        return {k: v for k, v in document.items() if k != key}
    return {**document, key: changed(document.get(key, {}), rest, value) if rest else value}


def train_both(sites: Any, outcomes: Outcomes, *, insecure: bool = False) -> dict[str, Any]:
    """What both sides' training jobs return or raise, in threads of this process."""
    bank, shop = sites.bank.write(), sites.shop.write()
    return outcomes(
        {
            "bank": lambda: train_active(bank, insecure=insecure, terminal=SILENT),
            "shop": lambda: train_passive(shop, insecure=insecure, terminal=SILENT),
        }
    )


BANK_FAULTS: dict[str, tuple[str, Any, str]] = {
    "unknown column": ("table.colour", 1, r"data\.csv has columns that the schema does not know: colour"),
    "column missing": ("table.age", None, r"data\.csv lacks columns of the schema: age"),
    "no label": ("table.y", None, r"data\.csv has no label column 'y'"),
    "no id": ("table.id", None, r"data\.csv has no id column 'id'"),
    "duplicate ids": ("table.id", "k1", "column 'id' repeats an id in 399 of 400 rows"),
    "NaN label": ("table.y", np.nan, "label column 'y' is missing, infinite or not a number in 400 rows"),
    "one label": ("table.y", 1, "label column 'y' holds a single value"),
    "labels beyond 0 and 1": ("table.y", range(N_CUSTOMERS), "labels"),
    "constant column": ("table.age", 30, "constant columns age"),
    "no label named": ("schema.label", None, "names no `label`, which the active party needs"),
    "unknown key": ("run.epsilon", 1, r"run\.yaml: epsilon: is no key here"),
    "impossible parameter": ("run.model.learning_rate", -1, "learning_rate must be a number, greater than 0"),
    "waiting without rows to validate on": (
        "run.model.early_stopping_rounds",
        3,
        "early_stopping_rounds needs rows to validate on: model.validation_fraction, or held-out records",
    ),
    "unknown metric": (
        "run.model",
        {"validation_fraction": 0.2, "eval_metric": ["auc", "auc-of-pr"]},
        "eval_metric 'auc-of-pr' does not score",
    ),
    "metric of another objective": (
        "run.model",
        {"validation_fraction": 0.2, "eval_metric": ["mlogloss"]},
        "eval_metric 'mlogloss' does not score",
    ),
    "unlimited trees": ("run.model.max_depth", 0, "needs max_leaves"),
    "a single leaf": ("run.model.max_leaves", 1, "max_leaves must be at least 2"),
    "a weight of labels that are no classes": (
        "run.model",
        {"objective": "reg:squarederror", "scale_pos_weight": 2},
        "scale_pos_weight weighs label 1 of binary:logistic",
    ),
    "a weight of a class that is none": ("run.model.class_weight", {7: 1.0}, "class_weight names class 7"),
    "a start that is no probability": ("run.model.base_score", 2.0, "base_score is a probability"),
    "a start of which gradients overflow": (
        "run.model",
        {"objective": "reg:squarederror", "base_score": 1e308},
        r"base_score must be a raw score of magnitude 1e\+18 at most",
    ),
    "a start that is no mean": ("run.model", {"objective": "count:poisson", "base_score": 0}, "base_score is a mean"),
    "a seed that is none": ("run.model.seed", -1, "model.seed: must be greater than or equal to 0"),
    "unknown engine": ("run.model.engine", "lightgbm", "model.engine: must be 'native' or 'xgboost'"),
    "no secret key": ("run.secret_key", None, "names no secret_key; .* Nothing was sent"),
    "secret key of the wrong kind": ("run.secret_key", "keys/bank.public", "is not a key file"),
}
SHOP_FAULTS: dict[str, tuple[str, Any, str]] = {
    "unknown column": ("table.colour", 1, r"data\.csv has columns that the schema does not know: colour"),
    "column missing": ("table.spend", None, r"data\.csv lacks columns of the schema: spend"),
    "no id": ("table.id", None, r"data\.csv has no id column 'id'"),
    "constant column": ("table.spend", 30, "constant columns spend"),
    "epsilon not positive": ("run.desensitize.epsilon", 0, "desensitize.epsilon: must be greater than 0"),
    "theta too small": (
        "run.desensitize",
        {"mechanism": "local", "theta": 0},
        r"desensitize\.theta: must be greater than or equal to 1",
    ),
    "theta too large": ("run.desensitize", {"mechanism": "adj", "theta": 2000}, "theta must be an integer between 1"),
    "budget for no column": ("run.desensitize.columns", {"age": {"epsilon": 1}}, "that the schema lacks: age"),
    "no bounds": ("schema.columns.spend", {"kind": "numeric"}, "column 'spend' is numeric and needs public bounds"),
    "no public key": ("run.active", {"name": "bank"}, "names no public_key for bank. Nothing was sent"),
    "limit for no column": (
        "run.ledger",
        {"budget": {"columns": {"age": {"epsilon": 1}}}},
        "that the schema lacks: age",
    ),
    "limit not positive": ("run.ledger", {"budget": {"epsilon": 0}}, "ledger.budget.epsilon: must be greater"),
    "unknown limit": ("run.ledger", {"budget": {"delta": 1}}, "ledger.budget.delta: is no key here"),
    "ledger in no folder": ("run.ledger", {"path": "data.csv/ledger"}, "ledger cannot be used: "),
    "ledger that is none": (
        "run.ledger",
        {"path": "data.csv"},
        "data.csv has mode |data.csv cannot be used: file is not",
    ),
    "unknown key": ("run.label", "y", r"run\.yaml: label: is no key here"),
}


def spoil(site: Any, place: str, value: Any) -> Path:
    part, _, rest = place.partition(".")
    if part != "table":
        setattr(site, part, changed(getattr(site, part), rest, value))
    elif value is None:
        site.table = site.table.drop(columns=rest)
    else:
        site.table = site.table.assign(**{rest: value})
    return site.write()


@pytest.mark.parametrize(("place", "value", "words"), BANK_FAULTS.values(), ids=BANK_FAULTS)
def test_a_fault_at_the_bank_is_found_before_anything_is_opened(sites: Any, place: str, value: Any, words: str) -> None:
    path = spoil(sites.bank, place, value)
    with pytest.raises(Exception, match=words) as refusal:
        train_active(path, insecure=False, terminal=SILENT)
    assert type(refusal.value).__module__.split(".")[0] in ("opboost", "parties", "protocols")
    assert "\n" not in str(refusal.value)
    assert not sites.bank.run_folder.exists()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"objective": "ordinal:logistic", "n_classes": 3}, "XGBoost has no objective ordinal:logistic"),
        ({"learning_rate": 1e-300}, "XGBoost refuses a setting: Out of range value for learning_rate"),
    ],
)
def test_what_xgboost_refuses_is_refused_before_anything_is_opened(
    sites: Any, settings: dict[str, Any], words: str
) -> None:
    pytest.importorskip("xgboost", reason="XGBoost is not installed: pip install 'opboost[xgboost]'")
    with pytest.raises(ConfigError, match=words):
        train_active(spoil(sites.bank, "run.model", {**settings, "engine": "xgboost"}), insecure=False, terminal=SILENT)
    assert not sites.bank.run_folder.exists()


@pytest.mark.parametrize(("place", "value", "words"), SHOP_FAULTS.values(), ids=SHOP_FAULTS)
def test_a_fault_at_the_shop_is_found_before_anything_is_opened(sites: Any, place: str, value: Any, words: str) -> None:
    path = spoil(sites.shop, place, value)
    with pytest.raises(Exception, match=words) as refusal:
        train_passive(path, insecure=False, terminal=SILENT)
    assert type(refusal.value).__module__.split(".")[0] in ("opboost", "parties", "protocols")
    assert "\n" not in str(refusal.value)
    assert not sites.shop.run_folder.exists()


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (
            "schema.columns.spend",
            {"lower": 0, "upper": 50, "outside": "refuse"},
            r"values outside its public bounds .*refuse",
        ),
        (
            "schema.columns.visits",
            {"lower": 0, "upper": 50},
            "missing cells .* `missing: refuse`.* Nothing was released",
        ),
        ("table.spend", ["29.125x", *["1"] * (N_CUSTOMERS - 1)], "'spend' is numeric by the schema but 1 cell is not"),
    ],
    ids=["outside the bounds", "missing", "not a number"],
)
def test_cells_that_do_not_fit_the_schema_are_refused_before_anything_is_opened(
    sites: Any, place: str, value: Any, words: str
) -> None:
    path = spoil(sites.shop, place, value)
    with pytest.raises(DataError, match=words) as refusal:
        train_passive(path, insecure=False, terminal=SILENT)
    assert "29.125" not in str(refusal.value)
    assert not sites.shop.run_folder.exists()


def log_lines(site: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (site.run_folder / "log.jsonl").read_text().splitlines()]


def test_different_sets_of_ids_are_refused_on_both_sides_before_a_rank_is_sent(sites: Any, outcomes: Outcomes) -> None:
    sites.shop.table = sites.shop.table.iloc[1:]
    found = train_both(sites, outcomes)
    assert {type(error) for error in found.values()} == {Disagreement}
    assert "it has 399 records, this party 400; both need the same ids" in str(found["bank"])
    assert "it has 400 records, this party 399; both need the same ids" in str(found["shop"])
    for site in (sites.bank, sites.shop):
        assert {line["kind"] for line in log_lines(site) if line["event"] == "sent"} <= {"hello", "abort"}
        assert [line["event"] for line in log_lines(site)][-1] == "failed"
        assert not (site.run_folder / "model.json").exists()


def test_a_party_with_another_key_than_the_agreed_one_is_kept_out(
    sites: Any, outcomes: Outcomes, tmp_path: Path
) -> None:
    _, another = generate(tmp_path, "shop")
    (sites.bank.path / "keys" / "shop.public").write_text(another.read_text())
    sites.bank.run["wait"] = sites.shop.run["wait"] = 1.5
    found = train_both(sites, outcomes)
    assert {party: type(error) for party, error in found.items()} == {"bank": PeerLost, "shop": PeerRefused}
    assert "refused the connection: one side's public key is not the one" in str(found["shop"])
    assert "shop did not connect" in str(found["bank"])
    assert {line["message"] for line in log_lines(sites.bank) if line["event"] == "connection"} == {
        "refused a connection: its key is not on the list of peers"
    }


def test_an_existing_run_is_never_run_anew(sites: Any) -> None:
    for site, train in ((sites.bank, train_active), (sites.shop, train_passive)):
        path = site.write()
        site.run_folder.mkdir(parents=True)
        (site.run_folder / "model.json").write_text("{}")
        with pytest.raises(RunFolderError, match="holds a run already; choose another run_id"):
            train(path, insecure=False, terminal=SILENT)
        assert [file.name for file in site.run_folder.iterdir()] == ["model.json"]


def test_plain_text_trains_on_loopback_and_is_refused_elsewhere(sites: Any, outcomes: Outcomes) -> None:
    for site in (sites.bank, sites.shop):
        site.run.pop("secret_key")
    found = train_both(sites, outcomes, insecure=True)
    assert {name: folder.path for name, folder in found.items()} == {
        "bank": sites.bank.run_folder,
        "shop": sites.shop.run_folder,
    }
    sites.bank.run.update(run_id="abroad", listen="tcp://0.0.0.0:5555")
    with pytest.raises(KeyFileError, match="not on loopback"):
        train_active(sites.bank.write(), insecure=True, terminal=SILENT)


EVERYTHING: dict[str, Any] = {
    "n_estimators": 60,
    "learning_rate": 0.9,
    "max_depth": 3,
    "max_leaves": 6,
    "max_delta_step": 2.0,
    "scale_pos_weight": 1.5,
    "class_weight": "balanced",
    "max_cat_to_onehot": 2,
    "validation_fraction": 0.25,
    "early_stopping_rounds": 4,
    "eval_metric": ["auc", "error", "logloss"],
    "monotone_constraints": {"c0": -1, "age": 1},
    "interaction_constraints": [["age", "c0"], ["age", "c1"]],
    "seed": 3,
}


def test_a_model_with_every_option_trains_and_keeps_its_history(sites: Any, outcomes: Outcomes) -> None:
    groups = [*EVERYTHING["interaction_constraints"], ["town", "age"]]
    sites.bank.run["model"] = {**EVERYTHING, "interaction_constraints": groups}
    towns = np.resize(["north", "south", "east", "west"], N_CUSTOMERS)
    sites.bank.table = sites.bank.table.assign(town=towns)
    sites.bank.schema["columns"]["town"] = {"kind": "unordered", "categories": ["north", "south", "east", "west"]}
    found = train_both(sites, outcomes)
    assert not [error for error in found.values() if isinstance(error, BaseException)]
    history = json.loads((sites.bank.run_folder / "history.json").read_text())
    assert list(history["scores"]) == ["auc", "error", "logloss"]
    past = history["scores"]["logloss"]
    assert len(past) == history["best_round"] + 4 < 60
    assert history["best_round"] == int(np.argmin(past)) + 1
    model = load_model(sites.bank.run_folder / "model.json")
    assert model.n_rounds == history["best_round"]
    assert max(int(tree.is_leaf.sum()) for tree in model.trees) <= 6
    assert not (sites.shop.run_folder / "history.json").exists()


def test_a_constraint_on_a_column_that_nobody_has_ends_the_run_on_both_sides(sites: Any, outcomes: Outcomes) -> None:
    sites.bank.run["model"] = {"n_estimators": 2, "monotone_constraints": {"spend": 1}}
    found = train_both(sites, outcomes)
    assert type(found["bank"]) is ParameterError
    assert "constraints name columns that do not exist: spend" in str(found["bank"])
    assert isinstance(found["shop"], BaseException)
    assert log_lines(sites.bank)[-1]["event"] == "failed"


def test_where_scores_are_coarse_training_leaves_no_curves_of_exact_ones(sites: Any, outcomes: Outcomes) -> None:
    """A tenth of few held-out records has the exact score of one."""
    sites.bank.run |= {"reveal": {"bins": 2}, "report": True}
    sites.bank.run["held_out"] = sites.shop.run["held_out"] = 0.05
    found = train_both(sites, outcomes)
    assert not [error for error in found.values() if isinstance(error, BaseException)]
    folder = RunFolder(sites.bank.run_folder)
    assert folder.load_fits() == ()
    assert not (folder.path / "fit.json").exists()
    assert (folder.path / "held_out.json").exists()
    report = (folder.path / "report.html").read_text()
    assert "Calibration" not in report
    assert json.loads((folder.path / "report.json").read_text())["fits"] == []


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, make_sites: Callable[[Path], Any], outcomes: Outcomes) -> Any:
    """A bank and a shop after a run in which the thresholds were shared."""
    sites = make_sites(tmp_path_factory.mktemp("sites"))
    sites.bank.run["correct_noise"] = sites.shop.run["share_thresholds"] = True
    found = train_both(sites, outcomes)
    assert not [error for error in found.values() if isinstance(error, BaseException)]
    return sites


def predict_both(
    trained: Any, outcomes: Outcomes, mode: str, out: Path, ids: Path | None = None, *, reasons: int = 0
) -> pd.DataFrame:
    """The bank's predictions, written to and read from a file; the shop answers where the mode needs it."""
    run_files = {site.party: site.path / "run.yaml" for site in (trained.bank, trained.shop)}
    calls: dict[str, Callable[[], Any]] = {
        "bank": lambda: predict_active(
            run_files["bank"], data=None, ids=ids, mode=mode, out=out, reasons=reasons, insecure=False, terminal=SILENT
        ),
        "shop": lambda: serve_passive(run_files["shop"], data=None, insecure=False, terminal=SILENT),
    }
    found = outcomes(calls)
    assert found["bank"] == out
    return pd.read_csv(out)


def test_predictions_are_keyed_by_id_and_scored_where_labels_are_known(
    trained: Any, outcomes: Outcomes, tmp_path: Path
) -> None:
    found = predict_both(trained, outcomes, "routed", tmp_path / "routed.csv")
    assert found["id"].tolist() == sorted(trained.bank.table["id"])
    assert found["status"].eq("ok").all()
    metrics = json.loads((trained.bank.run_folder / "metrics.json").read_text())["routed"]
    labels = trained.bank.table.set_index("id")["y"].loc[found["id"]].to_numpy()
    assert metrics["n_rows"] == N_CUSTOMERS
    assert metrics["error"] == pytest.approx(np.mean((found["prediction"] > 0.5) != labels))
    assert metrics["auc"] > 0.8


def test_scoring_alone_with_shared_thresholds_is_the_same_as_asking(
    trained: Any, outcomes: Outcomes, tmp_path: Path
) -> None:
    asked = predict_both(trained, outcomes, "routed", tmp_path / "routed.csv")
    in_clear = tmp_path / "both.csv"
    trained.bank.table.merge(trained.shop.table, on="id").to_csv(in_clear, index=False)
    alone = predict_active(
        trained.bank.path / "run.yaml",
        data=in_clear,
        ids=None,
        mode="local",
        out=tmp_path / "local.csv",
        insecure=False,
        terminal=SILENT,
    )
    pd.testing.assert_frame_equal(pd.read_csv(alone), asked, check_exact=True)


def test_reasons_name_the_columns_that_raised_a_score_most(trained: Any, outcomes: Outcomes, tmp_path: Path) -> None:
    """Without a further question: the answers that are scored are explained. Alone, the bank finds the same reasons."""
    plain = predict_both(trained, outcomes, "routed", tmp_path / "plain.csv")
    found = predict_both(trained, outcomes, "routed", tmp_path / "routed.csv", reasons=2)
    pd.testing.assert_frame_equal(found[list(plain.columns)], plain, check_exact=True)
    model = RunFolder(trained.bank.run_folder).load_joint_model().ensemble
    names = {column.name if column.owner is None else f"shop: {column.name}" for column in model.columns}
    said = set(found["reason_1"].dropna()) | set(found["reason_2"].dropna())
    assert said <= names
    assert any(name.startswith("shop: ") for name in said)
    assert not (found["reason_1"].isna() & found["reason_2"].notna()).any()
    in_clear = tmp_path / "both.csv"
    trained.bank.table.merge(trained.shop.table, on="id").to_csv(in_clear, index=False)
    alone = predict_active(
        trained.bank.path / "run.yaml",
        data=in_clear,
        ids=None,
        mode="local",
        out=tmp_path / "local.csv",
        reasons=2,
        insecure=False,
        terminal=SILENT,
    )
    pd.testing.assert_frame_equal(pd.read_csv(alone), found, check_exact=True)


def test_desensitized_answers_are_drawn_once_and_are_not_the_exact_ones(
    trained: Any, outcomes: Outcomes, tmp_path: Path
) -> None:
    first, second, exact = (
        predict_both(trained, outcomes, mode, tmp_path / f"{i}.csv")["prediction"]
        for i, mode in enumerate(["desensitized", "desensitized", "routed"])
    )
    assert first.tolist() == second.tolist()
    assert (first != exact).any()


def test_a_customer_that_the_shop_does_not_know_gets_no_prediction(
    trained: Any, outcomes: Outcomes, tmp_path: Path
) -> None:
    newcomer = tmp_path / "ids.txt"
    newcomer.write_text("k0001\nk0002\n")
    trained.shop.table[trained.shop.table["id"] != "k0002"].to_csv(trained.shop.path / "data.csv", index=False)
    try:
        found = predict_both(trained, outcomes, "routed", tmp_path / "new.csv", newcomer)
    finally:
        trained.shop.write()
    assert found["status"].tolist() == ["ok", "missing_passive_columns"]
    assert found["prediction"].isna().tolist() == [False, True]


def test_predictions_never_replace_a_file_and_nobody_is_asked_then(trained: Any, tmp_path: Path) -> None:
    (tmp_path / "old.csv").write_text("precious")
    with pytest.raises(ConfigError, match=r"old\.csv exists; give another file with --out, or --overwrite"):
        predict_active(
            trained.bank.path / "run.yaml",
            data=None,
            ids=None,
            mode="routed",
            out=tmp_path / "old.csv",
            insecure=False,
            terminal=SILENT,
        )
    assert (tmp_path / "old.csv").read_text() == "precious"


@pytest.mark.parametrize("party", ["bank", "shop"])
def test_predicting_needs_a_trained_run(sites: Any, party: str) -> None:
    path = getattr(sites, party).write()
    calls: dict[str, Callable[[], Any]] = {
        "bank": lambda: predict_active(
            path, data=None, ids=None, mode="routed", out=None, insecure=False, terminal=SILENT
        ),
        "shop": lambda: serve_passive(path, data=None, insecure=False, terminal=SILENT),
    }
    with pytest.raises(RunFolderError, match="holds no trained model; train the run first"):
        calls[party]()


@pytest.fixture
def unconfirmed(sites: Any, outcomes: Outcomes, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A bank that has saved its model, and a shop and a post that do not know of it."""
    run, columns = {**sites.shop.run, "party": "post", "secret_key": "keys/post.secret"}, {"lower": 0, "upper": 20}
    post = Site(sites.bank.path.parent, "post", "bank", run, {"id": "id", "columns": {"parcels": columns}})
    post.table = sites.bank.table[["id"]].assign(parcels=np.arange(N_CUSTOMERS) % 21)
    for mine, theirs in ((sites.bank, post), (post, sites.bank)):
        key = f"keys/{mine.party}.public"
        (theirs.path / key).write_text((mine.path / key).read_text())
    sites.bank.run["passive"] = [{"name": name, "public_key": f"keys/{name}.public"} for name in ("shop", "post")]
    sites.post = post
    with before_concluding(monkeypatch):
        train_three(sites, outcomes)
    return sites


def train_three(sites: Any, outcomes: Outcomes) -> dict[str, Any]:
    """What the training jobs of a bank, a shop and a post return or raise."""
    bank, shop, post = (site.write() for site in (sites.bank, sites.shop, sites.post))
    return outcomes(
        {
            "bank": lambda: train_active(bank, insecure=False, terminal=SILENT),
            "shop": lambda: train_passive(shop, insecure=False, terminal=SILENT),
            "post": lambda: train_passive(post, insecure=False, terminal=SILENT),
        }
    )


def other_ids(sites: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.rmtree(sites.shop.run_folder)
    sites.shop.table = sites.shop.table.iloc[1:]


def wrong_message(sites: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    in_place_of_ranks(monkeypatch, lambda channel: channel.send(Thresholds(router=None)))


def end(sites: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(channel: Any) -> None:
        raise ParameterError("-")

    in_place_of_ranks(monkeypatch, stop)


def departure(sites: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It leaves without a word."""

    def leave(channel: Any) -> None:
        monkeypatch.setattr("parties.session.handshake.abort", lambda *_: None)
        raise ParameterError("-")

    in_place_of_ranks(monkeypatch, leave)


def restart(sites: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It begins again, once; so does the bank then."""
    left = [PeerRestarted("-")]

    def begin_again(channel: Any) -> None:
        if left:
            raise left.pop()

    in_place_of_ranks(monkeypatch, begin_again)


def in_place_of_ranks(monkeypatch: pytest.MonkeyPatch, do: Callable[[Any], None]) -> None:
    """What the shop does once it has greeted."""

    def send(job: Any, columns: Any, channel: Any, *others: Any) -> Any:
        if job.party == "shop":
            do(channel)
        return honest(job, columns, channel, *others)

    honest = party_b._send
    monkeypatch.setattr(party_b, "_send", send)


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (other_ids, Disagreement),
        (wrong_message, UnexpectedMessage),
        (end, PeerAborted),
        (departure, RunFolder),
        (restart, RunFolder),
    ],
)
def test_what_one_peer_does_wrong_keeps_no_other_from_its_share(
    unconfirmed: Any,
    outcomes: Outcomes,
    monkeypatch: pytest.MonkeyPatch,
    fault: Callable[[Any, pytest.MonkeyPatch], None],
    error: type,
) -> None:
    """Nor does its end, which the bank hears of while it concludes with the other one."""
    fault(unconfirmed, monkeypatch)
    found = train_three(unconfirmed, outcomes)
    assert type(found["bank"]) is error, found
    assert type(found["post"]) is RunFolder, found
    (told,) = (line["message"] for line in log_lines(unconfirmed.bank) if line["event"] == "unconfirmed")
    assert told.startswith("the model is saved, but shop has not confirmed its share: ")


def test_a_peer_that_ends_before_its_turn_keeps_no_other_from_its_share(
    unconfirmed: Any, outcomes: Outcomes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def greet(channel: Any, mine: Any, **more: Any) -> Any:
        if mine.party == "post":
            channel.send(mine)
            raise ParameterError("-")
        return honest(channel, mine, **more)

    honest = party_b.greet
    monkeypatch.setattr(party_b, "greet", greet)
    # By then the post has ended.
    in_place_of_ranks(monkeypatch, lambda channel: time.sleep(0.5))
    found = train_three(unconfirmed, outcomes)
    assert type(found["shop"]) is RunFolder, found
    (told,) = (line["message"] for line in log_lines(unconfirmed.bank) if line["event"] == "unconfirmed")
    assert told.startswith("the model is saved, but post has not confirmed its share: ")


def test_each_side_notes_in_its_own_log_how_many_cells_are_read_as_other(sites: Any, outcomes: Outcomes) -> None:
    described = {"kind": "unordered", "categories": ["x", "y"], "other": True}
    for site, name, n_other in ((sites.bank, "town", 100), (sites.shop, "brand", 300)):
        site.schema["columns"][name] = described
        site.table[name] = ["v"] * n_other + ["x", "y"] * ((N_CUSTOMERS - n_other) // 2)
        site.run["report"] = True
    train_both(sites, outcomes)
    for site, name, n_other in ((sites.bank, "town", 100), (sites.shop, "brand", 300)):
        # A report may be passed on, and says what it holds.
        assert "cells are read as" not in (site.run_folder / "report.json").read_text()
        lines = [json.loads(line) for line in (site.run_folder / "log.jsonl").read_text().splitlines()]
        (told,) = (line["message"] for line in lines if line["event"] == "other categories")
        assert told.startswith(f"column {name}: {n_other} of {N_CUSTOMERS} cells are read as `other`")
