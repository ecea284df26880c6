# The front door: `make help`. Needs Python 3.11 or newer, make and git; everything else goes to .venv.

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
UV ?= uv
BIN := .venv/bin
READY := .venv/.ready
MAKEFLAGS += --no-print-directory

.DEFAULT_GOAL := help
.PHONY: help prepare dev serve rollouts vllm test check format schemas lock bench continuity faults fuzz clean

help: ## this list
	@echo "make prepare ENV=math   then   make test"
	@echo
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):[^#]*## (.*)/  \1|\2/' | awk '{name = $$0; sub(/[|].*/, "", name); sub(/^[^|]*[|]/, ""); printf "%-14s%s\n", name, $$0}'

# The stamp is made last: an environment whose making was interrupted has none, and is made anew.
$(READY): requirements.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed; say where it is: make PYTHON=/path/to/python3" >&2; exit 2; }
	@echo "setting up .venv ($$($(PYTHON) --version)), once; this takes a minute"
	@rm -rf .venv
	@$(PYTHON) -m venv .venv || { rm -rf .venv; echo "$(PYTHON) cannot make virtual environments; on Debian: apt install python3-venv" >&2; exit 2; }
	@$(BIN)/pip install -qq --no-deps --require-hashes -r requirements.lock
	@$(BIN)/pip install -qq --no-deps --no-build-isolation -e .
	@touch $@

prepare: $(READY) ## validated, measured, collated splits of an environment: make prepare ENV=math [ARGS="--download"]
	@$(BIN)/python -m dagster_defs.prepare $(ENV) $(ARGS)

dev: $(READY) ## the asset graph in a browser, http://127.0.0.1:3000: make dev [ARGS="--port 3001"]
	@$(BIN)/python -m dagster_defs.home dagster dev $(ARGS)

serve: ## a real vLLM on http://127.0.0.1:8000/v1, in the foreground: make serve [MODEL=smollm2|tiny|FOLDER] [ARGS="--port 8001"]
	@$(PYTHON) serving/serve.py $(or $(MODEL),smollm2) $(ARGS)

rollouts: $(READY) ## rollouts with a real model, scored and measured: make rollouts ENV=math [REPEATS=4] [ARGS="--limit 8"]
	@$(BIN)/python -m serving.rollouts $(ENV) --num-repeats $(or $(REPEATS),4) $(ARGS)

vllm: ## vLLM's CPU build in .venv-vllm and a small model, once; what it needs is said where it cannot be had
	@$(PYTHON) serving/serve.py --install-only || { test -z "$$GYMDATA_REQUIRE_VLLM" && echo "without it: tests of a real vLLM are skipped"; }

test: $(READY) vllm ## the tests, those with a real vLLM where it can be had: make test [ARGS="-k stamp"]
	$(BIN)/pytest -q -m "not slow" $(ARGS)

check: $(READY) ## lint, format, types, schemas, directions of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/python -m gymdata.schemas --check
	$(BIN)/lint-imports --no-cache --no-logo
	DAGSTER_HOME= $(BIN)/dg check defs

format: $(READY) ## put the code in order
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

schemas: $(READY) ## write schemas/ anew from the code
	$(BIN)/python -m gymdata.schemas --write

lock: ## requirements.lock from pyproject.toml (needs uv): make lock [ARGS=--upgrade]
	@command -v $(UV) >/dev/null || { echo "uv is needed: pip install uv, or make lock UV=/path/to/uv" >&2; exit 2; }
	$(UV) pip compile pyproject.toml --extra dagster --extra plot --extra rollouts --extra ifeval --group dev --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --custom-compile-command "make lock" --quiet --output-file requirements.lock $(ARGS)

bench: $(READY) ## speed and memory of prepare beside NeMo Gym 0.7.0 (needs Python 3.13, or GYMDATA_GYM_PYTHON): make bench [ARGS="--megabytes 20"]
	$(BIN)/python benchmarks/prepare.py $(ARGS)

continuity: $(READY) vllm ## 200 trajectories of six turns on a real vLLM: are they one sequence of tokens? make continuity [MODEL=smollm2]
	$(BIN)/python -m benchmarks.continuity --model $(or $(MODEL),tiny) $(ARGS)

faults: $(READY) ## 200 runs of prepare and 100 of collect killed at random moments, full disks
	GYMDATA_KILLS=200 $(BIN)/pytest -q tests/faults/test_interrupted.py $(ARGS)
	GYMDATA_KILLS=100 $(BIN)/pytest -q tests/faults/test_rollouts_killed.py $(ARGS)

fuzz: $(READY) ## ten minutes of mutated files, then the fast path against the exact one
	GYMDATA_FUZZ_SECONDS=600 $(BIN)/pytest -q tests/faults/test_bad_input.py tests/properties $(ARGS)

clean: ## remove what make made: environments, models and caches
	rm -rf .venv .venv-gym .venv-vllm .models .pytest_cache .ruff_cache .hypothesis dist
	find gymdata dagster_defs serving tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
