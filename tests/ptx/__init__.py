"""Conformance of PTX instructions: generated programs, exact expectations, and answers recorded on a GPU."""
