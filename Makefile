# What a developer types. `make demo` and `make test` need only python3 >= 3.10 with venv, and make.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
# The tiers share two cores: one at a time.
.NOTPARALLEL:

VENV := .venv
BIN := $(VENV)/bin
# The first Python that is new enough; `make PYTHON=python3.12 ...` chooses another.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 python3.10; do \
  $$p -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null && echo $$p && break; done)
# The pinned versions, of every Python.
LOCK := requirements/dev.txt
AUDIT := .venv-audit
VULN ?= v1.9.0
# Seconds that a tier may take before it is stopped as failed; generous on two busy cores.
BUDGET_UNIT ?= 420
BUDGET_EMBEDDED ?= 1000
BUDGET_SLURM ?= 900
BUDGET_DOCS ?= 300
BUDGET_SSH ?= 420
BUDGET_CONTAINERS ?= 600
BUDGET_SUBMITIT ?= 240
BUDGET_BRIDGE ?= 600
BUDGET_BROWSER ?= 300
SOAK_MINUTES ?= 30
# More arguments for pytest: make test-unit PYTEST_ARGS="-k units -x"
PYTEST_ARGS ?=
PYTEST := $(BIN)/python -m pytest --durations=12 $(PYTEST_ARGS)
# On a busy machine any limit may be missed: up to three failures are run once more, alone, and named.
REAL := $(BIN)/python hack/run-tests --durations=12 $(PYTEST_ARGS)
NOT_LONG := -m "not campaign"
# Jobs mostly wait, so several tests at a time; on real Slurm each worker has a cluster of its own.
WORKERS ?= 3

.PHONY: help demo install dev packages check lint format typecheck test test-full test-unit coverage \
  test-embedded test-slurm test-ssh test-submitit test-containers test-bridge test-browser \
  test-docs kubernetes slurm-rest faults attack soak bench docs site lint-workflows lock dist \
  wheel clean audit sbom

help:  ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

demo: $(VENV)/.installed  ## install into .venv and run a few jobs on the embedded scheduler
	@$(BIN)/python examples/demo.py

install: $(VENV)/.installed  ## install the package from this directory into .venv

dev: $(VENV)/.dev  ## the same, with the pinned tools for tests

$(BIN)/python:
	@if [ -z "$(PYTHON)" ]; then \
	  echo "Python 3.10 or newer is needed; found $$(python3 --version 2>&1 || true)" >&2; \
	  echo "  fix: install it, or name it: make PYTHON=/path/to/python3 ..." >&2; exit 1; fi
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "$(PYTHON) cannot make a virtual environment" >&2; \
	  echo "  fix: on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }

# Every file that an index gives is compared with its hash, also those that build the package.
BY_HASH := -m pip install --quiet --require-hashes
$(VENV)/.installed: $(BIN)/python pyproject.toml requirements/base.txt requirements/build.txt
	@echo "installing into $(VENV)"
	@$(BIN)/python $(BY_HASH) -r requirements/base.txt -r requirements/build.txt
	@$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.installed $(LOCK)
	@echo "installing the tools for tests into $(VENV)"
	@$(BIN)/python $(BY_HASH) -r $(LOCK)
	@touch $@

packages:  ## Slurm, munge, MariaDB, sshd and podman for the tests (installs on Debian and Ubuntu as root)
	@hack/setup-packages

check: lint typecheck  ## the fast round while you work: lint, types, unit tests without packages and root
	$(BIN)/python -m pytest tests/unit -m "not packages and not slow and not campaign" -q -n auto \
	  --maxfail=20 $(PYTEST_ARGS)

lint: dev  ## ruff check, ruff format --check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

typecheck: dev  ## mypy: strict for the package, bodies of all functions for the tests
	$(BIN)/mypy
	hack/typecheck-tests

test: kubernetes dev slurm-rest  ## everything that CI runs: lint, types and all tiers of tests
	@rm -f tests/unsteady.txt
	@$(MAKE) --no-print-directory --keep-going lint typecheck \
	  test-unit test-embedded test-docs test-slurm test-ssh test-submitit test-browser \
	  test-containers test-bridge

# What test-bridge needs, made once in the background at low priority while the other tiers run; the
# tier waits for it, and shows what goes wrong.
kubernetes:
	@nice -n 19 setsid hack/build-kubernetes > /dev/null 2>&1 < /dev/null &

slurm-rest: packages
	@nice -n 19 setsid hack/build-slurm-rest > /dev/null 2>&1 < /dev/null &

