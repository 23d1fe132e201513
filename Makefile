# Two commands: `make run` serves on http://127.0.0.1:8080, `make test` checks everything. Both set up what is missing.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# Debian keeps what `python3 -m venv` needs in a package of its own.
SUDO := $(shell [ "$$(id -u)" = 0 ] || command -v sudo)
APT := { $(SUDO) apt-get update -qq && $(SUDO) apt-get install -y -qq python3-venv; }

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
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "PushUp needs Python 3.11 or later"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || $(APT) || { echo "Install Debian's python3-venv first"; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable .
	touch $@

$(VENV)/test.stamp: pyproject.toml $(VENV)/run.stamp
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis
