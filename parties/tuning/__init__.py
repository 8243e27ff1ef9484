"""Tuning of the active party's parameters on the ranks that a finished run received; needs no peer."""
