"""The command line."""

from evo.cli.app import main

__all__ = ["main"]
