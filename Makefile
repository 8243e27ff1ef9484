# Everything a newcomer needs: `make demo`, `make test`, `make docs`. Each sets up its own .venv first.
PYTHON ?= python3
BIN := .venv/bin
# Processes that test: two per core keep the cores busy, though parties wait for each other; a third adds imports alone.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(2 * (os.cpu_count() or 1))')

# Bytecode is kept, whatever the shell says: hundreds of processes start in the tests.
unexport PYTHONDONTWRITEBYTECODE

# Tests fit little: threads of BLAS would mostly wait for each other, by turning round (15 times the CPU time of a calibration).
test failed faults: export OPENBLAS_NUM_THREADS = 1

.PHONY: demo test failed faults lint docs bench install-hashed hashes sbom clean

demo: .venv/run.stamp .venv/compiled.stamp
	$(BIN)/opboost demo --out runs/demo

test: .venv/dev.stamp .venv/compiled.stamp .venv/axe.stamp .venv/tests.stamp
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

# The tests that failed the last time, one after the other.
failed:
	$(BIN)/python -m pytest --last-failed --last-failed-no-failures none --maxfail 5

# Parties killed, paused and cut off anywhere, 1,000 times; CI runs a sample of 60. What has ended is kept in a file, and a line per
# class beside it: the same command goes on where it was interrupted, and `make faults FAULT_SEED=400 FAULT_TRIALS=200` runs a part.
FAULT_RECORD ?= runs/faults-$(shell git describe --always --dirty 2>/dev/null).jsonl
faults: .venv/dev.stamp .venv/compiled.stamp
	mkdir -p runs
	FAULT_TRIALS=$(or $(FAULT_TRIALS),1000) FAULT_AT_ONCE=$(WORKERS) FAULT_RECORD=$(FAULT_RECORD) \
	  $(BIN)/python -m pytest -q tests/faults/test_kill_anywhere.py

lint: .venv/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: .venv/docs.stamp
	$(BIN)/sphinx-build -b html -W --keep-going -q docs docs/_build/html

bench: .venv/dev.stamp
	$(BIN)/python scripts/bench/run.py $(BENCH)

# Every file that is downloaded has one of the listed digests, or is refused.
HASHED := scripts/containers/requirements.txt
install-hashed: .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $(HASHED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation .

# Digests of all files of the versions in constraints.txt, for every platform.
hashes: .venv/release.stamp
	echo hatchling | $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	  --constraint constraints.txt --output-file $(HASHED) pyproject.toml -

# The software bill of materials of a release, in CycloneDX.
sbom: .venv/release.stamp
	mkdir -p dist
	$(BIN)/cyclonedx-py requirements $(HASHED) --pyproject pyproject.toml --output-reproducible --output-file dist/opboost.cdx.json

clean:
	rm -rf .venv runs docs/_build docs/_generated docs/examples

.venv/bin/python:
	$(PYTHON) -c 'import sys; sys.exit("opboost needs Python 3.11 or newer; found %s" % sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv .venv

.venv/run.stamp: .venv/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt -e .
	touch $@

.venv/dev.stamp: .venv/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@ .venv/run.stamp

.venv/docs.stamp: .venv/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt -e '.[docs]'
	touch $@ .venv/run.stamp

# Checks reports for people who see, hear or move otherwise; where it cannot be had, its test skips and says so.
.venv/axe.stamp: .venv/bin/python
	npm install --silent --no-save --prefix .venv/axe axe-core@4.14.1 && touch $@ || echo "no axe-core: its test will skip"

# The assertions of all test modules, rewritten once: the processes that test would each do it, all at the same time.
.venv/tests.stamp: .venv/dev.stamp
	$(BIN)/python -m pytest --collect-only -qq >/dev/null || true
	touch $@

.venv/release.stamp: .venv/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt -e '.[release]'
	touch $@ .venv/run.stamp

# Once everything is installed, and whenever a compiled loop changes: one that Numba keeps holds those that it calls as they were.
.venv/compiled.stamp: .venv/bin/python pyproject.toml constraints.txt $(shell grep -rl --include='*.py' njit opboost)
	find opboost -name '*.nb[ic]' -delete
	$(BIN)/opboost compile-loops
	touch $@
