# Two commands: `make run` serves on http://127.0.0.1:8080, `make test` checks everything. Both set up what is missing.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: run test lint clean

run: $(VENV)/run.stamp
	$(BIN)/pushup serve

test: $(VENV)/test.stamp lint
	$(BIN)/pytest

lint: $(VENV)/test.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy

$(VENV)/run.stamp: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable .
	touch $@

$(VENV)/test.stamp: pyproject.toml $(VENV)/run.stamp
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis
