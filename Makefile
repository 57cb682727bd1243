# Everything a newcomer and the CI need. Wants Python 3.11 or newer and make, nothing else: `make demo` and
# `make test` set up what they miss. `make` alone lists the targets.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help venv venv-audit venv-browser venv-fuzz demo test lint types collection unit properties rules suite browser pictures tour spark coverage mutants fuzz models seeded-bugs bench chaos restores soak simulate docs spark-zip spark-versions wheel image image-test deb deb-test release release-database manual lock vendor clean force

VENV := .venv
BIN := $(VENV)/bin
PIP_FLAGS := -qq --disable-pip-version-check --no-input
PIP := $(BIN)/python -m pip $(PIP_FLAGS)
PYTHONS := $(or $(PYTHON),python3.11 python3 python3.12 python3.13 python3.14)
# Twice as many as a small machine has cores: a test of processes waits for half of its time.
WORKERS ?= 4
PYTEST = $(BIN)/python -m pytest
ARGS ?=
# Where tests write: in memory, because each waits for the disk for some 60 ms, and a file system in memory takes a
# fifth of the processor time away. Only where programs may be run from it and it has room: in many containers it has not.
IN_MEMORY = $(shell grep -q '^[^ ]* /dev/shm [^ ]* [^ ]*noexec' /proc/mounts 2>/dev/null || \
  { [ "$$(df -Pk /dev/shm 2>/dev/null | awk 'END { print $$4 + 0 }')" -ge 4000000 ] && \
  awk '/^MemAvailable/ { exit $$2 < 8000000 }' /proc/meminfo && echo /dev/shm; })
WITH_SCRATCH = TMPDIR="$(or $(TMPDIR),$(IN_MEMORY),/tmp)"
unexport PYTHONDONTWRITEBYTECODE # the suite starts hundreds of programs: each would compile everything anew

# The stamp holds the directory it was made for: a virtual environment does not survive being moved, and its
# interpreter may be gone after a system upgrade.
STALE := $(shell [ -x $(BIN)/python ] && [ "$$(cat $(VENV)/.locked 2>/dev/null)" = "$(CURDIR)" ] || echo force)

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1|/p' Makefile | while IFS='|' read -r name text; do printf '  make %-14s %s\n' "$$name" "$$text"; done

venv: $(VENV)/.ready ## set up .venv from requirements.lock (PYTHON=… names the interpreter)

# Written last and removed first: an interrupted set-up leaves no stamp and starts again from nothing.
$(VENV)/.locked: requirements.lock $(STALE)
	@found=; old=; \
	for candidate in $(PYTHONS); do \
	  version=$$($$candidate -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null) || continue; \
	  $$candidate -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { old="$$old, $$candidate is $$version"; continue; }; \
	  $$candidate -c 'import ensurepip, venv' 2>/dev/null || { bare=$$candidate; continue; }; \
	  found=$$candidate; break; \
	done; \
	if [ -z "$$found" ] && [ -n "$$bare" ]; then \
	  echo "$$bare cannot make virtual environments: install its venv package (Debian, Ubuntu: apt install python3-venv)" >&2; exit 1; \
	elif [ -z "$$found" ]; then \
	  echo "Python 3.11 or newer is needed (looked for: $(PYTHONS)$$old): install it, or name it with make PYTHON=/path/to/python3" >&2; exit 1; \
	fi; \
	rm -f $@ $(VENV)/.ready; \
	echo "setting up $(VENV) with Python $$version: about a minute, once"; \
	$$found -m venv --clear $(VENV)
	@echo "installing the locked packages"
	@$(PIP) install --only-binary :all: --require-hashes -r requirements.lock
	@printf '%s\n' "$(CURDIR)" > $@

$(VENV)/.ready: $(VENV)/.locked pyproject.toml
	@echo "installing routerd-eventd itself"
	@rm -f $@
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

venv-audit: $(VENV)/.audit ## the same, and Spark for the audit (500 MB)

