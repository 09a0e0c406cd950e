"""Why the winner wins: what a study's trials say together, what each optimisation of one trial is worth, and
what limits its kernel. Each module makes a value; `evo.report` renders it."""
