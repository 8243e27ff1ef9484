"""`opboost scorecard`: points, evidence of all columns, and the validation of a credit model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from parties.commands.console import DataOption, Format, FormatOption, RunFile, print_result, terminal_of_command
from parties.errors import ConfigError


def scorecard(
    run_file: RunFile,
    scores: Annotated[Path | None, typer.Option(help="Predictions; by default predictions.csv of the run.")] = None,
    data: DataOption = None,
    challenger: Annotated[Path | None, typer.Option(help="Another model's predictions of the same records.")] = None,
    earlier_scores: Annotated[Path | None, typer.Option(help="Predictions of an earlier month, for drift.")] = None,
    earlier_data: Annotated[Path | None, typer.Option(help="The data file of that month, for drift.")] = None,
    by: Annotated[list[str] | None, typer.Option(help="An own column whose groups decisions are compared by.")] = None,
    reject: Annotated[float, typer.Option(min=0.001, max=0.999, help="Share of the records that is rejected.")] = 0.2,
    pdo: Annotated[float, typer.Option(help="Points that double the odds.")] = 20.0,
    points: Annotated[float, typer.Option(help="So many points are the odds of --odds.")] = 600.0,
    odds: Annotated[float, typer.Option(help="Odds of good to bad.")] = 50.0,
    out: Annotated[Path | None, typer.Option(help="Where the page and the points go, a folder.")] = None,
    form: FormatOption = Format.TEXT,
) -> None:
    """Make a scorecard and a validation report of a finished run, as the active party; label 1 is the bad event.

    Columns of passive parties are described by the ranks that they released: no party is asked, no budget is spent.
    """
    from parties.config.reading import check_role, read_run
    from parties.config.vertical import ActiveRun

    with terminal_of_command():
        check_role(run_file, "active")
        from opboost.credit.scorecard import PointScale
        from parties.credit.validation import ValidationInputs, validate
        from parties.credit.validation_page import scorecard_document, validation_page
        from parties.reports.page import to_html
        from parties.storage.atomic_files import make_folder, write_json, write_text

        inputs = ValidationInputs(
            run_file=run_file,
            scale=PointScale(pdo, points, odds),
            scores=scores,
            challenger=challenger,
            earlier_scores=earlier_scores,
            data=data,
            earlier_data=earlier_data,
            groups=tuple(by or ()),
            share=reject,
        )
        folder = out or read_run(run_file, ActiveRun).run_folder / "scorecard"
        is_its_own = (folder / "scorecard.json").exists()
        if (folder / "meta.json").exists() or ((folder / "report.html").exists() and not is_its_own):
            raise ConfigError(
                f"{folder} is for another report.html; give another place with --out. Nothing was written"
            )
        try:
            found = validate(inputs)
        except ImportError as error:
            raise ConfigError(str(error)) from None
        make_folder(folder)
        write_json(folder / "scorecard.json", scorecard_document(found))
        write_text(folder / "report.html", to_html(validation_page(found)))
        facts = {} if found.model is None else {"gini": round(found.model.gini, 4), "ks": round(found.model.ks, 4)}
        print_result(
            form,
            columns=len(found.card.characteristics),
            scorecard_gini=round(found.card_gini, 4),
            **facts,
            scorecard=str(folder / "scorecard.json"),
            report=str(folder / "report.html"),
        )