# PySpark is published as a source archive only. It is built without isolation, so nothing comes that is not locked.
$(VENV)/.audit: requirements-audit.lock $(VENV)/.locked | $(VENV)/.ready
	@echo "installing Spark: about a minute, once"
	@rm -f $@
	@$(PIP) install --only-binary :all: --no-binary pyspark --no-build-isolation --require-hashes -r requirements-audit.lock
	@echo "preparing a fast start of Spark for tests"
	@$(BIN)/python -m tests.support.spark_programs archive >/dev/null 2>&1 || echo "that failed: tests with Spark take longer"
	@touch $@

venv-browser: $(VENV)/.browser ## the same, and Playwright for tests in a browser (160 MB)

# Its wheel contains all it needs but the browser, which is the machine's own.
$(VENV)/.browser: requirements-browser.lock $(VENV)/.locked | $(VENV)/.ready
	@echo "installing Playwright"
	@rm -f $@
	@$(PIP) install --only-binary :all: --require-hashes -r requirements-browser.lock
	@touch $@

demo: venv ## three nodes on this machine: federate, cut one off, prove that nothing is lost
	@$(BIN)/routerd-eventd demo $(ARGS)

# Fast first: a mistake in a pure function should not have to wait for the processes. The first five use one core each. What
# `properties` runs with many examples, `unit` does not run before with few.
test: venv-audit venv-browser ## everything the CI asks: lint, types, all tests; Postgres, Spark and a browser included
	@$(MAKE) --no-print-directory --jobs 2 $(filter --output-sync,$(.FEATURES:%=--%)) types lint collection unit properties \
	  UNIT_ARGS='-m "not hypothesis"'
	@$(MAKE) --no-print-directory suite
	@$(MAKE) --no-print-directory browser
	@$(MAKE) --no-print-directory spark

lint: venv ## ruff: rules and format
	@echo "lint"
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check . || { echo "run $(BIN)/ruff format ."; exit 1; }

types: venv-audit ## mypy, strict, over eventd and federation
	@echo "types"
	@$(BIN)/mypy --no-error-summary

# Once, and not in each process of the suite at the same time: pytest compiles a file of tests when it is first imported.
collection: venv-audit ## whether pytest can import all files of tests but the unit tests, which `make unit` imports
	@$(PYTEST) -qqq --collect-only tests --ignore tests/unit --ignore tests/test_architecture.py \
	  >$(VENV)/collection.log || { cat $(VENV)/collection.log; exit 1; }

unit: venv-audit ## the tests without I/O, and the rules of the house (ARGS="-k name")
	@echo "unit tests"
	@$(PYTEST) --quiet tests/unit tests/test_architecture.py $(UNIT_ARGS) $(ARGS)

# Only files with such tests are collected.
PROPERTY_TESTS = $(shell grep -rl hypothesis tests/unit --include='test_*.py')
properties: venv-audit ## the property tests among them, with many examples
	@echo "property tests"
	@$(PYTEST) --quiet --hypothesis-profile thorough -m hypothesis $(PROPERTY_TESTS) $(ARGS)

# What a new command, setting, route, room or word breaks: in the whole run these come late.
RULES = tests/test_architecture.py tests/unit/test_words.py tests/unit/test_architecture_page.py \
  tests/contract/test_reference_docs.py tests/integration/cli/program tests/packages/test_manual.py
rules: venv-audit ## the rules of the house alone: words, rooms, reference pages, manual pages
	@echo "the rules of the house"
	@$(WITH_SCRATCH) $(PYTEST) --quiet --numprocesses 2 $(RULES) $(ARGS)

# A test that fails has failed: nothing is run again, for that would hide the races this project exists to exclude.
suite: venv-audit ## all other tests, on both databases, WORKERS=4 processes
	@echo "contract, integration and acceptance tests"
	@$(WITH_SCRATCH) $(PYTEST) --quiet --numprocesses $(WORKERS) --dist worksteal --hypothesis-profile steady \
	  -m "not spark and not browser and not image and not deb" tests --ignore tests/unit --ignore tests/test_architecture.py $(ARGS)

