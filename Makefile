# make lab: set up and open the course.  make test: set up and run every check.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

# stage(name, command): run, and say how long it took
define stage
@echo "== $(1)"; s=$$(date +%s); $(2) || { echo "== $(1) failed after $$(( $$(date +%s) - s )) s"; exit 1; }; \
echo "== $(1) took $$(( $$(date +%s) - s )) s"
endef
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q --durations=10

# what `make check` leaves to `make test`
LONG := notebooks browser exercises grading

.PHONY: lab test check slow audit format clean

lab: .venv/lab.stamp
	@$(BIN)/txcourse lab

test: check
	$(call stage,exercises,$(PYTEST) tests/exercises -m "not slow")
	$(call stage,grading,$(PYTEST) tests/grading -m "not slow")
	$(call stage,kills,$(PYTEST) tests/training tests/learner -m "kills and not slow")
	$(call stage,notebooks,$(PYTEST) tests/notebooks -m "not slow")
	$(call stage,browser,$(PYTEST) tests/browser)

check: .venv/dev.stamp
	$(call stage,lint,$(BIN)/ruff check .)
	$(call stage,format,$(BIN)/ruff format --check .)
	$(call stage,types,$(BIN)/mypy)
	$(call stage,unit tests,$(PYTEST) tests -m "not slow and not kills" $(LONG:%=--ignore=tests/%))

slow: .venv/dev.stamp
	$(call stage,slow tests,$(PYTEST) tests -m slow)

audit: .venv/dev.stamp
	@$(BIN)/python -m tests.exercises.audit

format: .venv/dev.stamp
	@$(BIN)/ruff check --fix . && $(BIN)/ruff format .

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache

.venv/bin/python:
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11))" || { echo "The course needs Python 3.11 or newer: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 2; }
	@$(PYTHON) -c "import venv, ensurepip" 2>/dev/null || { echo "This Python has no venv. On Debian or Ubuntu: sudo apt install python3-venv, then make $(MAKECMDGOALS) again." >&2; exit 2; }
	@echo "Setting up .venv (once, some minutes) ..."
	@$(PYTHON) -m venv .venv

.venv/lab.stamp: pyproject.toml constraints.txt | .venv/bin/python
	@$(PIP) --editable .
	@touch $@

.venv/dev.stamp: pyproject.toml constraints.txt | .venv/bin/python
	@$(PIP) --editable ".[dev,translation]"
	@touch $@ .venv/lab.stamp
