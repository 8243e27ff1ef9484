"""`opboost tune`: tuning of the active party's parameters, on the ranks that a finished run received."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from parties.commands.console import Format, FormatOption, RunFile, print_result, terminal_of_command
from parties.errors import ConfigError


def tune(
    run_file: RunFile,
    trials: Annotated[int, typer.Option(min=1, help="Trials in all, those of earlier calls included.")] = 50,
    jobs: Annotated[int, typer.Option(min=1, help="Trials at a time, in processes of their own.")] = 1,
    rounds: Annotated[int, typer.Option(min=1, help="Most rounds of boosting of a trial.")] = 1000,
    metric: Annotated[str | None, typer.Option(help="What is improved; by default the objective's own.")] = None,
    space: Annotated[Path | None, typer.Option(help="YAML file of the ranges that are searched.")] = None,
    seconds: Annotated[float | None, typer.Option(min=0, help="After which no trial begins.")] = None,
    form: FormatOption = Format.TEXT,
) -> None:
    """Tune the parameters of a finished run, as the active party, on the ranks it received: at no privacy cost.

    No other party is asked, and nothing is sent. Train with the printed parameters under another run_id: passive
    parties release what they have stored, at no cost. If no trial is better, the run's own parameters are printed.
    """
    from parties.config.reading import check_role, read_run

    with terminal_of_command() as terminal:
        check_role(run_file, "active")
        try:
            from parties.tuning.study import TUNING_FOLDER, Tuning, tune_parameters
        except ImportError as error:
            raise ConfigError(f"{error.name} is absent: install opboost[tune]. Nothing was trained") from None
        from parties.config.vertical import ActiveRun
        from parties.reports.page import to_html
        from parties.storage.atomic_files import write_text
        from parties.tuning.tuning_page import tuning_page

        tuning = Tuning(
            run_file=run_file, n_trials=trials, rounds=rounds, metric=metric, space=space, seconds=seconds, jobs=jobs
        )
        tuned = tune_parameters(tuning, progress=terminal.progress)
        run = read_run(run_file, ActiveRun)
        report = run.run_folder / TUNING_FOLDER / "report.html"
        write_text(report, to_html(tuning_page(tuned, run.run_id)))
        shown = {k: round(v, 6) if isinstance(v, float) else v for k, v in tuned.to_train_with.items()}
        scores = {f"{tuned.metric}_before": round(tuned.own, 4), f"{tuned.metric}_tuned": round(tuned.best, 4)}
        facts = {"ledger_lines": tuned.ledger_lines, "why": tuned.words, "report": str(report)}
        print_result(form, **scores, advice=tuned.advice, model=shown, **facts)
