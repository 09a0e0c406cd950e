"""Evaluators on other machines, by Dask.distributed: only the search writes, and it evaluates nothing."""
