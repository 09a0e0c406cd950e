"""What Python programs and notebooks call, and the command line too: its names are those of `evo.__all__`."""
