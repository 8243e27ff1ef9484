"""`opboost export`: a saved model in another system's format."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parties.commands.console import Format, FormatOption, print_result, terminal_of_command
from parties.errors import ConfigError

if TYPE_CHECKING:
    from opboost.schema import TableSchema
    from opboost.trees.tree import Ensemble


class System(StrEnum):
    """Format of an exported model."""

    ONNX = "onnx"
    SQL = "sql"
    TREELITE = "treelite"
    XGBOOST = "xgboost"


def export(
    model: Annotated[Path, typer.Argument(help="A run folder, or a model.json.")],
    to: Annotated[System, typer.Option(help="What is to read the model.")],
    out: Annotated[Path, typer.Option(help="The file to write.")],
    table: Annotated[str, typer.Option(help="With sql: the table that holds the records.")] = "records",
    keep: Annotated[list[str] | None, typer.Option(help="With sql: a column to copy, as the id.")] = None,
    schema: Annotated[
        Path | None,
        typer.Option(
            help="The schema that says what empty cells are filled with; where it does not, the one beside the model "
            "does. With sql also: whose categories the table holds by name."
        ),
    ] = None,
    form: FormatOption = Format.TEXT,
) -> None:
    """Write a trained model for ONNX runtimes, treelite, a database or XGBoost; B's part becomes named inputs."""
    from opboost.export.imputed import imputed
    from opboost.trees.model_file import load_model
    from parties.config.reading import kept_schema
    from parties.runs.model_share import KEPT_SCHEMA, check_shares
    from parties.storage.atomic_files import replacing
    from parties.storage.paths import is_folder, is_taken, odd_kind

    with terminal_of_command() as terminal:
        if is_taken(out):
            raise ConfigError(f"{out} exists; name another file with --out. No model was exported")
        path = model / "model.json" if is_folder(model) else model
        if os.path.exists(path) and (kind := odd_kind(path)) is not None:
            raise ConfigError(f"{path} is {kind}, where a model is needed. No model was exported")
        check_shares(path.parent)
        ensemble, of_training = load_model(path), kept_schema(path.parent)
        given = None if schema is None else _given_schema(schema, path.parent, ensemble)
        if given is None and of_training is None and not is_folder(model):
            terminal.warn(
                f"no {KEPT_SCHEMA} lies beside {path}, as in its run folder: empty cells that training filled would be "
                "scored as missing ones. Name the schema of its training with --schema if it fills any"
            )
        ensemble = imputed(ensemble, _fills(given, of_training))
        try:
            is_sql = to is System.SQL
            written = _query(ensemble, table, keep or [], given) if is_sql else _exported(ensemble, to)
        except ImportError as error:
            raise ConfigError(str(error)) from None
        with replacing(out) as partial:
            partial.write_bytes(written)
        print_result(form, model=str(out), inputs=len(ensemble.features))


def _given_schema(path: Path, folder: Path, ensemble: Ensemble) -> TableSchema:
    """Read the schema of `--schema`, which has to be of the model's own columns, with the numbers of training."""
    from parties.config.reading import check_numbers_of_categories, check_units_of_times, read_schema

    described, own_names = read_schema(path)[0], _own_columns(ensemble)
    if own_names and not own_names & {*described.names}:
        raise ConfigError(f"{path} describes no column of the model's own. No model was exported")
    check_numbers_of_categories(described, folder, own_names)
    check_units_of_times(described, folder, own_names)
    return described


def _own_columns(ensemble: Ensemble) -> set[str]:
    return {feature.name for feature in ensemble.features if feature.owner is None}


def _fills(given: TableSchema | None, of_training: TableSchema | None) -> dict[str, float]:
    """Values that fill empty cells: those of `--schema`, and of the training where it says nothing."""
    from opboost.schema import Missing
    from parties.config.reading import fills_of

    fills = fills_of(of_training) if of_training else {}
    for column in given.columns if given else ():
        if column.missing is not Missing.REFUSE:
            fills.pop(column.name, None)
    return fills | (fills_of(given) if given else {})


def _query(ensemble: Ensemble, table: str, keep: list[str], given: TableSchema | None) -> bytes:
    from opboost.export.sql import to_sql

    own_names, categories, with_others = _own_columns(ensemble), {}, []
    if given is not None:
        categories = {
            column.name: column.categories for column in given.columns if column.categories and column.name in own_names
        }
        with_others = [name for name in categories if given.format.of(name).has_other]
    return to_sql(ensemble, table=table, keep=keep, categories=categories, with_others=with_others).encode()


def _exported(ensemble: Ensemble, to: System) -> bytes:
    if to is System.ONNX:
        from opboost.export.onnx_model import to_onnx

        return bytes(to_onnx(ensemble).SerializeToString())
    if to is System.TREELITE:
        from opboost.export.treelite_model import to_treelite

        return bytes(to_treelite(ensemble).serialize_bytes())
    from opboost.export.xgboost_model import to_xgboost

    return bytes(to_xgboost(ensemble).save_raw("json"))
