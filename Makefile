# `make train` trains the embedded example, `make test` runs every test this machine can run.
# Both first make .venv and install the pinned dependencies, once.

VENV  ?= .venv
BIN   := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP   := $(BIN)/python -m pip --disable-pip-version-check -qq

# Set PYTHON=/path/to/python to choose the interpreter; any 3.11 or later will do.
PYTHON ?=
PYTHONS := $(if $(PYTHON),$(PYTHON),python3.11 python3.12 python3.13 python3 python)
IS_RECENT := import sys; sys.exit(sys.version_info < (3, 11))

.DEFAULT_GOAL := help
.PHONY: help setup train test check format clean

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r name what; do \
	  printf '%-14s %s\n' "$$name" "$$what"; done

setup: $(STAMP) ## make .venv and install the pinned dependencies (the other targets call it)

train: setup ## train the embedded example; more settings in ARGS="run.steps=20 --plain"
	@$(BIN)/trimtab train quickstart $(ARGS)

test: setup ## run all tests; NO_SKIPS=1 turns skips (GPU ones apart) into failures
	@NO_SKIPS=$(NO_SKIPS) $(BIN)/python -m pytest -q -rs $(ARGS)

check: setup ## lint, format, types, layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright
	$(BIN)/lint-imports

format: setup ## put every file in order
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove .venv and the caches (runs stay)
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis .import_linter_cache

$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || { \
	  for python in $(PYTHONS); do \
	    if "$$python" -c '$(IS_RECENT)' >/dev/null 2>&1; then found=$$python; break; fi; \
	  done; \
	  test -n "$$found" || { echo "No Python 3.11 or later among: $(PYTHONS). Name one: make setup PYTHON=/path/to/python" >&2; exit 1; }; \
	  echo "Making $(VENV) with $$($$found --version)"; \
	  "$$found" -m venv $(VENV) || { rm -rf $(VENV); exit 1; }; }
	@echo "Installing the pinned dependencies, 1 of 2: PyTorch"
	@$(PIP) install -c constraints.txt torch
	@echo "Installing the pinned dependencies, 2 of 2: everything else"
	@$(PIP) install -c constraints.txt -e '.[dev,gguf]'
	@touch $@
