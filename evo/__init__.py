"""evo: evolutionary search for the fastest correct CUDA kernel."""

__version__ = "0.1.0"