test-full full-%: override PYTEST_ARGS += --full
test-full full-%: BUDGET_UNIT = 1200
test-full full-%: BUDGET_EMBEDDED = 2400
test-full full-%: BUDGET_SLURM = 3600
test-full full-%: BUDGET_DOCS = 1200
test-full full-%: BUDGET_SSH = 2400
test-full full-%: BUDGET_BRIDGE = 3600
test-full full-%: BUDGET_CONTAINERS = 2400
test-full full-%: BUDGET_SUBMITIT = 2400
test-full full-%: BUDGET_BROWSER = 2400
export PYTEST_ARGS BUDGET_UNIT BUDGET_EMBEDDED BUDGET_SLURM BUDGET_DOCS BUDGET_SSH \
  BUDGET_CONTAINERS BUDGET_SUBMITIT BUDGET_BRIDGE BUDGET_BROWSER
test-full: test attack faults bench  ## every case, all attacks, the long fault campaign and the benchmarks

full-%:  # one tier of test-full, such as full-test-slurm
	@$(MAKE) --no-print-directory $*

test-unit: dev  ## pure parts, no scheduler
	$(REAL) tests/unit -n 2 --session-timeout=$(BUDGET_UNIT)

test-embedded: dev  ## jobs on the embedded scheduler
	$(REAL) tests/embedded -n $(WORKERS) --dist=loadgroup --session-timeout=$(BUDGET_EMBEDDED)

test-docs: dev  ## every code block of README and docs, every example
	$(REAL) tests/docs -n $(WORKERS) --session-timeout=$(BUDGET_DOCS)

test-slurm: dev packages  ## jobs and faults on a real Slurm of four nodes
	$(REAL) tests/slurm tests/faults tests/monitor $(NOT_LONG) -n $(WORKERS) --dist=loadgroup \
	  --session-timeout=$(BUDGET_SLURM)

test-ssh: dev packages  ## a real Slurm behind a real sshd, and a network that breaks
	$(REAL) tests/ssh -n $(WORKERS) --session-timeout=$(BUDGET_SSH)

test-submitit: dev packages  ## the drop-in for submitit, on this machine and on a real Slurm
	$(REAL) tests/submitit -n $(WORKERS) --dist=loadfile --session-timeout=$(BUDGET_SUBMITIT)

test-browser: dev packages  ## the dashboard in a real Chromium, on a real Slurm
	$(REAL) tests/browser --session-timeout=$(BUDGET_BROWSER)

test-containers: dev packages  ## images built, pushed and run on a real Slurm; clusters in containers
	for tier in tests/containers tests/stack; do \
	  $(REAL) $$tier --session-timeout=$(BUDGET_CONTAINERS) || exit; done

test: export BUILD_PATIENCE ?= 90
test-full full-%: export BUILD_PATIENCE = 3600
test-bridge: dev packages  ## pods on a real Kubernetes control plane, placed by a real Slurm
	@hack/build-slurm-rest
	@hack/build-kubernetes || [ $$? = 3 ]  # 3: without go the tier says why it is skipped
	$(REAL) tests/bridge --session-timeout=$(BUDGET_BRIDGE)

attack: dev packages  ## try every way in that was ever found, on a new installation, as two users
	$(BIN)/python hack/attack $(if $(filter -n,$(PYTEST_ARGS)),,-n 2) --dist=loadgroup $(PYTEST_ARGS)

# Each run has a seed: the first one is CAMPAIGN_SEED. A run that failed says how to repeat it.
CAMPAIGN_RUNS ?= 200
CAMPAIGN_SEED ?= $(shell date +%s)
faults: dev packages  ## CAMPAIGN_RUNS small workloads on a real Slurm, with random faults
	@hack/setup-packages bindfs
	CAMPAIGN_RUNS=$(CAMPAIGN_RUNS) CAMPAIGN_SEED=$(CAMPAIGN_SEED) \
	  $(PYTEST) tests/faults -m campaign -n $(WORKERS)

soak: dev packages  ## ten viewers for ten minutes, then the tiers with jobs for SOAK_MINUTES
	$(PYTEST) tests/monitor -m campaign --timeout=1800
	@end=$$((SECONDS + 60 * $(SOAK_MINUTES))); round=0; \
	while [ $$SECONDS -lt $$end ]; do \
	  round=$$((round + 1)); echo "soak: round $$round"; \
	  $(MAKE) --no-print-directory test-embedded test-slurm; \
	done
	$(REAL) tests/browser --full -k ten_minutes

