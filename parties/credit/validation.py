"""Credit validation of a run: evidence of all columns, a scorecard, and quality of the model's scores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from opboost.arrays import Values
from opboost.credit.calibration import Calibrated, calibrations, platt
from opboost.credit.discrimination import Band, Rejection, SwapSet, gains, rejections, swap_set
from opboost.credit.drift import drift
from opboost.credit.evidence import Characteristic, own_characteristic
from opboost.credit.fairness import Fairness, fairness
from opboost.credit.released_evidence import released_characteristics
from opboost.credit.scorecard import PointScale, Scorecard
from opboost.errors import nearest
from opboost.metrics import auc, gini, ks
from opboost.trees.losses import Logistic, Softmax
from opboost.uplift import Uplift, measure_uplift
from parties.config.reading import read_run, read_schema
from parties.config.score_policy import SEVERAL_SCORES
from parties.config.vertical import ActiveRun
from parties.errors import ConfigError, TableError
from parties.runs.run_folder import RunFolder
from parties.storage.csv_cells import without_mark
from parties.storage.paths import real_places
from parties.tables.data_files import is_parquet, named, reporting_faults
from parties.tables.party_table import PartyTable, own_columns, read_table
from parties.tuning.kept_release import read_kept

# Columns whose information value is lower tell too little to have points.
LEAST_INFORMATION = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationInputs:
    """Inputs and options of a credit validation.

    Attributes
    ----------
    run_file : Path
    scale : PointScale
    scores, challenger, earlier_scores : Path or None
        Predictions: the model's, another model's of the same records, and the model's of an earlier month.
    data, earlier_data : Path or None
        Data files of these months; by default the run's, and none.
    groups : tuple of str
        Own columns to look at decisions by.
    share : float
        Of the records that is rejected.
    """

    run_file: Path
    scale: PointScale = field(default_factory=PointScale)
    scores: Path | None = None
    challenger: Path | None = None
    earlier_scores: Path | None = None
    data: Path | None = None
    earlier_data: Path | None = None
    groups: tuple[str, ...] = ()
    share: float = 0.2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ModelScores:
    """How a model's predictions do on records with known labels.

    Attributes
    ----------
    n_records : int
    auc, gini, ks : float
    bands : tuple of Band
    rejections : tuple of Rejection
    calibrated : tuple of Calibrated
    slope, intercept : float
        Of Platt's sigmoid: 1 and 0 if the model is calibrated.
    points : ndarray of float64
        The scores of the records in points.
    fairness : tuple of Fairness
    swapped : SwapSet or None
    uplift : Uplift or None
        The challenger's, over the model.
    """

    n_records: int
    auc: float
    gini: float
    ks: float
    bands: tuple[Band, ...]
    rejections: tuple[Rejection, ...]
    calibrated: tuple[Calibrated, ...]
    slope: float
    intercept: float
    points: Values
    fairness: tuple[Fairness, ...] = ()
    swapped: SwapSet | None = None
    uplift: Uplift | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Validation:
    """Findings of a credit validation.

    Attributes
    ----------
    run_id : str
    card : Scorecard
        Of the columns that tell enough, on the records that the run was trained on.
    left_out : tuple of Characteristic
        Of the others.
    card_gini : float
    model : ModelScores or None
        None without predictions.
    drifts : dict of str to float
        Stability indices of the scores and of own columns, where an earlier month is given.
    """

    run_id: str
    card: Scorecard
    left_out: tuple[Characteristic, ...]
    card_gini: float
    model: ModelScores | None
    drifts: Mapping[str, float]


def validate(inputs: ValidationInputs) -> Validation:
    """Validate a finished run from the active party's files alone.

    Raises
    ------
    PartyError, OpBoostError
    ImportError
        If there are groups and fairlearn is not installed.
    """
    run = read_run(inputs.run_file, ActiveRun)
    kept = read_kept(run, inputs.run_file, purpose="a scorecard")
    labels = kept.job.labels
    characteristics = [own_characteristic(column, labels) for column in kept.job.own]
    characteristics += released_characteristics(kept.received, labels)
    informative = [
        characteristic for characteristic in characteristics if characteristic.information_value >= LEAST_INFORMATION
    ]
    if not informative:
        raise ConfigError(f"no column has an information value of {LEAST_INFORMATION:g}. Nothing was computed")
    card = Scorecard.fit(informative, labels, inputs.scale)
    return Validation(
        run_id=run.run_id,
        card=card,
        left_out=tuple(
            characteristic for characteristic in characteristics if characteristic.information_value < LEAST_INFORMATION
        ),
        card_gini=gini(labels, -card.scores()),
        model=_model_scores(run, inputs),
        drifts=_drifts(run, inputs),
    )


def _model_scores(run: ActiveRun, inputs: ValidationInputs) -> ModelScores | None:
    usual = run.run_folder / "predictions.csv"
    path = inputs.scores or (usual if usual.exists() else None)
    if path is None:
        if inputs.challenger or inputs.groups:
            raise ConfigError("a challenger and groups are compared on predictions: predict first, or give --scores")
        return None
    if real_places(path)[0] == real_places(usual)[0]:
        _check_objective(run, path)
    table = _table(run, inputs.data)
    if table.labels is None:
        raise TableError(f"{inputs.data or run.data} has no labels to compare predictions with. Nothing was computed")
    scores = read_scores(path).reindex(table.index)
    challenger = None if inputs.challenger is None else read_scores(inputs.challenger).reindex(table.index)
    is_known = scores.notna() & np.isfinite(table.labels)
    is_known &= True if challenger is None else challenger.notna()
    rows = np.flatnonzero(is_known)
    if not len(rows):
        raise TableError(f"{path} and {inputs.data or run.data} have no record in common. Nothing was computed")
    labels, p = table.labels[rows], scores.to_numpy(np.float64)[rows]
    slope, intercept = platt(p, labels)
    swapped, uplift = None, None
    if challenger is not None:
        q = challenger.to_numpy(np.float64)[rows]
        swapped = swap_set(labels, p, q, share=inputs.share)
        uplift = measure_uplift(Logistic(), labels, p, q, is_scored=np.ones(len(rows), np.bool_), seed=0)
    by_name = {column.name: column for column in own_columns(table, read_schema(run.table_schema)[0])}
    if unknown := [name for name in inputs.groups if name not in by_name]:
        raise ConfigError(f"no own column {', '.join(unknown)} to group by{nearest(unknown, by_name)}")
    return ModelScores(
        n_records=len(rows),
        auc=auc(labels, p),
        gini=gini(labels, p),
        ks=ks(labels, p),
        bands=gains(labels, p),
        rejections=rejections(labels, p),
        calibrated=calibrations(p, labels, seed=0),
        slope=slope,
        intercept=intercept,
        points=inputs.scale.of_probabilities(p),
        fairness=tuple(
            fairness(
                grouping.name,
                grouping.values[rows],
                labels,
                p,
                share=inputs.share,
                categories=grouping.categories,
                unit_s=grouping.unit_s,
            )
            for grouping in map(by_name.__getitem__, inputs.groups)
        ),
        swapped=swapped,
        uplift=uplift,
    )


def _check_objective(run: ActiveRun, path: Path) -> None:
    """Refuse the run's own predictions where its model gives no probability of label 1."""
    loss = RunFolder(run.run_folder).load_ensemble().loss
    if loss not in (Logistic(), Softmax(n_classes=2)):
        raise ConfigError(
            f"{path} holds predictions of {loss.name}; a scorecard needs probabilities of label 1, as of "
            "binary:logistic or of multi:softprob with two classes. Give such with --scores. Nothing was computed"
        )


