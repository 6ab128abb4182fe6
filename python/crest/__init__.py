"""Crest from Python: runs and their logs, plans, searches, weights, training.

    import crest
    run = crest.train("input.txt", steps=200)
    run.log.to_pandas().plot(x="step", y="loss")

Everything here is plain Python over the program `crest`, its JSON, its run database and safetensors.
docs/start/from-python.md is the guide, docs/reference/python.md the reference.
"""

from crest._commands import command, plan, prepare, train, tune
from crest._program import CrestError, program
from crest._report import Report, report
from crest._store import Log, Run, run, runs
from crest._weights import Weights, weights

__all__ = [
    "CrestError",
    "Log",
    "Report",
    "Run",
    "Weights",
    "command",
    "plan",
    "prepare",
    "program",
    "report",
    "run",
    "runs",
    "train",
    "tune",
    "weights",
]