# On their own: the browser lives as long as the process of pytest that started it. Two
# processes: each works all of the time.
browser: venv-browser ## those in the machine's own Chromium (EVENTD_BROWSER=/path/to/chromium names another)
	@echo "tests in a browser"
	@$(WITH_SCRATCH) $(PYTEST) --quiet --numprocesses 2 --dist worksteal -m browser tests/browser $(ARGS)

pictures: venv-browser ## pictures of all pages of the console, in build/pictures (ARGS="full --width 320")
	@$(BIN)/python -m tests.support.console_pictures build/pictures $(ARGS)

tour: venv-browser ## the pictures of the console in the documentation, anew
	@$(BIN)/python -m tests.support.console_tour docs/concepts/console

# On their own: a process that has used Spark keeps a Java, which tests of processes would find. Only files with such
# tests are collected. Three processes: they wait for half of their time, and each has a Java of its own to start.
SPARK_TESTS = $(shell grep -rlE "mark\.spark|: SparkSession" tests --include='test_*.py')
spark: venv-audit ## those that work with Spark
	@echo "tests with Spark"
	@$(WITH_SCRATCH) $(PYTEST) --quiet --numprocesses 3 --dist worksteal --hypothesis-profile steady -m spark $(SPARK_TESTS) $(ARGS)

# The oldest Spark that pyproject.toml allows, with an environment of its own; the newest is that of `make spark`. Its
# sockets are closed by Python's collector only, which pytest would report.
OLDEST := .venv-spark-oldest
spark-versions: spark $(OLDEST)/.ready ## tests with Spark, on the oldest and the newest version that is supported
	@echo "tests with the oldest Spark"
	@$(OLDEST)/bin/python -m pytest --quiet --numprocesses 3 --dist worksteal --hypothesis-profile steady -m spark \
	  -W ignore::pytest.PytestUnraisableExceptionWarning -W ignore::ResourceWarning $(SPARK_TESTS) $(ARGS)

$(OLDEST)/.ready: requirements.lock requirements-spark-oldest.lock $(VENV)/.locked
	@echo "setting up $(OLDEST): about two minutes, once"
	@rm -f $@
	@$(BIN)/python -m venv --clear $(OLDEST)
	@$(OLDEST)/bin/python -m pip $(PIP_FLAGS) install --only-binary :all: --require-hashes -r requirements.lock
	@$(OLDEST)/bin/python -m pip $(PIP_FLAGS) install --only-binary :all: --no-binary pyspark --no-build-isolation \
	  --require-hashes -r requirements-spark-oldest.lock
	@$(OLDEST)/bin/python -m pip $(PIP_FLAGS) install --no-deps --no-build-isolation --editable .
	@touch $@

# What a process that is killed has run is not counted: it writes its figures when it ends.
coverage: PYTEST = $(BIN)/coverage run -m pytest
coverage: venv-audit ## which branches of eventd and federation the unit tests and the suite go through, in build/coverage
	@$(BIN)/coverage erase
	@$(MAKE) --no-print-directory unit suite PYTEST="$(PYTEST)"
	@$(BIN)/coverage combine --quiet
	@$(BIN)/coverage json --quiet -o build/coverage/coverage.json
	@$(BIN)/coverage report

mutants: venv-audit ## small changes of the code that no test notices (ARGS="--count 200 --seed 1")
	@$(BIN)/python -m tests.mutation $(ARGS)

# Its own environment: the fuzzer replaces nothing that the tests use, and is built for few versions of Python.
FUZZ := .venv-fuzz
TARGET ?= all
INPUTS ?= 100000
venv-fuzz: $(FUZZ)/.ready ## set up .venv-fuzz, with the coverage-guided fuzzer atheris

