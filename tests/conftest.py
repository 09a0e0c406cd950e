"""What all tests run under, however they were started."""

import os
import signal

# One thread for NumPy, as `evo` itself sets it: searches in this process and in others then agree.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# A shell starts what runs in its background with Ctrl-C ignored, and children inherit that: the tests that
# interrupt a search would wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)
