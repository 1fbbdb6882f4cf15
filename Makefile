# Each target makes what it needs in .venv, from nothing but Python >= 3.11 and a package index.

VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $$p && break; \
	done)
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt
PINS := pyproject.toml constraints.txt
WORKERS ?= 2

export OPENBLAS_NUM_THREADS ?= 1

.DEFAULT_GOAL := help
.PHONY: help demo test suite test-cluster test-gpu test-lowest lint bench arena experiments case-study docs pictures results package release-check clean

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*##  *\(.*\)/  make \1\t\2/p' Makefile

demo: $(VENV)/.run  ## the whole story in a minute or two: act, learn, certify (page under out/)
	$(BIN)/latentmdp demo --out out

# The type checker works while the tests are collected; whichever fails, this fails.
test: $(VENV)/.dev  ## lint, and the whole test suite
	@$(MAKE) --no-print-directory --jobs 2 lint suite

suite: $(VENV)/.dev
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

test-cluster: $(VENV)/.cluster  ## the tests of engines.Dask, on workers of this machine
	$(BIN)/python -m pytest tests/engines/test_dask.py

test-gpu: $(VENV)/.dev  ## the tests of device="cuda" on the GPU of this machine
	$(BIN)/python -c "from latentmdp.engines.cuda import gpu; gpu()"
	$(BIN)/python -m pytest tests/gpu

# A virtual environment of its own, and of no other target: it is made anew when the promises change.
test-lowest: build/lowest/.made  ## the suite with the lowest versions that pyproject.toml promises
	build/lowest/bin/python -m pytest -n $(WORKERS) --dist worksteal

lint: $(VENV)/.dev  ## ruff and mypy (strict) on the package
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.dev  ## every benchmark: ratios against peers and the machine's limit
	@set -e; for file in $$(grep -l __main__ benchmarks/*.py | grep -Ev 'groups_in_logs|interval_coverage|limits|real_panels'); do \
		echo "== $$file"; $(BIN)/python "$$file"; done

arena: $(VENV)/.dev  ## every learner on every task, against certified optima (hours)
	cd benchmarks && ../$(BIN)/python -m arena --out ../out

experiments: $(VENV)/.run  ## every experiment of the paper, in full
	@set -e; for name in fig1a fig1b fig2 lower-bound; do \
		echo "== $$name"; $(BIN)/latentmdp reproduce $$name; done

case-study: $(VENV)/.examples  ## groups in a panel of real households, with held-out numbers and pictures
	$(BIN)/python examples/yogurt_panel.py --pictures docs/pictures

docs: $(VENV)/.docs  ## the documentation, a static site under site/ (VERSIONED=1: beside other versions)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo "open site/index.html"

pictures: $(VENV)/.run  ## the pictures of the docs, and docs/results.md from what is under out/
	$(BIN)/python docs/tools/pictures.py docs/pictures
	$(BIN)/python docs/tools/results.py out docs

# SARSOP=path/to/pomdpsol compares planners with it.
results: experiments arena  ## every long run (hours; each goes on where it was stopped), then the pictures
	$(BIN)/python benchmarks/planning_gap.py --out out/planning_gap.json $(if $(SARSOP),--sarsop $(SARSOP))
	$(BIN)/python benchmarks/interval_coverage.py --out out/coverage --to 120 --jobs $(WORKERS)
	$(MAKE) pictures

package: $(VENV)/.dev  ## wheel and sdist under dist/
	rm -rf dist
	$(BIN)/python -m build --no-isolation

# The lowest and the newest Python of this machine.
PYTHONS ?= $(shell for p in python3.11 python3.12 python3.13 python3.14 python3; do \
	v=$$($$p -c 'import sys; v = sys.version_info; v < (3, 11) and sys.exit(1); print("%d.%d" % v[:2])' \
	2>/dev/null) && echo "$$v $$p"; \
	done | sort -V -u -k 1,1 | cut -d ' ' -f 2 | sed -n '1p;$$p')

release-check: package  ## wheel and sdist, each installed in an empty environment and tried
	@set -e; for python in $(sort $(PYTHONS)); do for file in dist/*.whl dist/*.tar.gz; do \
		echo "== $$file on $$($$python --version)"; rm -rf build/empty; $$python -m venv build/empty; \
		build/empty/bin/python -m pip --disable-pip-version-check install --quiet \
			--constraint constraints.txt $$file; \
		(cd build && ../tests/release_check.sh empty/bin); done; done

clean:  ## remove what the other targets made
	rm -rf $(VENV) out site dist build .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find src tests benchmarks examples -name __pycache__ -type d -exec rm -rf {} +

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "latentmdp needs Python 3.11 or newer, and found none"; exit 1; }
	$(PYTHON) -m venv $(VENV)

# An editable install needs the build backend; with it in place, pip builds nothing in isolation.
$(VENV)/.run: $(BIN)/python $(PINS)
	$(PIP) hatchling editables
	$(PIP) --no-build-isolation --editable .
	@touch $@

# One call for all that the tests need, with what $(VENV)/.run installs.
$(VENV)/.dev: $(BIN)/python $(PINS)
	$(PIP) hatchling editables
	$(PIP) --no-build-isolation --editable '.[dev]'
	@touch $(VENV)/.run $@

build/lowest/.made: pyproject.toml tests/lowest_versions.py
	rm -rf build/lowest
	$(PYTHON) -m venv build/lowest
	build/lowest/bin/python tests/lowest_versions.py > build/lowest/constraints.txt
	build/lowest/bin/python -m pip --disable-pip-version-check install --quiet \
		--constraint build/lowest/constraints.txt --editable '.[dev]'
	@touch $@

# gym, which icu-sepsis needs, comes as sources, and builds with setuptools and wheel.
$(VENV)/.examples: $(VENV)/.run
	$(PIP) setuptools wheel
	$(PIP) --no-build-isolation --editable '.[examples]'
	@touch $@

$(VENV)/.cluster: $(VENV)/.dev
	$(PIP) --no-build-isolation --editable '.[cluster]'
	@touch $@

$(VENV)/.docs: $(VENV)/.run
	$(PIP) --no-build-isolation --editable '.[docs]'
	@touch $@
