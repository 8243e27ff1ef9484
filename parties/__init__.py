"""Processes: the only place where algorithms meet the wire."""
