"""Runs: the run folder, its journal and log, and what differs between two run files."""
