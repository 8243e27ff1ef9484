"""Noise on sums of rows: its amount, where it is drawn, and its guarantee."""
