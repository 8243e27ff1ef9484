"""Horizontal training: coordinator, workers, and chains of owners."""
