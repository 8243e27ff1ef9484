"""Secure aggregation: sums of masked vectors, with drop-outs."""
