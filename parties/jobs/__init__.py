"""Jobs: training and prediction of every role, from a run file to a finished run."""
