"""Reports: the plan of a run before it, and what it did after it."""
