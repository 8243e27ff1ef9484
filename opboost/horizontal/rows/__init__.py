"""Rows of one owner: on a public grid, clipped, and asked as one."""
