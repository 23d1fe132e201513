# `make run` serves on http://127.0.0.1:8080, `make test` checks everything that takes minutes at most. Whatever is missing
# is set up. `make cluster` runs Redis, four nodes, HAProxy and the example application (deploy/README.md).
#
# | command | a developer runs it | what it does |
# |---|---|---|
# | make check | after each change | lint, types, every test that needs no process |
# | make test | before each commit | that, and the tests with real processes |
# | make test-all | CI | that, many more random runs, the experiments, containers; it measures coverage |

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# With several processes, tests of one group stay together (tests/conftest.py). Tests with servers mostly wait: on two
# cores, three of them at a time keep one core busy.
CORES := $(shell getconf _NPROCESSORS_ONLN)
WORKERS := $(CORES)
WITH_SERVERS := $(shell expr 2 \* $(CORES) + 1)
PYTEST = $(BIN)/pytest -n $(WORKERS) --maxprocesses 8 --dist loadgroup

SUDO := $(shell [ "$$(id -u)" = 0 ] || command -v sudo)
APT_INSTALL := $(SUDO) apt-get update -qq && $(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq

# What a cluster needs of the system, and what tests need (those with containers install theirs themselves). HAProxy is
# not on everybody's path, and Debian's PostgreSQL on nobody's.
export PATH := $(PATH):/usr/sbin:/sbin$(addprefix :,$(lastword $(wildcard /usr/lib/postgresql/*/bin)))
CLUSTER_PROGRAMS := redis-server haproxy openssl
CLUSTER_PACKAGES := redis-server haproxy openssl
TEST_PROGRAMS := $(CLUSTER_PROGRAMS) nginx curl chromium chromedriver node initdb dnsmasq slapd nft unshare gcc
TEST_PACKAGES := $(CLUSTER_PACKAGES) nginx curl chromium chromium-driver nodejs postgresql dnsmasq-base slapd nftables \
	util-linux gcc libc6-dev
LONG_PROGRAMS := firefox-esr WebKitWebDriver Xvfb npm promtool prometheus-alertmanager
LONG_PACKAGES := firefox-esr webkit2gtk-driver xvfb npm prometheus prometheus-alertmanager

# $(call need,PROGRAMS,PACKAGES): install the packages if a program is missing, and fail if that fails.
need = @for program in $(1); do command -v $$program > /dev/null || missing="$$missing $$program"; done; \
	[ -z "$$missing" ] || { $(APT_INSTALL) $(2); } || \
	{ echo "Missing:$$missing. Install these first: $(2)"; exit 1; }

# Where this is set (container images do), each of the thousand processes that tests start would compile PushUp anew.
unexport PYTHONDONTWRITEBYTECODE

# Where `make chart` puts the package of the Helm chart.
CHARTS := build/chart

.PHONY: run check check-inside check-browser check-lowest compiled test-compiled check-types coverage test test-all cluster lint
.PHONY: wheels npm deb constraints audit chart chart-package site clean FORCE

run: $(VENV)/run.stamp
	$(BIN)/pushup serve

check: lint check-inside check-browser

check-inside: $(VENV)/test.stamp
	$(PYTEST) -m "not processes and not thorough"

# pushup.js; `make test` runs these too, by tests/browser/test_browser.py.
check-browser:
	$(call need,node,nodejs)
	node --test tests/browser/*.test.js

# Its types by TypeScript, and those of the Python client by pyright. Both are downloaded into tests/browser. Not part of
# `make check`.
check-types: $(VENV)/test.stamp
	$(call need,node npm,nodejs npm)
	cd tests/browser && npm install --no-audit --no-fund --silent && npx tsc -p .
	tests/browser/node_modules/.bin/pyright --pythonpath $(BIN)/python -p tests/client/pyrightconfig.json

# As check-inside, with the lowest versions of packages that pyproject.toml allows; the tools of the tests are the newest.
check-lowest: $(VENV)/test.stamp
	mkdir -p build && rm -rf .venv-lowest
	$(BIN)/uv pip compile --quiet --resolution lowest-direct --extra tls --extra example --extra loadtest \
		--output-file build/lowest.txt pyproject.toml
	$(MAKE) --no-print-directory check-inside VENV=.venv-lowest PYTHON=$(BIN)/python PIP_CONSTRAINT=build/lowest.txt

# PushUp compiled, in a copy of this project (docs/internals/decisions/0019-compiled.md).
compiled: $(VENV)/test.stamp
	$(call need,git gcc,git gcc libc6-dev)
	$(BIN)/python deploy/compiled.py $(VENV)/compiled

# What decides about bytes and messages, and the simulation; in CI, everything that needs no process.
COMPILED_TESTS := not processes and not interpreted and not thorough
TESTS := tests/core tests/net tests/simulation tests/test_node.py tests/test_compiled.py
test-compiled: compiled
	cd $(VENV)/compiled && PUSHUP_FORM=compiled "$(CURDIR)"/$(PYTEST) -m "$(COMPILED_TESTS)" $(TESTS)

# Of core and broadcast, by their tests; the threshold is in pyproject.toml.
COVERING := tests/core tests/broadcast tests/simulation tests/workers tests/test_formats.py tests/test_node.py
coverage: $(VENV)/test.stamp
	$(PYTEST) -m "not processes and not thorough" --cov --cov-report term $(COVERING)

test: WORKERS = $(WITH_SERVERS)
test: lint
	$(call need,$(TEST_PROGRAMS),$(TEST_PACKAGES))
	$(PYTEST) -m "not long and not containers and not thorough"
	@$(MAKE) --no-print-directory test-compiled

# In parts, for measuring coverage makes tests twice as slow. All are run before it fails. Only the compiled part has the
# tests marked `thorough`. A test with processes that fails is run once more, alone (.ci/again.py).
test-all: lint
	$(call need,$(TEST_PROGRAMS) $(LONG_PROGRAMS),$(TEST_PACKAGES) $(LONG_PACKAGES))
	@$(MAKE) --no-print-directory coverage || failed="make coverage"; \
	$(PYTEST) -m "not processes and not thorough" $(COVERING:%=--ignore %) || failed="$$failed, pytest -m \"not processes\""; \
	$(MAKE) --no-print-directory test-compiled TESTS=tests COMPILED_TESTS="not processes and not interpreted" || failed="$$failed, make test-compiled"; \
	$(BIN)/python .ci/again.py $(PYTEST) -n $(WITH_SERVERS) -m processes || failed="$$failed, pytest -m processes"; \
	[ -z "$$failed" ] || { echo "failed, see above: $${failed#, }"; exit 1; }

# The Helm chart: lint, render, compare with Kubernetes' schemas, run what is rendered, and package. The first time, Go
# builds Helm, for minutes.
chart: $(VENV)/test.stamp
	$(call need,go redis-server haproxy openssl,golang redis-server haproxy openssl)
	$(BIN)/pytest -q tests/test_chart_files.py tests/deploy/test_chart.py
	@$(MAKE) --no-print-directory chart-package

# With the version of PushUp, which Chart.yaml does not have.
chart-package:
	version=$$($(BIN)/python -c 'import pushup; print(pushup.__version__)') && \
	$$(sh tests/deploy/chart/install.sh)/helm package deploy/chart --destination $(CHARTS) \
	--version $$version --app-version $$version

cluster: $(VENV)/cluster.stamp
	$(call need,$(CLUSTER_PROGRAMS),$(CLUSTER_PACKAGES))
	@exec $(BIN)/python -m deploy.local

lint: $(VENV)/test.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-workflows .github/workflows/ci.yml .github/workflows/release.yml .github/workflows/chart.yml .github/workflows/site.yml
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.dependabot .github/dependabot.yml
	$(BIN)/pre-commit validate-config

# What a release publishes (docs/internals/decisions/0024-artifacts.md): build/dist for PyPI, build/npm for npm,
# build/deb for this machine's Debian (0026-debian.md).
wheels: $(VENV)/test.stamp
	$(call need,git gcc,git gcc libc6-dev)
	deploy/release/wheels.sh $(BIN) build/dist

npm: $(VENV)/run.stamp
	$(call need,node npm,nodejs npm)
	deploy/release/npm.sh $(BIN) build/npm

deb:
	$(call need,git dpkg-buildpackage,git dpkg-dev)
	SUDO=$(SUDO) deploy/release/deb.sh build/deb

# deploy/constraints.txt with the newest versions; and whether any version in it has a known vulnerability.
constraints: $(VENV)/test.stamp
	deploy/release/constraints.sh $(BIN)

audit: $(VENV)/test.stamp
	$(BIN)/uv tool run pip-audit@2.10.1 --strict --require-hashes --disable-pip --requirement deploy/constraints.txt

# The documentation as a site, in build/site (docs/internals/decisions/0028-a-site.md). A release gives its VERSION, and INTO,
# the folder of all versions.
site: $(VENV)/test.stamp
	$(BIN)/python -m deploy.site --version $(or $(VERSION),main) $(if $(INTO),--into $(INTO))

# Looked at each time, which takes a tenth of a second: an environment can be moved, or its Python be upgraded.
$(VENV)/%.stamp: FORCE
	@for python in $(PYTHON) $(BIN)/python; do \
	if $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2> /dev/null; then \
	exec $$python deploy/environment.py $(VENV) $*; fi; done; \
	echo "PushUp needs Python 3.11 or later, and $(PYTHON) is not. Try make PYTHON=python3.13 ..."; exit 1

FORCE:

clean:
	rm -rf $(VENV) $(VENV).old .venv-lowest build .coverage .mypy_cache .pytest_cache .ruff_cache .hypothesis
