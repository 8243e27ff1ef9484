"""Commands: what the command line prints, asks and calls."""
