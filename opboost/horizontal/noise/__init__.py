"""Noise on sums of rows: how much, where it is drawn, and what it promises."""
