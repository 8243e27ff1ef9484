"""`opboost export`: a saved model in another system's form."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parties.commands.console import Format, FormatOption, print_result, terminal_of_command
from parties.errors import ConfigError

if TYPE_CHECKING:
    from opboost.trees.tree import Ensemble


class System(StrEnum):
    """What reads the exported model."""

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
            help="With sql: the schema whose categories the table holds by name. Of a model outside its run folder: "
            "the schema of its training, by which empty cells are filled."
        ),
    ] = None,
    form: FormatOption = Format.TEXT,
) -> None:
    """Write a trained model for ONNX runtimes, treelite, a database or XGBoost; B's part becomes named inputs."""
    from opboost.export.imputed import imputed
    from opboost.trees.model_file import load_model
    from parties.config.reading import KEPT_SCHEMA, fills_of, kept_schema, read_schema
    from parties.storage.atomic_files import is_folder, is_taken, odd_kind, replacing

    with terminal_of_command() as terminal:
        if is_taken(out):
            raise ConfigError(f"{out} exists; name another file with --out. No model was exported")
        path = model / "model.json" if is_folder(model) else model
        if os.path.exists(path) and (kind := odd_kind(path)) is not None:
            raise ConfigError(f"{path} is {kind}, where a model is needed. No model was exported")
        ensemble, of_training = load_model(path), kept_schema(path.parent)
        if of_training is None and schema is not None:
            of_training = read_schema(schema)[0]
        if of_training is not None:
            ensemble = imputed(ensemble, fills_of(of_training))
        elif not is_folder(model):
            terminal.warn(
                f"no {KEPT_SCHEMA} lies beside {path}, as in its run folder: empty cells that training filled would be "
                "scored as missing ones. Name the schema of its training with --schema if it fills any"
            )
        try:
            is_sql = to is System.SQL
            written = _query(path, ensemble, table, keep or [], schema) if is_sql else _exported(ensemble, to)
        except ImportError as error:
            raise ConfigError(str(error)) from None
        with replacing(out) as partial:
            partial.write_bytes(written)
        print_result(form, model=str(out), inputs=len(ensemble.features))


def _query(path: Path, ensemble: Ensemble, table: str, keep: list[str], schema: Path | None) -> bytes:
    from opboost.export.sql import to_sql
    from parties.config.reading import check_numbers_of_categories, read_schema

    categories, with_others = {}, []
    if schema is not None:
        own = {feature.name for feature in ensemble.features if feature.owner is None}
        described = read_schema(schema)[0]
        if own and not own & {*described.names}:
            raise ConfigError(f"{schema} describes no column of the model's own. No model was exported")
        check_numbers_of_categories(described, path.parent, own)
        categories = {one.name: one.categories for one in described.columns if one.categories and one.name in own}
        with_others = [name for name in categories if described.format.of(name).has_other]
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
