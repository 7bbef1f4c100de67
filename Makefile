# Targets for people; everything they need is installed into .venv from constraints.txt.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# Python keeps what it compiles, whatever the environment says: without that every process of the tests compiles all again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: install run quick test minutes disturbed coverage mutants landing landing-tests landing-e2e e2e-seconds test-touched test-install test-pythons test-all test-without-cluster test-workers fuzz e2e e2e-bench lint docs monitoring catalogue rooms pictures manifests schemas protos bench peers-bench soak soak-faults release publish test-release constraints clean

# Exactly the files of constraints.txt: nothing is resolved, so that no package published later changes the result.
install: $(STAMP)

# No advice to upgrade pip, about root, or about editable installations: none of it is for the reader of `make run`.
$(STAMP): export PIP_DISABLE_PIP_VERSION_CHECK := 1
$(STAMP): export PIP_ROOT_USER_ACTION := ignore
$(STAMP): export PYTHONWARNINGS := ignore
$(STAMP): constraints.txt pyproject.toml workers/python/pyproject.toml workers/conformance/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "$(PYTHON) is not Python 3.11 or newer; say which to use: make PYTHON=/path/to/python3"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --no-deps --require-hashes -r constraints.txt
	$(BIN)/pip install --quiet --no-deps --no-build-isolation -e workers/python -e . -e workers/conformance
	$(BIN)/pip check
	@touch $@

run: install
	$(BIN)/admission-gateway serve --dev

# Two pytest processes at a time: much of the time of a test is waiting.
TEST_PROCESSES ?= 2
PYTEST := $(BIN)/pytest -n $(TEST_PROCESSES) --dist worksteal

# A minute: lint, and the tests of what needs no cluster, worker or process.
QUICK := architecture cel conditions config core credentials decisions docs kyverno openapi policies telemetry
quick: lint
	$(PYTEST) -q -m "not (process or slow)" $(QUICK:%=tests/%)

# Some minutes. The markers are described in pyproject.toml.
CHOSEN := -m "smoke or not (process or slow)"
test: install
	$(PYTEST) $(CHOSEN)

# The time of `make test` by folder, written to docs/contributing.md.
minutes: install
	$(PYTEST) $(CHOSEN) --junit-xml build/minutes.xml
	$(BIN)/python -m tests.minutes build/minutes.xml

# As `make test`, on a machine that is busy and stops processes for a second: a test with a race fails here.
disturbed: install
	$(BIN)/python -m tests.disturbed $(PYTEST) $(CHOSEN)

# Branch coverage of the pure packages and the engine by their own tests, without the longest, which repeat others with
# larger inputs: some minutes. The threshold is in pyproject.toml.
COVERED := core cel conditions kyverno policies recorded openapi credentials dispatch engine rollout_plan workloads \
  simulation/test_rows.py
coverage: install
	$(PYTEST) -q --cov --cov-report term:skip-covered $(CHOSEN) $(COVERED:%=tests/%) \
	  --ignore tests/cel/test_bounds.py --ignore tests/cel/test_long_operations.py --ignore tests/engine/test_same_answer.py

# Small changes of the pure packages and of dispatch, and how many of them the tests find: an hour. MUTANTS=100 for fewer.
MUTANTS ?= 600
mutants: install
	$(BIN)/python -m tests.mutation sample build/mutation/list.txt --count $(MUTANTS)
	$(BIN)/python -m tests.mutation run build/mutation/list.txt build/mutation/report.jsonl
	$(BIN)/python -m tests.mutation table build/mutation/report.jsonl

# What every change has to pass, in two lanes: some 25 minutes after the first time.
landing: install
	$(MAKE) --jobs 2 landing-tests landing-e2e

landing-tests: test
	$(MAKE) test-install
	$(MAKE) test-workers LANGUAGES=--landing
	$(MAKE) test-touched

landing-e2e: install
	$(BIN)/python -m tests.e2e.binaries 1.37
	E2E_VERSIONS=1.37 $(BIN)/pytest tests/e2e --landing --junit-xml build/e2e.xml
	$(MAKE) coverage

# What the tests of the last landing-e2e took: a landing runs as many of those that a change touches as its limit allows.
e2e-seconds: install
	$(BIN)/python -m tests.e2e.seconds build/e2e.xml

# What `make test` leaves out of the files that the change touches. Pytest's exit status 5 says that there is none.
test-touched: install
	$(PYTEST) --touched --ignore tests/install --ignore tests/release || test $$? = 5

# From an index on loopback with newer versions of everything, by the oldest and the newest pip.
test-install: install
	$(BIN)/pytest tests/install

# With the other Pythons of this machine.
test-pythons: install
	$(BIN)/python -m tests.pythons

# Everything, some hours: run it before you call a change done. End-to-end tests run beside the others.
test-all: install
	$(MAKE) --jobs 2 test-without-cluster e2e
	$(MAKE) test-pythons
	$(MAKE) fuzz FUZZ_RUNS=100000
	$(MAKE) soak soak-faults

test-without-cluster: install
	$(PYTEST)
	$(MAKE) test-workers

# The worker SDKs of other languages, with the tools of each; those that are not installed are skipped. LANGUAGES=go
# for some of them.
test-workers: install
	$(BIN)/python -m tests.languages $(LANGUAGES)

