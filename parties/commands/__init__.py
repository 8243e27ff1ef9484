"""Commands: options, output and demos of the command line."""
