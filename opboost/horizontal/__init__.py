"""Recipes for horizontally partitioned rows: one package per paper, on the shared core."""
