"""The benchmarks of `evo`: `python benchmarks/run.py` lists them."""
