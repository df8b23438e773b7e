# `make` alone shows what there is. Everything that is made stands in .venv, but for the peers of `make bench`, which stand in
# benchmarks/.environments; the temporary folder is used and left clean.

SHELL := /bin/sh
VENV := .venv
BIN := $(VENV)/bin
PIP := PIP_USER=0 $(BIN)/python -m pip --disable-pip-version-check --quiet
PYTHON ?= $(shell for each in python3 python3.14 python3.13 python3.12 python3.11; do \
	if $$each -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then echo $$each; break; fi; done)
PYTEST_OPTIONS ?= -n 2
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help demo .venv test test-long lint check bench format lock clean

help:  ## what can be made
	@awk -F ':.*## ' '/^[a-z.-]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' Makefile

demo: $(VENV)/run-installed  ## a day of shipments, from publishing to signed POSTs in two regions (ARGS=--keep to look around)
	@$(BIN)/fanout demo $(ARGS)

.venv: $(VENV)/run-installed  ## only the environment, with the command .venv/bin/fanout

test: $(VENV)/dev-installed  ## the tests, on a real PostgreSQL (PYTEST_OPTIONS="-n 2 -k words")
	@$(BIN)/python -m pytest $(PYTEST_OPTIONS)

test-long: $(VENV)/dev-installed  ## the tests that `make test` leaves out: every storm over a day, and measurements
	@FANOUT_TEST_LONG=1 $(BIN)/python -m pytest -n 0 -m long

lint: $(VENV)/dev-installed  ## style, types, and who may import whom
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/lint-imports

check: lint test  ## all that has to pass before a change is taken

bench: $(VENV)/dev-installed  ## measure this beside others, and write the tables and the plot of benchmarks/README.md (ARGS=--quick)
	@$(BIN)/python -m benchmarks $(ARGS)

format: $(VENV)/dev-installed  ## lay the code out
	@$(BIN)/ruff format

lock:  ## resolve the dependencies anew (needs uv)
	@uv pip compile --quiet --universal --generate-hashes --no-header --group dev pyproject.toml -o requirements.lock
	@printf 'hatchling\neditables\n' | uv pip compile --quiet --universal --generate-hashes --no-header \
		--constraint requirements.lock pyproject.toml - -o requirements-run.lock

clean:  ## remove .venv and all caches
	@rm -rf $(VENV) benchmarks/.environments dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage*
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Stamps: each stands for a step that was finished, so that the next run does nothing.

$(VENV)/made:
	@if [ -z "$(PYTHON)" ]; then echo "Python 3.11 or later is needed; name one: make PYTHON=/path/to/python3" >&2; exit 1; fi
	@echo "making $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV)
	@touch $@

# The lock file pins everything by hash, the build backend included: nothing else is fetched.
$(VENV)/run-installed: $(VENV)/made requirements-run.lock pyproject.toml
	@echo "installing $$(grep -c '==' requirements-run.lock) packages to run"
	@$(PIP) install --requirement requirements-run.lock
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/dev-installed: $(VENV)/run-installed requirements.lock
	@echo "installing the tools to develop"
	@$(PIP) install --requirement requirements.lock
	@touch $@