$(FUZZ)/.ready: requirements-lake.lock requirements-fuzz.lock $(VENV)/.locked
	@echo "setting up $(FUZZ): a minute, once"
	@rm -f $@
	@$(BIN)/python -m venv --clear $(FUZZ)
	@$(FUZZ)/bin/python -m pip $(PIP_FLAGS) install --only-binary :all: --require-hashes -r requirements-lake.lock
	@$(FUZZ)/bin/python -m pip $(PIP_FLAGS) install --only-binary :all: --require-hashes -r requirements-fuzz.lock
	@touch $@

fuzz: venv-fuzz ## inputs that coverage guides, against each parser (TARGET=all INPUTS=100000; ARGS=--keep extends the corpora)
	@$(FUZZ)/bin/python -m tests.fuzz $(TARGET) --inputs $(INPUTS) $(ARGS)

models: venv ## every order of steps of the models of the protocols, up to an hour (ARGS="--only link --most 1000000")
	@$(BIN)/python -m tests.models $(ARGS)

seeded-bugs: venv ## put each known bug into the product and look whether it is found (ARGS="--only 14 --known", or --trace)
	@$(BIN)/python -m tests.seeded_bugs $(ARGS)

bench: venv ## a short run over the hot paths, beside a bare loop of the same run (ARGS=--keep keeps its ratios)
	@$(BIN)/python -m tests.bench.guard $(ARGS)

# Fewer minutes than a seed takes still run it once: MINUTES=0 repeats one seed.
SEED ?= 0
MINUTES ?= 60

chaos: venv ## meshes of real nodes under faults for an hour (SEED=0 draws one; MINUTES=0 repeats one seed; KILLS=500 counts kills)
	@$(BIN)/python -m tests.chaos --seed $(SEED) --minutes $(MINUTES) $(if $(KILLS),--kills $(KILLS) --failures 10) $(ARGS)

MOMENTS ?= 3
restores: venv ## two nodes that come back from older copies, in every combination (MOMENTS=3; ARGS="--most 20")
	@$(BIN)/python -m tests.chaos restores --moments $(MOMENTS) $(ARGS)

soak: venv ## real nodes under constant load with a fault a minute, and what grows (ARGS="--minutes 60 --rate 60")
	@$(BIN)/python -m tests.soak $(ARGS)

SEEDS ?= 50
FROM ?= 1
JOBS ?= 1

simulate: venv ## whole nodes on virtual time with faults (SEEDS=50 FROM=1 JOBS=1; POSTGRES=1: on a Postgres server; ARGS="--report FILE" continues a campaign, ARGS="--seed 4711 --trace" or ARGS="--plan FILE" repeats a run)
	@$(WITH_SCRATCH) $(if $(POSTGRES),$(BIN)/python -m tests.support.with_postgres) $(BIN)/routerd-eventd simulate $(if $(findstring --seed,$(ARGS))$(findstring --plan,$(ARGS)),,--seeds $(SEEDS) --from $(FROM) --jobs $(JOBS)) $(ARGS)

spark-zip: venv-audit ## what a Spark cluster is given, in build/spark: our code as a zip, what it needs as an archive
	@$(BIN)/python -m eventd.audit.spark.packing build/spark $(ARGS)

wheel: venv ## the source archive and the wheel, in dist: built twice, checked, tried in an empty environment
	@$(BIN)/python -m deploy.release.wheel

image: venv ## the container image as an archive in dist, without an engine (needs buildah, mmdebstrap, skopeo; root)
	@$(BIN)/python -m deploy.release.image

image-test: venv ## the image: who runs in it, what is in it, how soon it is ready. Not part of make test: it takes minutes
	@$(PYTEST) --quiet -m image tests/image $(ARGS)

deb: venv ## the Debian package in dist, with all libraries (needs mmdebstrap, dpkg-dev, lintian; root)
	@$(BIN)/python -m deploy.release.deb

deb-test: venv ## the package: lintian, installed, upgraded and removed. Not part of make test: it takes minutes
	@$(PYTEST) --quiet -m deb tests/deb $(ARGS)

