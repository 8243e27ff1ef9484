"""`opboost serve`: scores over HTTP; needs the packages of the extra `serve`."""

from __future__ import annotations

from parties.commands.console import DataOption, Insecure, RunFile, terminal_of_command
from parties.errors import ConfigError


def serve(run_file: RunFile, data: DataOption = None, insecure: Insecure = False) -> None:
    """Answer HTTP requests for scores with a trained model, as the active party, until SIGTERM or Ctrl-C.

    The passive parties run `opboost party-b RUN.yaml --serve`. SIGHUP reads the run file, the data file and the tokens
    again, and changes to another model if the run file is of another run.
    """
    from parties.vertical.prediction_service import StopSignals

    with StopSignals(), terminal_of_command() as terminal:
        try:
            from parties.jobs.serve_scores import serve_scores
        except ImportError as error:
            raise ConfigError(f"{error.name} is absent: install opboost[serve]. Nothing was served") from None
        serve_scores(run_file, data=data, insecure=insecure, terminal=terminal)
