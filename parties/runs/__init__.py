"""Runs: the run folder, its journal and log, differences between run files, and the joint model."""
