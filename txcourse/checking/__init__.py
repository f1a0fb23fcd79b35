"""The engine behind `check`: runs the tests of an exercise against a candidate, and names the mistake.

It knows no exercise and no solution; txcourse.exercises brings both.
"""

from txcourse.checking.engine import run
from txcourse.checking.exercise import Context, Exercise, Mistake, Probe, Test, Wrong
from txcourse.checking.report import Report

__all__ = ["Context", "Exercise", "Mistake", "Probe", "Report", "Test", "Wrong", "run"]
