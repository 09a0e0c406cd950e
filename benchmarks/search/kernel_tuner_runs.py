"""Runs of Kernel Tuner's strategies in its simulation mode over a recorded space, for replay.py.

    python benchmarks/kernel_tuner_runs.py < request.json > answer.json

Needs `pip install kernel-tuner` and nothing of evo, so that it can live in an environment of its own. The
request: `cache` (a Kernel Tuner cache file), `strategies`, `seeds`, `evaluations` (the budget). The answer:
`version`, and `runs`, each with `strategy`, `seed`, `points` (the keys of the evaluated points in order),
`repeated` and `infeasible` proposals, `seconds` of the strategy, and `error`, "" where all went well. A run
that takes `LIMIT_S` seconds of CPU is ended, and counts as far as it came: nsga2 has runs that do not end.
"""

from __future__ import annotations

import io
import json
import random
import signal
import sys
import time
import warnings
from contextlib import redirect_stdout
from importlib.metadata import version
from typing import Any

import numpy as np

LIMIT_S = 90.0
"""Seconds of CPU after which a run is ended."""


class Endless(Exception):
    """A run that took too long."""


def give_up(*_: object) -> None:
    raise Endless(f"ended after {LIMIT_S:.0f} s of CPU")


class Recorder:
    """Kernel Tuner's simulation runner; it remembers what it was asked for."""

    def __init__(self, runner: Any) -> None:
        self._runner = runner
        self.points: list[str] = []
        self.repeated = 0
        self.seconds = 0.0

    def run(self, parameter_space: Any, tuning_options: Any) -> Any:
        began = time.process_time()
        elements = list(parameter_space)
        seen = self._runner.visited_results
        answer: list[Any] = []
        for element in elements:
            if tuning_options.budget.is_done():
                break
            key = ",".join(str(v) for v in element)
            self.repeated += key in seen
            known = len(seen)
            answer += self._runner.run([element], tuning_options)
            if len(seen) > known:
                self.points.append(key)
        self.seconds += time.process_time() - began
        return [*answer, *[None] * (len(elements) - len(answer))]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)


def forget_neighbours(searchspace: Any) -> None:
    """Empties the space's caches of neighbours, from which strategies draw: with what earlier runs left in
    them, the runs of one process were no independent repeats (the same few points in most of 20 seeds)."""
    for name, cache in vars(searchspace).items():
        if name.endswith(("__neighbor_cache", "__neighbor_partial_cache")):
            for neighbours in cache.values():
                neighbours.clear()


class Runs:
    """Given to Kernel Tuner as a strategy of the user's, so that the space is built once for all runs."""

    def __init__(self, request: dict[str, Any]) -> None:
        self._request = request
        self.done: list[dict[str, Any]] = []

    def tune(self, searchspace: Any, runner: Any, tuning_options: Any) -> list[Any]:
        from kernel_tuner.interface import Options, strategy_map
        from kernel_tuner.util import StopCriterionReached, TuningBudget

        plain = searchspace.is_param_config_valid
        for name in self._request["strategies"]:
            for seed in self._request["seeds"]:
                refused = 0

                def counted(config: Any, plain: Any = plain) -> bool:
                    nonlocal refused
                    valid = bool(plain(config))
                    refused += not valid
                    return valid

                searchspace.is_param_config_valid = counted
                random.seed(seed)
                np.random.seed(seed)
                runner.visited_results.clear()
                forget_neighbours(searchspace)
                recorder = Recorder(runner)
                options = Options(tuning_options)
                vars(options).update(vars(tuning_options))  # it keeps some options as items, others so
                options.strategy_options = Options(max_fevals=self._request["evaluations"])
                budget = TuningBudget(None, self._request["evaluations"])
                options.update(strategy=name, seed=seed, budget=budget)
                error, began = "", time.process_time()
                signal.setitimer(signal.ITIMER_PROF, LIMIT_S)
                try:
                    strategy_map[name].tune(searchspace, recorder, options)
                except StopCriterionReached:
                    pass
                except Exception as failure:  # noqa: BLE001 - a strategy that fails is a result here
                    error = f"{type(failure).__name__}: {failure}"[:200]
                finally:
                    signal.setitimer(signal.ITIMER_PROF, 0)
                self.done.append(
                    {
                        "strategy": name,
                        "seed": seed,
                        "points": recorder.points,
                        "repeated": recorder.repeated,
                        "infeasible": refused,
                        "error": error,
                        "seconds": time.process_time() - began - recorder.seconds,
                    }
                )
        searchspace.is_param_config_valid = plain
        return []


def main() -> None:
    from kernel_tuner.interface import tune_cache

    request = json.load(sys.stdin)
    runs = Runs(request)
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGPROF, give_up)
    with redirect_stdout(io.StringIO()):
        tune_cache(
            request["cache"],
            strategy=runs,
            strategy_options={"max_fevals": request["evaluations"]},
            quiet=True,
            verbose=False,
        )
    json.dump({"version": version("kernel-tuner"), "runs": runs.done}, sys.stdout)


if __name__ == "__main__":
    main()
