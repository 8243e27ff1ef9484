"""`opboost compile-loops`: after it, no run of the demo has anything left to compile."""

from __future__ import annotations

from typer.testing import CliRunner

from opboost.trees.kernels.histograms import build_histograms
from parties.cli import app
from parties.vertical.warm_up import compiled_before


def test_every_loop_is_compiled_and_kept() -> None:
    result = CliRunner().invoke(app, ["compile-loops"])
    assert (result.exit_code, result.stdout) == (0, "")
    assert compiled_before()
    assert build_histograms.signatures
