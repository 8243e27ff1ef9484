"""Jobs: a run file in, a finished training or prediction out."""
