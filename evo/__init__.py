"""evo: evolutionary search for the fastest correct CUDA kernel."""

import os

# Before NumPy is loaded. Its matrices are small here: threads would wait for each other, many times longer on
# a busy machine; and one thread rounds alike wherever a search is resumed.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

__version__ = "0.1.0"
