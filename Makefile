# Targets for people; everything they need is installed into .venv from constraints.txt.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: install run test e2e e2e-bench lint protos bench soak constraints clean

install: $(STAMP)

$(STAMP): constraints.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "$(PYTHON) is not Python 3.11 or newer; say which to use: make PYTHON=/path/to/python3"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --require-hashes -r constraints.txt
	$(BIN)/pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@

run: install
	$(BIN)/admission-gateway serve --dev

test: install
	$(BIN)/pytest

# Against real API servers, which are built with Go the first time (some minutes each).
e2e: install
	$(BIN)/python -m tests.e2e.binaries $(E2E_VERSIONS)
	$(BIN)/pytest tests/e2e

e2e-bench: install
	$(BIN)/python -m tests.e2e.bench

lint: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

protos: install
	$(BIN)/python protos/generate.py

# Some eight minutes; `.venv/bin/python -m loadtest.bench --help` says how to run less.
bench: install
	$(BIN)/python -m loadtest.bench

# Memory over a million reviews: some minutes.
soak: install
	$(BIN)/python -m loadtest.soak

# Resolves the dependencies anew and pins them with their hashes.
constraints: install
	$(BIN)/pip-compile --quiet --upgrade --generate-hashes --allow-unsafe --strip-extras --no-header \
	  --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --extra dev \
	  --output-file constraints.txt pyproject.toml

clean:
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage
