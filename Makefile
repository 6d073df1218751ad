# Every target sets up what it needs: on a fresh machine python3 and make are enough.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# mypy refuses a folder without Python files.
CODE := $(strip $(foreach folder,src tests bench conformance examples scripts,\
	$(if $(shell find $(folder) -name '*.py' 2>/dev/null),$(folder))))
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help ready serve demo test test-all test-matrix test-pythons test-clients check format lock audit bench bench-gateway bench-load bench-tenants bench-soak conformance fuzz clean

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | while IFS='	' read -r name text; do \
		printf '  make %-14s %s\n' "$$name" "$$text"; done

ready:
	@$(PYTHON) scripts/environment.py $(VENV)

serve: ready ## run the gateway: on what is configured, or on a demo when nothing is (ARGS="--port 9000")
	@$(BIN)/python -m scripts.serve $(ARGS)

demo: ready ## see a conversation break without Moonshim and go well with it, in a minute
	@$(BIN)/python -m scripts.demo

test: ready ## run the quick tests, in two minutes or so (ARGS="-k name" goes to pytest)
	@$(BIN)/python -m scripts.run_tests $(ARGS)

test-all: ready ## run every test, and measure what the engine's cover (minutes)
	@$(BIN)/python -m scripts.run_tests --all $(ARGS)

test-matrix: ready ## every fault, generation, client and upstream dialect, and a table of what came of it (minutes)
	@MOONSHIM_MATRIX=full $(BIN)/python -m pytest -q -n $$(nproc) --dist worksteal tests/matrix $(ARGS)

test-pythons: ready ## run the quick tests on every other Python from 3.11 on that is here
	@$(BIN)/python -m scripts.run_tests --others $(ARGS)

test-clients: ready ## drive real agents and frameworks (Claude Code, Codex, agno, …) against a host that misbehaves (ARGS="codex")
	@$(BIN)/python -m scripts.test_clients $(ARGS)

check: ready ## format, lint, types, imports, file sizes, types of the public modules
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)
	$(BIN)/mypy --strict $(CODE)
	$(BIN)/lint-imports --no-logo
	$(BIN)/python scripts/check_file_sizes.py
	$(BIN)/python scripts/check_public_types.py

format: ready ## put format and import order right
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE)

lock: ready ## pin what development installs in requirements-dev.lock (ARGS="--upgrade": newer versions)
	@$(BIN)/python -m scripts.dependencies lock $(ARGS)

audit: ready ## look the pinned versions up in a vulnerability database (needs the internet)
	@$(BIN)/python -m scripts.dependencies audit $(ARGS)

bench: ready ## measure CPU and memory of the engine, as a table
	@$(BIN)/python -m bench.run $(ARGS)

bench-gateway: ready ## measure the gateway beside nginx (installs nginx where it may)
	@$(BIN)/python -m bench.gateway.run $(ARGS)

bench-load: ready ## 1,000 streams at once: errors, what is lost, memory for each
	@$(BIN)/python -m bench.gateway.load $(ARGS)

bench-tenants: ready ## what one tenant can do to another: latency alone and during attacks
	@$(BIN)/python -m bench.gateway.tenants $(ARGS)

bench-soak: ready ## 200,000 requests one after another: memory must stay flat (minutes)
	@$(BIN)/python -m bench.gateway.soak $(ARGS)

conformance: ready ## compare with the vectors of other projects, when they are there (MOONSHIM_VECTORS)
	@$(BIN)/python conformance/run.py $(ARGS)

fuzz: ready ## look for new faults with random, many more examples (minutes)
	@MOONSHIM_TEST_PROFILE=explore $(BIN)/python -m pytest -n auto -q -m hypothesis $(ARGS)

clean: ## remove everything that the other targets made
	rm -rf $(VENV) .venvs .clients dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .coverage*
	find src tests bench conformance scripts -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
