# `make help` lists the targets. Everything runs in .venv, which the first target makes.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check

# A stamp per set of packages: a second run is quick, a changed pyproject.toml installs again.
USER_STAMP := $(VENV)/.installed-user
DEV_STAMP  := $(VENV)/.installed-dev

.DEFAULT_GOAL := help
.PHONY: help install demo demo-archive test test-python test-kernels test-uncompiled test-checked test-plain test-slow test-slow-python test-slow-kernels lint format docs docs-serve bench bench-streaming bench-live bench-sql bench-service bench-peers bench-papers soak kafka brokers demo-service crashes clean java

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Ensue needs Python 3.11 or newer; try: make PYTHON=python3.12 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(USER_STAMP): pyproject.toml | $(BIN)/python
	@echo "Installing Ensue and Spark into $(VENV) (once, takes a minute) ..."
	@$(PIP) install --quiet --editable '.[spark,archive]'
	@touch $@

$(DEV_STAMP): pyproject.toml | $(BIN)/python
	@echo "Installing Ensue, Spark and the tools for development into $(VENV) (once) ..."
	@$(PIP) install --quiet --editable '.[dev]'
	@touch $@ $(USER_STAMP)

java:
	@{ [ -n "$$JAVA_HOME" ] && [ -x "$$JAVA_HOME/bin/java" ]; } || command -v java >/dev/null || { \
		echo "Spark needs Java 17 or newer, and there is none on PATH or in JAVA_HOME." >&2; \
		echo "  Debian, Ubuntu:  sudo apt-get install openjdk-17-jre-headless" >&2; \
		echo "  Fedora:          sudo dnf install java-17-openjdk-headless" >&2; \
		echo "  macOS:           brew install openjdk@17" >&2; \
		exit 1; }

install: $(DEV_STAMP)  ## make .venv with everything needed for development

demo: java $(USER_STAMP)  ## find the thefts in a shop's day on embedded Spark, then the alarms in a market's
	@$(BIN)/ensue demo --folder demo

demo-archive: java $(USER_STAMP)  ## a stream from Kafka that looks back into the Delta table it writes: found, stopped, gone on, checked
	@$(BIN)/ensue demo-archive

demo-service: $(DEV_STAMP)  ## the subscription service with its console, and a day of 200 trucks
	@$(BIN)/ensue serve --demo

test: lint  ## lint, types, import contracts, tests
	@$(MAKE) --no-print-directory -j2 test-python test-uncompiled test-plain test-checked

# Four parts for two cores: what needs Spark, what runs on uncompiled loops, kernels with bounds checks,
# the rest. Whoever is done first takes the next.
PLAIN := src $(addprefix tests/,algebra architecture correlations languages live plan samples tracing test_benchmarks.py)
# Kernels of subscriptions take a minute to compile, and many clauses of SQL have a kernel of their own:
# what is tested of them here runs uncompiled. The examples, the docs and Spark run them compiled, make
# test-slow with bounds checks.
UNCOMPILED := $(addprefix tests/,row_patterns routing subscriptions service console flink)
# The longest comes first: a check for Java before it would let the others take its place.
test-python: $(DEV_STAMP)
	@$(MAKE) --no-print-directory java
	$(BIN)/python -m pytest tests --ignore tests/kernels $(addprefix --ignore ,$(PLAIN) $(UNCOMPILED))

test-plain: $(DEV_STAMP)
	$(BIN)/python -m pytest -q -p no:cacheprovider $(PLAIN)

# The same tests on uncompiled loops, then on compiled ones that check every index. Tests that
# compare plans of one query compile each of them: make test-slow does that.
CHECKED := NUMBA_BOUNDSCHECK=1
PLANS := $(addprefix tests/kernels/test_,planning.py counters.py adaptive.py operator_engine.py \
	nodes.py routing.py regions.py geometry.py earth.py readable.py modules.py repeats.py place_patterns.py \
	groups.py edges.py)
test-kernels: test-uncompiled test-checked  ## kernel tests with JIT off, and with bounds checks

test-uncompiled: $(DEV_STAMP)
	NUMBA_DISABLE_JIT=1 $(BIN)/python -m pytest -q -p no:cacheprovider -m "not slow and not spark and not kafka" tests/kernels $(UNCOMPILED)

test-checked: $(DEV_STAMP)
	$(CHECKED) $(BIN)/python -m pytest -q -p no:cacheprovider tests/kernels $(addprefix --ignore ,$(PLANS))