# A million inputs for each target, two at a time: an hour or more. Failing inputs are left in build/fuzz/found.
FUZZ_RUNS ?= 1000000
fuzz: install
	printf '%s\n' http review configuration patch stream server expression policy budget merge | xargs -P 2 -I TARGET \
	  $(BIN)/python -m tests.fuzz TARGET --runs $(FUZZ_RUNS) --corpus build/fuzz/corpus/TARGET

# Against real API servers, which are built with Go the first time (some minutes each).
e2e: install
	$(BIN)/python -m tests.e2e.binaries $(E2E_VERSIONS)
	$(BIN)/pytest tests/e2e

# Creates, rollouts, and peers: some 25 minutes. `.venv/bin/python -m loadtest.peers.programs` builds the peers.
e2e-bench: install
	$(BIN)/python -m tests.e2e.bench
	$(BIN)/python -m tests.e2e.rollout
	$(BIN)/python -m tests.e2e.bench_peers

lint: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Writes the pages of docs/ to build/docs. A link or an anchor that leads nowhere is an error.
docs: install
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

# The Grafana dashboard, the alerting rules and the tables of docs/, from the tables of metrics, alerts and panels.
monitoring: install
	$(BIN)/python -m deploy.monitoring

# The pages of the ready-made policies, from their definitions and the newest report of their costs.
catalogue: install
	$(BIN)/python -m deploy.catalogue

# The pictures of the README, from a gateway behind a real API server. They need Debian's package chromium.
pictures: install
	$(BIN)/python -m tests.e2e.front_page

# The picture of the rooms in docs/architecture.md and the table of their parts, from imports and docstrings.
rooms: install
	$(BIN)/python -m deploy.rooms

# What is made from the chart: its schema and the table of its values, and manifest.yaml, which needs Helm.
HELM ?= $(shell command -v helm)
manifests: install
	$(BIN)/python -m deploy.crds > deploy/chart/files/crds.yaml
	$(BIN)/python -m deploy.chart_values
	$(BIN)/python -m deploy.render $(or $(HELM),$$($(BIN)/python -c 'from tests.e2e.binaries import chart_tool; print(chart_tool("helm"))'))

# The schemas of Kubernetes' own kinds that come with the gateway, from the release that the end-to-end tests use.
schemas: install
	$(BIN)/python -m tests.e2e.built_in_schemas

protos: install
	$(BIN)/python protos/generate.py

# Some 15 minutes; `.venv/bin/python -m loadtest.bench --help` says how to run less.
bench: install
	$(BIN)/python -m loadtest.bench
	$(BIN)/python -m loadtest.library

# Beside kubewebhook, OPA and others; `.venv/bin/python -m loadtest.peers.programs` builds them, with Go.
peers-bench: install
	$(BIN)/python -m loadtest.peers

# Memory over a million reviews: some minutes.
soak: install
	$(BIN)/python -m loadtest.soak

# Half a million reviews while clients and workers break, and everything has to add up: some minutes.
soak-faults: install
	$(BIN)/python -m loadtest.soak --faults

# Builds and checks everything that a release publishes, into build/release. `make release PARTS="python images"` for some.
release: install
	$(BIN)/python -m deploy.release build/release $(PARTS) $(if $(REGISTRY),--registry $(REGISTRY)) $(if $(FILES),--files $(FILES))

# Publishes build/release, to the named destinations only: docs/release.md.
publish: install
	@$(BIN)/python -m deploy.publish build/release $(if $(REGISTRY),--registry $(REGISTRY)) $(if $(PYPI),--pypi $(PYPI)) \
	  $(if $(PYPI_UPLOAD),--pypi-upload $(PYPI_UPLOAD)) $(if $(NPM),--npm $(NPM)) $(if $(CRATES),--crates $(CRATES)) \
	  $(if $(MAVEN),--maven $(MAVEN)) $(if $(FILES),--files $(FILES)) $(if $(GPG),--gpg) $(if $(KEY),--key $(KEY)) $(if $(SIGNING_CONFIG),--signing-config $(SIGNING_CONFIG)) \
	  $(if $(ARTIFACTHUB),--artifacthub $(ARTIFACTHUB)) $(if $(DRY_RUN),--dry-run)

# A release to registries on this machine, and from there into empty projects: half an hour the first time, for cosign.
test-release: install
	$(BIN)/pytest tests/release

# Resolves the dependencies anew and pins them with their hashes. With --build-deps-for the build backend reads
# pyproject.toml; pip-compile's own reader would drop the markers of the dependencies. The SDK is found in the
# folder where it is built, and is no line of the result: `make install` installs it from the tree.
constraints: install
	$(BIN)/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir build/constraints ./workers/python
	$(BIN)/pip-compile --quiet --upgrade --generate-hashes --strip-extras --no-header -f build/constraints \
	  --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --extra dev --extra tracing \
	  --unsafe-package admission-gateway-worker --build-deps-for wheel --no-build-isolation \
	  --output-file constraints.txt pyproject.toml

clean:
	rm -rf $(VENV) build *.egg-info workers/*/*.egg-info workers/*/build .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage \
	  workers/go/target workers/java/*/target workers/rust/target \
	  workers/typescript/dist workers/typescript/node_modules
