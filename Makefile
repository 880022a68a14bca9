# PYTHON makes the environment; TORCH is what pip is asked for. On Linux with a GPU the default is
# what you want; `make run TORCH="torch --index-url https://download.pytorch.org/whl/cpu"` takes the
# small CPU build instead.
PYTHON ?= python3
TORCH ?= torch==2.13.0
BIN := .venv/bin

.DEFAULT_GOAL := help
.PHONY: help setup run test lint format smoke laplacian spiderweb lattice experiments \
	quick laplacian-quick spiderweb-quick lattice-quick calibration scale torture docs \
	check-joblib check-local check-slurm check-ray clean

help: ## List the targets.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

setup: .venv/installed ## Make .venv and install mixbench into it.

run: setup ## Train the lattice on multi-query associative recall.
	$(BIN)/mixbench mixer=lattice dataset=mqar

test: setup ## Run the tests.
	$(BIN)/python -m pytest

lint: setup ## Check style, format and types.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup ## Put the sources into the project's format.
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

smoke: setup ## Two mixers, two learning rates, twenty steps: does everything run?
	$(BIN)/mixbench sweep=smoke

# The published experiments: runs side by side, one thread each, report into docs/results.
COMPARE = $(BIN)/mixbench hydra/launcher=joblib sweep=$@ sweep.out=docs/results/$@

laplacian: setup ## Published experiment 1: 1 minute on two cores.
	$(COMPARE)

spiderweb: setup ## Published experiment 2 and its analytic table: 9 minutes.
	$(BIN)/python docs/results/spiderweb/analytic.py --out docs/results/spiderweb/analytic.md
	$(COMPARE)

lattice: setup ## Published experiment 3 and its ablations: about 22 minutes.
	$(COMPARE)

experiments: laplacian spiderweb lattice ## All three, into docs/results.

quick: laplacian-quick spiderweb-quick lattice-quick ## The same in small: does the way work?

laplacian-quick spiderweb-quick lattice-quick: setup
	$(BIN)/mixbench hydra/launcher=joblib sweep=$(subst -,_,$@)

torture: setup ## Kill a comparison 100 times with each launcher: half an hour.
	$(BIN)/python -m tests.stress.torture --out outputs/torture-$(shell date +%Y%m%d-%H%M%S)

scale: setup ## Ten thousand made-up runs: planning, skipping, reporting, timed. Some minutes.
	$(BIN)/python -m tests.stress.scale --out outputs/scale-$(shell date +%Y%m%d-%H%M%S)

# A comparison whole, then with runs that fail, interrupted, with a worker and with itself killed.
CHECK = $(BIN)/python -m tests.stress.launcher_check

check-joblib: setup ## Comparisons in joblib's workers, whole and disturbed.
	$(CHECK) joblib

check-local: setup ## The same with a process for each run.
	$(CHECK) submitit_local

check-slurm: setup ## The same on a one-node SLURM, where its packages are installed.
	$(CHECK) submitit_slurm
	$(CHECK) submitit_slurm --apart

check-ray: setup ## The same on a one-node Ray, where it is installed.
	$(CHECK) ray
	$(CHECK) ray --apart

calibration: setup ## Simulate the statistics: how often is a verdict wrong?
	$(BIN)/python -m tests.stress.calibration

docs: setup ## Write docs/configuration.md from conf/ and the sources.
	$(BIN)/python docs/reference.py > docs/configuration.md.new
	mv docs/configuration.md.new docs/configuration.md

clean: ## Remove .venv and caches; outputs stay.
	rm -rf .venv build dist *.egg-info .pytest_cache .ruff_cache .mypy_cache

.venv/installed: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install $(TORCH)
	$(BIN)/python -m pip install -e '.[dev]'
	touch $@
