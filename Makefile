# Two commands: `make run` serves on http://127.0.0.1:8080, `make test` checks everything. Both set up what is missing.
# And a third: `make cluster` runs Redis, four nodes, HAProxy and the example application (deploy/README.md).

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# Debian keeps what `python3 -m venv` needs in a package of its own.
SUDO := $(shell [ "$$(id -u)" = 0 ] || command -v sudo)
APT_INSTALL := $(SUDO) apt-get update -qq && $(SUDO) apt-get install -y -qq
APT := { $(APT_INSTALL) python3-venv; }

# What a cluster needs of the system, and what its tests need, too. HAProxy is not on everybody's path.
export PATH := $(PATH):/usr/sbin
CLUSTER_PROGRAMS := redis-server haproxy openssl
CLUSTER_PACKAGES := redis-server haproxy openssl
TEST_PROGRAMS := $(CLUSTER_PROGRAMS) curl chromium chromedriver
TEST_PACKAGES := $(CLUSTER_PACKAGES) curl chromium chromium-driver

.PHONY: run test cluster lint clean

run: $(VENV)/run.stamp
	$(BIN)/pushup serve

test: $(VENV)/test.stamp lint
	@for program in $(TEST_PROGRAMS); do command -v $$program > /dev/null || missing=1; done; \
	[ -z "$$missing" ] || { $(APT_INSTALL) $(TEST_PACKAGES); } || \
	{ echo "Install these first, the tests need them: $(TEST_PACKAGES)"; exit 1; }
	$(BIN)/pytest

cluster: $(VENV)/cluster.stamp
	@for program in $(CLUSTER_PROGRAMS); do command -v $$program > /dev/null || missing=1; done; \
	[ -z "$$missing" ] || { $(APT_INSTALL) $(CLUSTER_PACKAGES); } || \
	{ echo "Install these first: $(CLUSTER_PACKAGES)"; exit 1; }
	@exec $(BIN)/python -m deploy.local

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

$(VENV)/cluster.stamp: pyproject.toml $(VENV)/run.stamp
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[example]'
	touch $@

$(VENV)/test.stamp: pyproject.toml $(VENV)/run.stamp
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis
