"""Kernels as folders that need no evo: a Python package, FlashInfer-Bench, Hugging Face kernels, plain C."""

from evo.export.bundle import Bundle, bundle_of
from evo.export.formats import FORMATS, write

__all__ = ["FORMATS", "Bundle", "bundle_of", "write"]