coverage: dev  ## branches of src that the unit and embedded tiers run, modules under 80 % last
	rm -f .coverage .coverage.*
	@echo "A test that counts imports or times a start may fail here; only the numbers count."
	-$(BIN)/coverage run -m pytest tests/unit -q -n 2 --timeout=300 $(PYTEST_ARGS)
	-$(BIN)/coverage run -m pytest tests/embedded -q -n $(WORKERS) --dist=loadgroup --timeout=300 $(PYTEST_ARGS)
	$(BIN)/coverage combine -q
	$(BIN)/coverage report --sort=-cover --skip-covered

bench: dev packages  ## the numbers, each beside its peer
	$(BIN)/python benchmarks/run.py

docs: dev  ## write the generated tables and pictures of docs/ anew
	$(BIN)/python docs/tables.py
	$(BIN)/python docs/diagrams.py

site: dev  ## the documentation as a site in site/, strictly
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "open site/index.html, or with the search: python3 -m http.server --directory site"

format: dev  ## format the code
	$(BIN)/ruff format .

lint-workflows: dev  ## what GitHub reads: actionlint, and the schema of each file
	@hack/lint-workflows

# Pins that still fit stay; UPGRADE=--upgrade takes the newest of everything.
lock: dev  ## pin what pyproject.toml names, for every Python and by hash, in requirements/
	@$(PIN) --all-extras --group dev --custom-compile-command "make lock" $(UPGRADE) \
	  pyproject.toml -o $(LOCK)
	@$(PIN) --no-header --all-extras -c $(LOCK) pyproject.toml -o requirements/runtime.txt
	@$(PIN) --no-header -c $(LOCK) pyproject.toml -o requirements/base.txt
	@$(PIN) --no-header --extra bridge -c $(LOCK) pyproject.toml -o requirements/bridge.txt
	@printf 'hatchling\neditables\n' | $(PIN) --no-header -c $(LOCK) $(UPGRADE) - \
	  -o requirements/build.txt
	@printf 'bandit\ncyclonedx-bom\npip-audit\n' | $(PIN) --no-header $(UPGRADE) - \
	  -o requirements/audit.txt
	@$(BIN)/python hack/pin-uv
PIN := $(BIN)/uv pip compile --quiet --universal --python-version 3.10 --no-annotate --generate-hashes

dist: dev  ## build the sdist and the wheel into dist/; TAG=v1.2.3 has to be the version
	rm -rf dist
	$(BIN)/uv build --quiet --require-hashes --build-constraints requirements/build.txt
	@[ -z "$(TAG)" ] || [ -e "dist/slurm_sdk-$(TAG:v%=%)-py3-none-any.whl" ] || { \
	  echo "the tag $(TAG) is not the version in src/slurm/__init__.py; built: $$(ls dist)" >&2; \
	  exit 1; }
	@$(MAKE) --no-print-directory sbom

sbom: $(AUDIT)/.installed  ## what the package brings with it, as CycloneDX, in dist/
	@mkdir -p dist
	@$(AUDIT)/bin/cyclonedx-py requirements requirements/runtime.txt --pyproject pyproject.toml \
	  --mc-type library --output-reproducible --of JSON -o dist/slurm_sdk.cdx.json

# Tools of their own, by hash, so that they change nothing of what they look at.
$(AUDIT)/.installed: requirements/audit.txt $(BIN)/python
	@$(PYTHON) -m venv --clear $(AUDIT)
	@$(AUDIT)/bin/python -m pip install --quiet --require-hashes -r requirements/audit.txt
	@touch $@

# Skipped, each held by tests of its own: B301 and B403 pickles (every one behind a check of trust),
# B102 and B307 (code of the user's own), B108 (places that are named, not used), B310 (addresses of
# the user's), B608 (SQL of our own words).
audit: $(AUDIT)/.installed  ## known holes in what we depend on, and what bandit says of our code
	$(AUDIT)/bin/bandit -q -r src -ll -s B102,B108,B301,B307,B310,B403,B608
	$(AUDIT)/bin/pip-audit --strict --disable-pip --require-hashes -r requirements/runtime.txt
	$(AUDIT)/bin/pip-audit --strict --disable-pip --require-hashes -r $(LOCK)
	@for module in kubernetes charts; do \
	  (cd tests/bridge/$$module && go run golang.org/x/vuln/cmd/govulncheck@$(VULN) -scan module); \
	done

wheel: $(VENV)/.installed  ## build dist/slurm_sdk-*.whl
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .

clean:  ## remove .venv and what tools left behind
	rm -rf $(VENV) $(AUDIT) dist build site .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage* \
	  tests/unsteady.txt
	find src tests examples benchmarks docs -name __pycache__ -type d -prune -exec rm -rf {} +
