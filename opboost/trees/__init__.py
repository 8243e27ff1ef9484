"""The exact tree core, shared by all recipes. Independent of privacy."""
