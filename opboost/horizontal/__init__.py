"""Recipes for rows that are divided between parties: one module per paper, on the shared core."""
