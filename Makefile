# PYTHON makes the environment; TORCH is what pip is asked for. On Linux with a GPU the default is
# what you want; `make run TORCH="torch --index-url https://download.pytorch.org/whl/cpu"` takes the
# small CPU build instead.
PYTHON ?= python3
TORCH ?= torch==2.13.0
BIN := .venv/bin

.DEFAULT_GOAL := help
.PHONY: help setup run test lint format smoke clean

help: ## List the targets.
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

setup: .venv/installed ## Make .venv and install mixbench into it.

run: setup ## Train the lattice on multi-query associative recall.
	$(BIN)/mixbench mixer=lattice dataset=mqar

test: setup ## Run the tests.
	$(BIN)/python -m pytest

lint: setup ## Check style, format and types.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup ## Put the sources into the project's format.
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

smoke: setup ## Two mixers, two learning rates, twenty steps: does everything run?
	$(BIN)/mixbench sweep=smoke

clean: ## Remove .venv and caches; outputs stay.
	rm -rf .venv build dist *.egg-info .pytest_cache .ruff_cache .mypy_cache

.venv/installed: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install $(TORCH)
	$(BIN)/python -m pip install -e '.[dev]'
	touch $@
