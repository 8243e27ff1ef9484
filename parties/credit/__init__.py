"""Credit validation of a run: scorecard and report, from the active party's own files."""
