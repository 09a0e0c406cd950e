"""evo: evolutionary search for the fastest correct CUDA kernel."""

import os

# Before NumPy is loaded: its matrices are small here, threads only wait for each other (18 times slower on two
# busy cores), and one thread rounds alike on every machine, so that a resumed search goes the same way.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

__version__ = "0.1.0"
