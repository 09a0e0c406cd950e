"""The version of evo: what trials, sources and reports keep."""

__version__ = "0.1.0"
