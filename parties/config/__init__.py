"""Run files: the YAML of every role, parsed and checked as a whole."""
