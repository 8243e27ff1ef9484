"""Splits and candidates chosen privately or without data."""
