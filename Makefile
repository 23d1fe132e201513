# Two commands: `make run` serves on http://127.0.0.1:8080, `make test` checks everything. Both set up what is missing.
# And a third: `make cluster` runs Redis, four nodes, HAProxy and the example application (deploy/README.md).

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

SUDO := $(shell [ "$$(id -u)" = 0 ] || command -v sudo)
APT_INSTALL := $(SUDO) apt-get update -qq && $(SUDO) apt-get install -y -qq

# What a cluster needs of the system, and what its tests need, too. HAProxy is not on everybody's path.
export PATH := $(PATH):/usr/sbin
CLUSTER_PROGRAMS := redis-server haproxy openssl
CLUSTER_PACKAGES := redis-server haproxy openssl
TEST_PROGRAMS := $(CLUSTER_PROGRAMS) curl chromium chromedriver
TEST_PACKAGES := $(CLUSTER_PACKAGES) curl chromium chromium-driver

.PHONY: run test cluster lint clean FORCE

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

# Looked at each time, which takes a tenth of a second: an environment can be moved, or its Python be upgraded.
$(VENV)/%.stamp: FORCE
	@for python in $(PYTHON) $(BIN)/python; do \
	if $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2> /dev/null; then \
	exec $$python tools/environment.py $(VENV) $*; fi; done; \
	echo "PushUp needs Python 3.11 or later, and $(PYTHON) is not. Try make PYTHON=python3.13 ..."; exit 1

FORCE:

clean:
	rm -rf $(VENV) $(VENV).old .mypy_cache .pytest_cache .ruff_cache .hypothesis