test-slow: java $(DEV_STAMP)  ## what `make test` leaves out: more random rounds and streams, crashes, Spark Connect
	@$(MAKE) --no-print-directory -j2 test-slow-python test-slow-kernels

test-slow-kernels: $(DEV_STAMP)
	NUMBA_DISABLE_JIT=1 $(BIN)/python -m pytest -q -m "slow or spark or kafka" -p no:cacheprovider tests/service tests/console
	NUMBA_DISABLE_JIT=1 $(BIN)/python -m pytest -q -m slow -p no:cacheprovider tests/kernels
	$(CHECKED) $(BIN)/python -m pytest -q -p no:cacheprovider $(PLANS)
	$(CHECKED) $(BIN)/python -m pytest -q -m slow -p no:cacheprovider tests/kernels

test-slow-python: java $(DEV_STAMP)
	$(BIN)/python -m pytest -s -m slow --ignore tests/kernels --ignore tests/service --ignore tests/console

crashes: java $(DEV_STAMP)  ## kill streams some 50 times, and compare their tables with the batch run
	$(BIN)/python -m pytest -s -m slow tests/streaming/test_crashes.py

lint: $(DEV_STAMP)  ## ruff, import contracts, mypy
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports
	$(BIN)/mypy

format: $(DEV_STAMP)  ## let ruff mend and format the code
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# Material prints a note about its successor at every start; it says nothing about these pages.
MKDOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs
docs: $(DEV_STAMP)  ## build the documentation as a site, build/site/index.html; a broken link is an error
	$(MKDOCS) build --strict

docs-serve: $(DEV_STAMP)  ## the same site at http://127.0.0.1:8000, built anew when a page changes
	$(MKDOCS) serve

bench: java $(DEV_STAMP)  ## measure kernels, ensue.match and Spark; writes benchmarks/results
	$(BIN)/python -m benchmarks.run

bench-live: $(DEV_STAMP)  ## measure ensue.live: from one event in to its match out
	$(BIN)/python -m benchmarks.live
	$(BIN)/python -m benchmarks.readme

bench-sql: java $(DEV_STAMP)  ## measure MATCH_RECOGNIZE: ensue.sql from Arrow, growth, memory, Spark batch and stream
	$(BIN)/python -m benchmarks.row_patterns

SERVICE := outbox sse messages latency subscribing
bench-service: $(DEV_STAMP)  ## measure the service: outbox, listeners, messages, from an event to its notification
	@for topic in $(SERVICE); do echo "== $$topic"; $(BIN)/python -m benchmarks.service.$$topic || exit 1; done

bench-streaming: java $(DEV_STAMP)  ## measure Structured Streaming: throughput, latency, ways to keep state
	$(BIN)/python -m benchmarks.state_forms
	$(BIN)/python -m benchmarks.streaming

soak: java $(DEV_STAMP)  ## 30 million events through a stream with 100 MB of state: it and memory stay level
	$(BIN)/python -m benchmarks.soak

bench-peers: java $(DEV_STAMP)  ## the same queries on Apache Flink (in an environment of its own), on Esper, and written by hand
	$(BIN)/python -m benchmarks.peers.by_hand
	$(BIN)/python -m benchmarks.peers.run
	$(BIN)/python -m benchmarks.peers.esper.run

PAPERS := negation operators user_operators dense several drift hierarchies towers tower_spark \
	live_archive partial_matches archive_probe archive_stream history routing shapes \
	subscriptions subscriptions_spark
bench-papers: java $(DEV_STAMP)  ## the papers' experiments: tables and plots in benchmarks/results
	@for topic in $(PAPERS); do echo "== $$topic"; $(BIN)/python -m benchmarks.papers.$$topic || exit 1; done
	$(BIN)/python -m benchmarks.papers.report

PORT ?= 9092
kafka: java $(USER_STAMP)  ## run a Kafka broker on this machine until Ctrl-C
	@$(BIN)/python -m ensue.testing.kafka $(PORT)

brokers: java $(DEV_STAMP)  ## run mosquitto, a NATS server with JetStream and Kafka on this machine until Ctrl-C
	@$(BIN)/python -m ensue.testing.brokers

clean:  ## remove .venv, caches and what the demo wrote
	rm -rf $(VENV) demo build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
	rm -rf spark-warehouse metastore_db derby.log
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
