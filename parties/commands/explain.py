"""`opboost explain`: importance and partial dependence of a joint model, also in a passive party's own names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from opboost.errors import shown
from parties.commands.console import Format, FormatOption, RunFile, print_result, terminal_of_command
from parties.errors import ConfigError

if TYPE_CHECKING:
    from parties.config.vertical import ActiveRun, PassiveRun
    from parties.runs.run_folder import RunFolder

EXPLANATION_FILE, EXPLANATION_FORMAT = "explanation.json", "opboost-explanation"
REASONS_FILE = "reasons.csv"


def explain(
    run_file: RunFile,
    of: Annotated[
        Path | None, typer.Option(help="On a passive party's host: the active party's explanation or reasons.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The file to write; by default one in the run folder.")] = None,
    form: FormatOption = Format.TEXT,
) -> None:
    """Explain the model of a finished run; as a passive party, read such an explanation in own names and units.

    The active party's explanation has the importance and the partial dependence of every column, computed from the
    trees' statistics; no other party is asked. Passive parties' columns have the names under which they were offered.
    A file for each passive party has only its own columns, since the active party's cuts reveal values of its records.
    """
    from parties.config.reading import check_role, read_run
    from parties.config.vertical import ActiveRun, PassiveRun

    with terminal_of_command():
        if check_role(run_file, "active", "passive") == "active":
            if of is not None:
                raise ConfigError("--of is for a passive party's run file. Nothing was written")
            print_result(form, **_explained(read_run(run_file, ActiveRun), run_file, out))
        elif of is not None:
            run = read_run(run_file, PassiveRun)
            run.check_free(out, run_file)
            # Not under the name that the other party gave its file: the folder has files that answers come from.
            target = out or run.run_folder / (REASONS_FILE if of.suffix == ".csv" else EXPLANATION_FILE)
            _in_own_words(run, of, target)
            print_result(form, explanation=str(target))
        else:
            raise ConfigError(
                f"{run_file} is of role passive: name the active party's explanation with --of. Nothing was written"
            )


def _explained(run: ActiveRun, run_file: Path, out: Path | None) -> dict[str, object]:
    """Write an active party's explanation, and a part of it for each passive party; returns what to print."""
    from opboost.explanation.partial_dependence import dependences
    from parties.config.reading import kept_schema
    from parties.runs.run_folder import RunFolder
    from parties.storage.atomic_files import write_json
    from parties.vertical.reasons import with_times

    model = RunFolder(run.run_folder).load_joint_model()
    found = dependences(model.ensemble)
    kept = kept_schema(run.run_folder)
    units = {} if kept is None else {name: kept.format.of(name).unit_s for name in kept.names}
    columns = [
        # Thresholds on columns of others are ranks or cells.
        with_times(one.to_dict(), units.get(one.column.name) if one.column.owner is None else None)
        for one in found
    ]
    target = out or run.run_folder / EXPLANATION_FILE
    theirs = {peer: target.with_name(f"{target.stem}-{peer}{target.suffix}") for peer in model.ensemble.owners}
    for path in () if out is None else (out, *theirs.values()):
        run.check_free(path, run_file)
    of_run = {"format": EXPLANATION_FORMAT, "run_id": run.run_id}
    write_json(target, {**of_run, "trainings": model.trainings, "columns": columns})
    for peer, path in theirs.items():
        own = [one for one in columns if one["owner"] == peer]
        trainings = {name: digest for name, digest in model.trainings.items() if name == peer}
        write_json(path, {**of_run, "trainings": trainings, "columns": own})
    names = ((one.column.owner, one.column.name, one.share_of_gain) for one in found)
    shares = {name if owner is None else f"{owner}: {name}": round(share, 4) for owner, name, share in names}
    for_peers = {peer: str(path) for peer, path in theirs.items()}
    return {"share_of_gain": shares, "explanation": str(target), "for_peers": for_peers}


def _in_own_words(run: PassiveRun, of: Path, target: Path) -> None:
    """Write an explanation, or a table of reasons, with the passive party's own names."""
    import pandas as pd

    from parties.runs.run_folder import RunFolder
    from parties.storage.atomic_files import write_json, write_text
    from parties.storage.csv_cells import as_text, without_mark
    from parties.storage.paths import odd_kind
    from parties.vertical.reasons import OwnWords

    folder = RunFolder(run.run_folder)
    words = OwnWords(run.party, folder.load_router(), run.opaque_names)
    try:
        if (kind := odd_kind(of)) is not None:
            raise ConfigError(f"{of} is {kind}, where a file is needed. Nothing was written")
        if of.suffix == ".csv":
            table = pd.read_csv(of, dtype=str, keep_default_na=False)
            if "reason_1" not in table.columns:
                raise ConfigError(f"{of} is a table without reasons (`opboost predict --reasons`). Nothing was written")
            reasons = words.reasons(table.map(without_mark)).map(as_text).rename(columns=as_text)
            write_text(target, reasons.to_csv(index=False))
            return
        document = json.loads(of.read_text())
        _check_same_training(document, of, run, folder)
        columns = [words.dependence(column) for column in document["columns"]]
        write_json(target, {**document, "columns": columns})
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigError(f"{of} is no explanation or table: {type(error).__name__}. Nothing was written") from None


def _check_same_training(document: dict[str, Any], of: Path, run: PassiveRun, folder: RunFolder) -> None:
    """Refuse an explanation of another run, or of another training of this run, whose tests have other numbers.

    Explanations and run folders of earlier versions may lack the digest of the training.

    Raises
    ------
    ConfigError
    """
    if (its_run := document["run_id"]) != run.run_id:
        raise ConfigError(f"{of} is of run {shown(its_run)}, this party's is {run.run_id!r}. Nothing was written")
    its_training, own_training = (
        document.get("trainings", {}).get(run.party),
        folder.load_trainings().get(run.active.name),
    )
    if None not in (its_training, own_training) and its_training != own_training:
        raise ConfigError(
            f"{of} is of another training of run {run.run_id!r} (digest {shown(its_training)}) than {run.run_folder} "
            f"(digest {shown(own_training)}); bring the run folders of one training back, or explain again. "
            "Nothing was written"
        )
