PYTHON ?= python3
BIN := .venv/bin
# Tests start hundreds of processes, and each would compile all modules anew.
export PYTHONDONTWRITEBYTECODE =

.PHONY: help setup servers run quick test check docs matrix bench chaos mutants fuzz simulate soak clean

help: ## Say what each target does.
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' Makefile | expand -t 10

# Not a file target: scripts/setup itself sees when there is nothing to do, for every venv alike.
setup:
	@scripts/setup .venv $(PYTHON)

servers: setup
	@scripts/servers .venv/.servers

# A tenth of what developers need; their environment serves too, where it is there.
DEMO := $(if $(wildcard .venv/.stamp),.venv,.venvs/demo)
DEMO_LOCK := $(if $(wildcard .venv/.stamp),developers,demo)

run: ## From a sample document to a battery passport, live on a page; KEEP=1 goes on with the last one.
	@scripts/setup $(DEMO) $(PYTHON) $(DEMO_LOCK)
	$(DEMO)/bin/python -m examples.battery_passport $(if $(KEEP),--keep)

quick: check ## Check, then run the quick tests: no servers, no other processes.
	$(BIN)/pytest -q -n 4 --quick -p no:schemathesis

# More processes than cores, since half of the time the tests wait.
test: servers check ## Check, then run every test but the long proofs.
	$(BIN)/pytest -n 4 --dist loadgroup

check: setup ## Lint, formatting, types and layers.
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

docs: setup ## Build the documentation, strictly, into build/docs/site.
	$(BIN)/python -m scripts.docs

matrix: servers ## Run the conformance tests on the other Pythons and settings.
	@scripts/matrix

bench: servers ## Measure, and write docs/benchmarks.md.
	$(BIN)/python -m benchmarks
	$(BIN)/python -m scripts.docs.made
	$(BIN)/python -m scripts.docs.chart

# One at a time, so that the proofs do not starve each other.
chaos: servers ## Run the long proofs.
	$(BIN)/pytest -m chaos --timeout 1800

mutants: servers ## Kill the mutants anew, and write what became of them.
	$(BIN)/python -m tests.mutants --processes 2 $(if $(ONLY),--only "$(ONLY)")

simulate: setup ## Run a SEED, or seeds for some MINUTES, on each STORE in virtual time.
	$(BIN)/python -m gantline.testing.simulation $(if $(SEED),--seed $(SEED)) \
		$(if $(MINUTES),--minutes $(MINUTES)) $(if $(STORE),--store $(STORE)) \
		$(if $(STEPS),--steps $(STEPS)) $(if $(STREAMS),--streams $(STREAMS))

soak: setup ## The same for a night: eight hours.
	$(BIN)/python -m gantline.testing.simulation --seed 100000 --minutes 480 \
		--steps 240 --streams 48

# Each test has its share of the minutes; what it prints with GANTLINE_FUZZ_SEED runs it again.
fuzz: servers ## Fuzz with new random inputs, for MINUTES=10 in all.
	GANTLINE_FUZZ_MINUTES=$(or $(MINUTES),10) $(BIN)/pytest tests/fuzz -s --timeout 0

clean: ## Remove all that the other targets made.
	rm -rf .venv .venvs .demo build dist
	rm -rf .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