def _drifts(run: ActiveRun, inputs: ValidationInputs) -> dict[str, float]:
    indices = {}
    if inputs.earlier_scores is not None:
        now = inputs.scores or run.run_folder / "predictions.csv"
        indices["scores"] = drift(*(read_scores(path).dropna().to_numpy() for path in (inputs.earlier_scores, now)))
    if inputs.earlier_data is not None:
        schema, _ = read_schema(run.table_schema)
        tables = (own_columns(_table(run, path), schema) for path in (inputs.earlier_data, inputs.data))
        months = zip(*tables, strict=True)
        indices |= {
            earlier.name: drift(earlier.values, later.values, is_categorical=earlier.is_categorical)
            for earlier, later in months
        }
    return indices


def _table(run: ActiveRun, data: Path | None) -> PartyTable:
    schema, ignore = read_schema(run.table_schema)
    unread = (*ignore, *run.align.key_columns)
    return read_table(data or run.data, schema, ignore=unread, needs_label=False, duplicates=run.align.duplicates)


def read_scores(path: Path) -> pd.Series:
    """Predicted probabilities of label 1 by id; NaN for a record without one.

    Raises
    ------
    TableError
        If the file is no table of ids and one probability each.
    """
    try:
        with reporting_faults(path):
            is_stored = is_parquet(path)
            frame = pd.read_parquet(path) if is_stored else pd.read_csv(path, dtype=str, keep_default_na=False)
        if is_stored:
            ids = pd.Index(frame["id"].astype(str), dtype=object)
        else:
            ids = pd.Index(frame["id"].map(without_mark), dtype=object)
        scores = frame[_score_column(path, frame.columns)]
        values = pd.to_numeric(scores if is_stored else scores.replace("", np.nan)).to_numpy(np.float64)
    except (KeyError, TypeError, ValueError) as error:
        raise TableError(f"{path} holds no predictions: {type(error).__name__}. Nothing was computed") from None
    if not ids.is_unique:
        raise TableError(f"{path} has an id twice. Nothing was computed")
    if ((values < 0) | (values > 1)).any():
        raise TableError(f"{path} holds predictions that are no probabilities. Nothing was computed")
    return pd.Series(values, index=ids)


def _score_column(path: Path, columns: Iterable[object]) -> str:
    """The column with the probability of label 1; beside those of two classes, `prediction` is the more probable class.

    Raises
    ------
    TableError
        If there are other columns of classes, labels or quantiles.
    """
    several = sorted(name for name in map(str, columns) if name.startswith(SEVERAL_SCORES))
    if several == ["probability_0", "probability_1"]:
        return "probability_1"
    if several:
        raise TableError(
            f"{path} has the columns {named(several)}: a scorecard needs one probability per record, in `prediction` "
            "alone, or in `probability_1` beside `probability_0` alone. Nothing was computed"
        )
    return "prediction"
