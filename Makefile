# `make help` lists the targets. Everything runs in .venv, which the first target makes.

PYTHON ?= python3
unexport PYTHONDONTWRITEBYTECODE  # processes that tests start load bytecode instead of compiling again
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check

# A stamp per set of packages: a second run is quick, a changed pyproject.toml installs again.
USER_STAMP := $(VENV)/.installed-user
DEV_STAMP  := $(VENV)/.installed-dev

.DEFAULT_GOAL := help
.PHONY: help install demo demo-archive check check-tests test test-python test-language test-kernels test-service test-spark test-slow test-slow-python test-slow-kernels test-slow-spark lint format grammars docs docs-serve bench bench-large bench-streaming bench-live bench-sql bench-service bench-peers bench-papers soak kafka brokers demo-service crashes clean java

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

# The demos, their data and the brokers are packages in examples/.
EXAMPLES := PYTHONPATH=examples$${PYTHONPATH:+:$$PYTHONPATH} $(BIN)/python

install: $(DEV_STAMP)  ## make .venv with everything needed for development

demo: java $(USER_STAMP)  ## find the thefts in a shop's day on embedded Spark, then the alarms in a market's
	@$(EXAMPLES) -m demos.shop --folder demo

demo-archive: java $(USER_STAMP)  ## a stream from Kafka that looks back into the Delta table it writes: found, stopped, gone on, checked
	@$(EXAMPLES) -m demos.archive

demo-service: $(DEV_STAMP)  ## the subscription service with its console, and a day of 200 trucks
	@$(EXAMPLES) -m demos.service

# Three at a time, the longest first: some tests wait more than they compute. Nothing is compiled but where a
# test asks for it (`compiled` in tests/conftest.py): machine code takes seconds for each query.
test:  ## lint, types, import contracts, tests
	@$(MAKE) --no-print-directory -j3 test-python test-spark test-service test-kernels test-language lint

QUIET := -q -p no:cacheprovider
# The loops that all queries share run as plain Python here, also where tests ask for machine code.
UNCOMPILED := $(addprefix tests/,kernels row_patterns routing subscriptions service console flink)
NOT_SPARK := not spark and not kafka and not connect
IN_PROCESS := not slow and $(NOT_SPARK)
SERVICE_TESTS := tests/service tests/console
test-kernels: $(DEV_STAMP)
	NUMBA_DISABLE_JIT=1 $(BIN)/python -m pytest $(QUIET) -m "$(IN_PROCESS)" $(filter-out $(SERVICE_TESTS),$(UNCOMPILED))

test-service: $(DEV_STAMP)
	NUMBA_DISABLE_JIT=1 $(BIN)/python -m pytest $(QUIET) -m "$(IN_PROCESS)" $(SERVICE_TESTS)

# Texts, documentation and what surrounds the package: it fills the gap when the others end.
LANGUAGE := $(addprefix tests/,parser analyzer architecture docs examples) \
	$(addprefix examples/,samples brokers demos) src
test-language: $(DEV_STAMP)
	$(BIN)/python -m pytest $(QUIET) -m "$(IN_PROCESS)" $(LANGUAGE)

test-python: $(DEV_STAMP)
	$(BIN)/python -m pytest $(QUIET) -m "$(IN_PROCESS)" tests $(addprefix --ignore ,$(UNCOMPILED) $(LANGUAGE))

# Only files that have such tests are collected.
ON_SPARK = $(shell grep -rlE 'mark\.(spark|everywhere|streams|kafka|connect)\b' tests --include 'test_*.py')
test-spark: $(DEV_STAMP)
	@$(MAKE) --no-print-directory java
	$(BIN)/python -m pytest $(QUIET) -m "(spark or kafka or connect) and not slow" \
		$(filter-out $(addsuffix /%,$(UNCOMPILED)),$(ON_SPARK))

# What finds most in the least time: every behaviour in this process, golden plans, errors, budgets.
QUICK := $(addprefix tests/,behaviours planner/test_golden.py parser/test_errors.py architecture/test_budgets.py) \
	$(patsubst %,--ignore tests/behaviours/test_%.py,limits timeouts zones compiled)
check: $(DEV_STAMP)  ## lint, and the tests that find most: a minute and a half
	@$(MAKE) --no-print-directory -j2 lint check-tests

check-tests: $(DEV_STAMP)
	$(BIN)/python -m pytest $(QUIET) -m "$(IN_PROCESS)" $(QUICK)

# All random cases, of which `make test` tries a third; kernels are compiled with checks of every index, and
# behaviours on Spark run compiled.
THOROUGH := ENSUE_TESTS=thorough
CHECKED := ENSUE_COMPILE=always NUMBA_BOUNDSCHECK=1
CRASHES := tests/streaming/test_crashes.py
test-slow: java $(DEV_STAMP)  ## all tests in this process with all random cases, compiled kernels, Spark Connect
	@$(MAKE) --no-print-directory -k -j3 test-slow-spark test-slow-python test-slow-kernels

test-slow-spark: $(DEV_STAMP)
	$(THOROUGH) ENSUE_COMPILE=always $(BIN)/python -m pytest $(QUIET) -s -m "(spark or kafka or connect) and slow" \
		$(filter-out $(CRASHES) $(addsuffix /%,$(UNCOMPILED)),$(ON_SPARK))

