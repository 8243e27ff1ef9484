"""Doctor: checks of a run file, its data and its peer before anything is spent."""
