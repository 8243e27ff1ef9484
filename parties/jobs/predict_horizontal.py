"""Prediction job of horizontal training: local, without communication."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from parties.config.reading import check_schema_of_model, read_schema
from parties.config.record_runs import read_record_run
from parties.errors import ConfigError
from parties.horizontal.partition_files import one_table
from parties.jobs.life_cycle import Terminal, logged, reporting_afterwards
from parties.runs.joint_model import JointModel
from parties.runs.run_folder import RunFolder
from parties.tables.destinations import Destination
from parties.tables.listed_ids import select
from parties.tables.misfits import showing_misfits
from parties.tables.party_table import model_inputs, read_table
from parties.tables.record_ids import with_parts
from parties.vertical.prediction_client import predict_locally
from parties.vertical.prediction_output import prediction_table, score

# Name of this mode in logs and scores.
MODE = "alone"


def predict_alone(
    path: Path,
    *,
    data: Path | None,
    ids: Path | None,
    out: Path | str | None,
    overwrite: bool = False,
    append: bool = False,
    terminal: Terminal,
    scored: Callable[[Mapping[str, float]], None] = lambda metrics: None,
) -> Path | str:
    """Score records with the model in a run folder; returns where the predictions are.

    Parameters
    ----------
    path : Path
        The run file of a coordinator, a worker or an owner in a chain.
    data : Path, optional
        The records; a worker's or an owner's own by default. Labels are compared with where the file has them.
    ids : Path, optional
        Score these records only.
    out : Path or str, optional
        ``predictions.csv`` in the run folder by default.
    overwrite, append : bool
        What becomes of predictions that are there.
    terminal : Terminal
    scored : callable
        Takes the metrics, where labels are known.

    Raises
    ------
    ConfigError, TableError, RunFolderError
    """
    run = read_record_run(path)
    schema, ignore = read_schema(run.table_schema)
    folder = RunFolder(run.run_folder)
    own_data = getattr(run, "data", None)
    source = data or own_data
    if source is None:
        raise ConfigError(f"{path}: a coordinator has no records of its own; name a file with --data")
    if one_table(source) is None:
        raise ConfigError(f"{path}: `data` names partitions, which are not scored as they are; name a file with --data")
    model = JointModel(ensemble=folder.load_ensemble(), guarantees={}, routers={})
    check_schema_of_model(schema, folder.path, model.ensemble)
    with showing_misfits(source, schema):
        table = read_table(source, schema, ignore=ignore, needs_label=False)
        table = table if ids is None else select(table, ids, source)
        own = model_inputs(table, schema)
    inputs = source, ids, *(own_data if isinstance(own_data, tuple) else [own_data])
    default = folder.path / "predictions.csv"
    target = Destination.of(out, default, overwrite=overwrite, append=append, inputs=inputs)
    with reporting_afterwards(path, run, terminal), logged(folder, terminal) as log:
        predictions = predict_locally(model, own, table.frame)
        everybody = np.zeros(table.n_rows, np.uint8)
        written = with_parts(prediction_table(table.index, predictions, everybody), schema.id_columns)
        target.write(written)
        log.step("predicted", f"wrote {len(written)} predictions ({MODE}) to {target.name}", records=len(written))
        scored(score(folder, log, model, table, predictions, np.ones(table.n_rows, np.bool_), MODE))
    return target.place
