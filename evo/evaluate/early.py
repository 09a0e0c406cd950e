"""What an evaluator's process does first; before a GPU it does so before it is known what it will evaluate.

Importing torch takes longer than all else that comes before a search's first trial. Meanwhile a thread starts
the driver and makes the context that torch will use.
"""

from __future__ import annotations

import threading

from evo.device.open import start_device


def prepare(device: str) -> None:
    """Imports torch and starts the device that is asked for: "auto", "cuda:0", "emulator"; "": none yet."""
    starting = threading.Thread(target=start_device, args=(device,), daemon=True)
    starting.start()
    import torch  # noqa: F401

    starting.join()
