"""Doctor: checks of a run file, its data and its peers before anything is spent."""
