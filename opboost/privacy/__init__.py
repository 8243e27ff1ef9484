"""Noise mechanisms and privacy accounting. Independent of trees."""