release: venv ## check a release, and build all of it in dist (ARGS=--unreleased tries it, ARGS=--check builds nothing)
	@$(BIN)/python -m deploy.release.release $(ARGS)

release-database: venv ## a database as this version leaves it, which tests of later versions migrate; once, before a release
	@$(BIN)/python -m deploy.release.database

manual: venv ## the manual pages and completions in deploy, anew from the commands
	@$(BIN)/python -m deploy.release.manual.pages
	@$(BIN)/python -m deploy.release.completions

# The resolver is no part of the lock. Bring it with: python3 -m venv ../uv && ../uv/bin/pip install uv && make lock UV=../uv/bin/uv
UV ?= uv
LOCK = $(UV) pip compile pyproject.toml --quiet --generate-hashes --universal --no-header --no-annotate --extra postgres --extra quic --extra otel

lock: ## resolve the lock files anew after a change of pyproject.toml (needs uv; ARGS=--upgrade takes newer versions)
	@command -v $(UV) >/dev/null || { echo "make lock needs uv: install it in an environment of its own and name it with make lock UV=/path/to/uv" >&2; exit 1; }
	$(LOCK) --group dev $(ARGS) --output-file requirements.lock
	$(LOCK) --constraint requirements.lock $(ARGS) --output-file requirements-runtime.lock
	$(LOCK) --extra audit --extra connect --extra delta --constraint requirements.lock $(ARGS) --output-file requirements-audit.lock
	$(LOCK) --extra lake --constraint requirements-audit.lock $(ARGS) --output-file requirements-lake.lock
	sed -n 's/^requires = \["\(hatchling.*\)"\]/\1/p' pyproject.toml | $(UV) pip compile - --quiet --generate-hashes --universal --no-header --no-annotate --constraint requirements.lock $(ARGS) --output-file requirements-build.lock
	$(UV) pip compile --quiet --generate-hashes --universal --no-header --no-annotate --group pyproject.toml:browser --constraint requirements.lock $(ARGS) --output-file requirements-browser.lock
	$(UV) pip compile --quiet --generate-hashes --universal --no-header --no-annotate --group pyproject.toml:docs $(ARGS) --output-file requirements-docs.lock
	$(UV) pip compile --quiet --generate-hashes --universal --no-header --no-annotate --group pyproject.toml:fuzz --constraint requirements.lock $(ARGS) --output-file requirements-fuzz.lock
	echo "pyspark==4.1.0" | $(LOCK) - --extra audit --extra connect --extra delta --constraint requirements.lock $(ARGS) --output-file requirements-spark-oldest.lock

# Links and headings that lead nowhere are warnings, which end the build.
docs: .venv-docs/.ready ## the documentation as a searchable site, in build/docs
	@.venv-docs/bin/sphinx-build -q -W --keep-going -c docs/site -d build/doctrees . build/docs
	@echo "build/docs/index.html"

.venv-docs/.ready: requirements-docs.lock $(VENV)/.locked
	@echo "setting up .venv-docs: one to three minutes, once"
	@rm -f $@
	@$(BIN)/python -m venv --clear .venv-docs
	@.venv-docs/bin/python -m pip $(PIP_FLAGS) install --only-binary :all: --require-hashes -r requirements-docs.lock
	@touch $@

vendor: venv ## fetch the files of others that the console serves, in the versions of VENDOR.toml (needs npm)
	@command -v npm >/dev/null || { echo "make vendor needs npm, to fetch published packages (Debian, Ubuntu: apt install npm)" >&2; exit 1; }
	@$(BIN)/python -m tests.support.vendored
	@git diff --stat -- eventd/console/static/vendor

clean: ## remove .venv, caches and builds; a node's data stays
	rm -rf $(VENV) $(OLDEST) $(FUZZ) .venv-docs build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find eventd federation migrations tests -name __pycache__ -type d -prune -exec rm -rf {} +

force:
