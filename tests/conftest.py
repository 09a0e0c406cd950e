"""One thread for NumPy, as `evo` itself sets it: searches in this process and in others then agree."""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