# Folders of random cases, as RANDOM below has files; of the others what `make test` leaves out.
RANDOM_UNCOMPILED := $(addprefix tests/,kernels row_patterns routing subscriptions)
test-slow-kernels: $(DEV_STAMP)
	$(CHECKED) $(BIN)/python -m pytest $(QUIET) -m "not spark and not kafka" tests/kernels
	$(THOROUGH) NUMBA_DISABLE_JIT=1 $(BIN)/python -m pytest $(QUIET) -m "" $(RANDOM_UNCOMPILED)
	$(THOROUGH) NUMBA_DISABLE_JIT=1 $(BIN)/python -m pytest $(QUIET) -m "slow or spark or kafka or connect" \
		$(filter-out $(RANDOM_UNCOMPILED),$(UNCOMPILED))

# Files with random cases run whole, with all of these; of the others only what `make test` leaves out.
RANDOM = $(filter-out $(CRASHES) $(addsuffix /%,$(UNCOMPILED)) tests/behaviours/%, $(shell grep -rlE \
	'scaled|of_round|THOROUGH|@given|judged' tests --include 'test_*.py')) tests/behaviours
test-slow-python: $(DEV_STAMP)
	$(THOROUGH) $(BIN)/python -m pytest $(QUIET) -m "$(NOT_SPARK)" $(RANDOM)
	$(THOROUGH) $(BIN)/python -m pytest $(QUIET) -m "slow and $(NOT_SPARK)" \
		$(addprefix --ignore ,$(CRASHES) $(UNCOMPILED) $(RANDOM)) tests

crashes: java $(DEV_STAMP)  ## kill streams some 50 times, and compare their tables with the batch run
	$(BIN)/python -m pytest -s -m slow $(CRASHES)

lint: $(DEV_STAMP)  ## ruff, import contracts, mypy
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports
	$(BIN)/mypy

format: $(DEV_STAMP)  ## let ruff mend and format the code
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

grammars: $(DEV_STAMP)  ## save the parser tables of the grammars in the package, after a change of a grammar or of Lark
	PYTHONPATH=src:tests $(BIN)/python -m support.parser_tables

PAGES := $(BIN)/python docs/site/pages.py build/docs
docs: $(DEV_STAMP)  ## build the documentation as a site, build/site/index.html; a broken link is an error
	$(PAGES)
	$(BIN)/zensical build --strict

docs-serve: $(DEV_STAMP)  ## the same site at http://127.0.0.1:8000, built again when a page changes
	@$(PAGES) --watch & trap "kill $$!" EXIT INT TERM; sleep 2; $(BIN)/zensical serve

bench: java $(DEV_STAMP)  ## measure kernels, ensue.match and Spark; writes benchmarks/results
	$(BIN)/python -m benchmarks.run

bench-large: $(DEV_STAMP)  ## measure files larger than memory, 1 to 100 million rows: processor time, memory, disk
	ENSUE_COMPILE=always $(BIN)/python -m benchmarks.large --rows 1000000 10000000 100000000
	$(BIN)/python -m benchmarks.readme

bench-live: $(DEV_STAMP)  ## measure ensue.live: from one event in to its match out
	$(BIN)/python -m benchmarks.live
	$(BIN)/python -m benchmarks.readme

bench-sql: java $(DEV_STAMP)  ## measure MATCH_RECOGNIZE: ensue.sql from Arrow, growth, memory, Spark batch and stream
	$(BIN)/python -m benchmarks.row_patterns

SERVICE := outbox sse messages latency subscribing
bench-service: $(DEV_STAMP)  ## measure the service: outbox, listeners, messages, from an event to its notification
	@for topic in $(SERVICE); do echo "== $$topic"; $(BIN)/python -m benchmarks.service.$$topic || exit 1; done
	$(BIN)/python -m benchmarks.readme

bench-streaming: java $(DEV_STAMP)  ## measure Structured Streaming: throughput, latency, ways to keep state
	$(BIN)/python -m benchmarks.state_forms
	$(BIN)/python -m benchmarks.streaming

soak: java $(DEV_STAMP)  ## 30 million events through a stream with 100 MB of state: it and memory stay level
	$(BIN)/python -m benchmarks.soak

bench-peers: java $(DEV_STAMP)  ## the same queries on Apache Flink (in an environment of its own), on Esper, and written by hand
	$(BIN)/python -m benchmarks.peers.by_hand
	$(BIN)/python -m benchmarks.peers.run
	$(BIN)/python -m benchmarks.peers.esper.run
	$(BIN)/python -m benchmarks.peers.esper.run --lengths 2 3 4 5 6 8
	$(BIN)/python -m benchmarks.readme

PAPERS := negation operators user_operators dense several drift hierarchies definitions definitions_spark \
	live_archive partial_matches archive_probe archive_stream history routing shapes \
	subscriptions subscriptions_spark
bench-papers: java $(DEV_STAMP)  ## the papers' experiments: tables and plots in benchmarks/results
	@for topic in $(PAPERS); do echo "== $$topic"; $(BIN)/python -m benchmarks.papers.$$topic || exit 1; done
	$(BIN)/python -m benchmarks.papers.report

PORT ?= 9092
kafka: java $(USER_STAMP)  ## run a Kafka broker on this machine until Ctrl-C
	@$(EXAMPLES) -m brokers.kafka $(PORT)

brokers: java $(DEV_STAMP)  ## run mosquitto, a NATS server with JetStream and Kafka on this machine until Ctrl-C
	@$(EXAMPLES) -m brokers

clean:  ## remove .venv, caches and what the demo wrote
	rm -rf $(VENV) demo build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
	rm -rf spark-warehouse metastore_db derby.log
	find src tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} +
