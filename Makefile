# make demo and make test run on a fresh machine with Python 3.11 or newer; make help lists the main targets.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Many tests wait for daemons and mock drivers, so two cores need ten workers to be busy.
WORKERS ?= 10

.PHONY: help demo test check format lint types imports pages pictures gpu bench campaign clean

help:
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 16

# Without --no-compile pip would compile every installed module; most are never imported (docs/decisions/0108).
$(STAMP): requirements-dev.txt pyproject.toml setup.py gpuwatch/sources/nvml/compiled_loop.c $(wildcard gpuwatch/libgpuwatch/*.[ch])
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "gpuwatch needs Python 3.11 or newer, found $$($(PYTHON) -V); name one: make PYTHON=python3.12 …" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check --require-hashes -r requirements-dev.txt
	PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

demo: $(STAMP)  ## install if needed, then run three benchmarks and judge them, on the real GPU or a simulated one
	@$(BIN)/gpuwatch demo

# As root on Debian this installs missing packages; elsewhere the tests that need one are skipped with a message.
.PHONY: system
system:
	@missing=$$(for p in $$(grep -v '^#' tests/system-packages.txt); do dpkg -s $$p >/dev/null 2>&1 || echo $$p; done); \
	if [ -n "$$missing" ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  export DEBIAN_FRONTEND=noninteractive; \
	  (apt-get update -qq && apt-get install -y -qq --no-install-recommends $$missing) >/dev/null; fi

# The harnesses for the tests of gpuwatch.harness, each in a separate folder: in the environment torch would change the types,
# and pytest-benchmark would join every run of pytest (docs/decisions/0100).
.PHONY: harness
harness: $(STAMP)  ## real Triton, torch and pytest-benchmark for the tests of gpuwatch.harness (320 MB, and torch's CPU build)
	@for list in tests/harness_packages/*.txt; do \
	  folder=.harness/$$(basename $$list .txt); cmp -s $$list $$folder/requirements.txt && continue; rm -rf $$folder; \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps --no-compile --target $$folder -r $$list \
	    && cp $$list $$folder/requirements.txt || echo "$$list: not installed; its tests are skipped, and fail with CI=true" >&2; \
	done

test: system harness check  ## run everything that CI runs: format, lint, types, import contracts, generated pages, tests

# Two at a time, in this order.  On a fresh clone mypy takes about as long as the other checks together, and may still run during the tests.
check: $(STAMP)
	@$(MAKE) --no-print-directory --jobs=2 types lint imports shape pages-fresh suite

# A test that fails in parallel runs once more alone (docs/decisions/0073).
.PHONY: suite
suite: $(STAMP)
	@rm -rf .pytest_cache
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal || { test $$? -eq 1 \
	  && echo "these tests failed in parallel and run again alone; those that pass now depend on the load" \
	  && $(BIN)/python -m pytest -v -x --last-failed --last-failed-no-failures none; }

format: $(STAMP)  ## format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(STAMP)
	$(BIN)/mypy

imports: $(STAMP)
	$(BIN)/lint-imports

.PHONY: shape
shape: $(STAMP)  ## print the code's lengths, parameters and names with their limits
	$(BIN)/python -m tests.shape

.PHONY: docs
docs: $(STAMP)  ## build the documentation site in build/site, with warnings as errors
	$(BIN)/python -m sphinx -q -W --keep-going -c docs/site -d build/doctrees . build/site
	@echo "build/site/index.html"

pages: $(STAMP)  ## rewrite the generated pages
	$(BIN)/python -m tests.pages

pictures: $(STAMP)  ## make the pictures of README and docs from the commands, in both themes
	$(BIN)/python -m tests.pictures

.PHONY: pages-fresh
pages-fresh: $(STAMP)
	$(BIN)/python -m tests.pages --check

gpu: $(STAMP)  ## run the tests and windows that need a real GPU, and write data and pages
	$(BIN)/python -m pytest -m gpu -s
	$(BIN)/python -m tests.hardware.campaign build/h200
	$(BIN)/python -m tests.hardware.stamps build/h200
	$(BIN)/python -m tests.hardware.effect build/h200
	$(BIN)/python -m tests.hardware.verdicts build/h200/clean clean 75
	$(BIN)/python -m tests.hardware.verdicts build/h200/injected injected 1
	$(BIN)/python -m tests.hardware.verdicts build/h200/hogs hogs 2
	$(BIN)/python -m tests.hardware.figures build/h200
	$(BIN)/python -m tests.hardware.paired build/h200/paired
	$(BIN)/python -m tests.hardware.paired_scores add build/h200/paired
	$(BIN)/python -m tests.hardware.merged build/h200 build/h200/clean build/h200/injected build/h200/hogs
	$(BIN)/python -m tests.hardware.render build/h200

bench: $(STAMP)  ## measure the cost of watching, judging and storing, and the judge's error rates over some windows
	$(BIN)/python -m tests.bench
	$(BIN)/python -m pytest -m "slow and not soak and not gpu"
	GPUWATCH_EXAMPLES=all $(BIN)/python -m pytest -n $(WORKERS) -m "hypothesis and not slow and not gpu"
	GPUWATCH_EXAMPLES=all $(BIN)/python -m pytest -n $(WORKERS) tests/fuzz tests/gpuwatch/sampling tests/gpuwatch/report/test_forged.py tests/annotate/test_failing_rules.py
	$(BIN)/python -m tests.campaign --seconds 60 --out build/campaign.json

campaign: $(STAMP)  ## measure the judge's error rates over thousands of simulated windows, and write their page
	$(BIN)/python -m tests.campaign --seconds 3600 --seeds 0:3000
	$(BIN)/python -m tests.hardware.render

.PHONY: timing-record
timing-record: $(STAMP)  ## run the timing-sensitive tests ten times under load, three times within the whole suite; resumes after an interruption
	$(BIN)/python -m tests.load_record --workers $(WORKERS) $(RUNS)

.PHONY: alerts-run
alerts-run: $(STAMP)  ## run Prometheus for half an hour on daemons with every hazard (as root), and write record and page
	$(BIN)/python -m tests.dashboards.long_run

.PHONY: soak fuzz fuzz-library
soak: $(STAMP)  ## run long campaigns of faults (hours): kills, damage, crowds, a simulated day
	$(BIN)/python -m pytest -m soak tests/faults -s

fuzz: $(STAMP)  ## fuzz every reader, under atheris if it is installed (pip install -e '.[fuzz]')
	$(BIN)/python -m tests.fuzz --runs 100000 --keep

fuzz-library: $(STAMP)  ## run a million random sequences of NVTX ranges through the C library, under three sanitizers
	$(BIN)/python -m tests.gpuwatch.libgpuwatch.fuzz_campaign 1000000

.PHONY: dist
dist: $(STAMP)  ## build the source distribution, and the wheel from it, into dist/
	@$(BIN)/python -m tests.distributions . dist

clean:
	rm -rf $(VENV) .harness build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
