# Every target installs what it needs: a fresh machine only needs python3 and make.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# mypy refuses a folder without Python files.
CODE := $(strip $(foreach folder,src tests bench conformance examples scripts,\
	$(if $(shell find $(folder) -name '*.py' 2>/dev/null),$(folder))))
# MkDocs Material advertises its successor at every run unless the variable is set.
MKDOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help ready serve demo docs docs-serve test test-all test-matrix test-pythons test-clients test-servers check format lock audit release-check bench bench-compare bench-gateway bench-features bench-tenants bench-soak conformance fuzz clean

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | while IFS='	' read -r name text; do \
		printf '  make %-14s %s\n' "$$name" "$$text"; done

ready:
	@$(PYTHON) scripts/environment.py $(VENV)

serve: ready ## run the gateway with your configuration, or with a demo if there is none (ARGS="--port 9000")
	@$(BIN)/python -m scripts.serve $(ARGS)

demo: ready ## compare the same conversation with and without Moonshim, in one minute
	@$(BIN)/python -m scripts.demo $(ARGS)

test: ready ## run the quick tests, in about two minutes (ARGS="-k name" passes options to pytest)
	@$(BIN)/python -m scripts.run_tests $(ARGS)

test-all: ready ## run all tests and measure the coverage of the engine (several minutes)
	@$(BIN)/python -m scripts.run_tests --all $(ARGS)

test-matrix: ready ## test every fault with every generation, client and upstream dialect, and print a table (several minutes)
	@MOONSHIM_MATRIX=full $(BIN)/python -m pytest -q -n $$(nproc) --dist worksteal tests/matrix $(ARGS)

test-pythons: ready ## run the quick tests on every other installed Python from 3.11
	@$(BIN)/python -m scripts.run_tests --others $(ARGS)

test-clients: ready ## run real agents and frameworks (Claude Code, Codex, agno, …) against a faulty host (ARGS="codex", ARGS=built-in)
	@$(BIN)/python -m scripts.test_clients $(ARGS)

test-servers: ready ## measure what arrives of malformed calls from a real vLLM, which is installed in .servers (ARGS="k2 --number 120")
	@$(BIN)/python -m conformance.servers.measure $(ARGS)

check: ready ## check formatting, lint, types, imports, file sizes, prose, READMEs and files for GitHub
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)
	$(BIN)/mypy --strict $(CODE)
	$(BIN)/lint-imports --no-logo
	$(BIN)/python scripts/check_file_sizes.py
	$(BIN)/python scripts/check_public_types.py
	$(BIN)/python scripts/check_prose.py
	$(BIN)/python scripts/check_readmes.py
	$(BIN)/python scripts/check_github_files.py

docs: ready ## build the documentation site in build/site (warnings are errors)
	@$(MKDOCS) build --strict  # --quiet would hide warnings, and then they would not count
	@echo "The site is in build/site; open build/site/index.html or run make docs-serve."

docs-serve: ready ## serve the documentation site on http://127.0.0.1:8000 and rebuild it when a page changes
	@$(MKDOCS) serve --dev-addr 127.0.0.1:8000 --watch src

format: ready ## format the code and sort the imports
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE)

lock: ready ## pin all development dependencies in requirements-dev.lock (ARGS="--upgrade" updates them)
	@$(BIN)/python -m scripts.dependencies lock $(ARGS)

audit: ready ## check the pinned versions for known vulnerabilities (needs internet access)
	@$(BIN)/python -m scripts.dependencies audit $(ARGS)

release-check: ready ## build sdist and wheel into dist/, check them, install them in clean environments and try them
	@$(BIN)/python -m scripts.release_check $(ARGS)

bench: ready ## measure the CPU time and memory of the engine
	@$(BIN)/python -m bench.run $(ARGS)

bench-compare: ready ## show whether the engine is slower than in another commit (ARGS="main", ARGS="OLD NEW --pairs 9")
	@$(BIN)/python -m bench.compare $(ARGS)

bench-gateway: ready ## compare the gateway with nginx and other gateways, which are installed in .bench-peers (ARGS="--quick")
	@$(BIN)/python -m bench.gateway.run $(ARGS)

bench-features: ready ## measure what usage records and the inspector cost
	@$(BIN)/python -m bench.gateway.features $(ARGS)

bench-tenants: ready ## measure how one tenant affects another: latency alone and during attacks
	@$(BIN)/python -m bench.gateway.tenants $(ARGS)

bench-soak: ready ## send 200,000 requests in sequence: memory must stay flat (several minutes)
	@$(BIN)/python -m bench.gateway.soak $(ARGS)

conformance: ready ## compare with the test vectors of other projects, if present (MOONSHIM_VECTORS)
	@$(BIN)/python conformance/run.py $(ARGS)

fuzz: ready ## search for new bugs with many more random examples (several minutes)
	@MOONSHIM_TEST_PROFILE=explore $(BIN)/python -m pytest -n auto -q -m "hypothesis or fuzz" $(ARGS)

clean: ## remove everything that the other targets created
	rm -rf $(VENV) .venvs .clients .servers .bench-peers dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .coverage*
	find src tests bench conformance scripts -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
