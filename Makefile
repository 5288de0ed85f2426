# make demo    the main job on real data, on Spark
# make test    every check and every test, except the long tests (make soak)
# make compat  the tests with other versions of Spark, Python, NumPy and pyarrow, see docs/evidence/compatibility.md
# make bench   the measurements
# make lab     the experiments that test what the documents say about the exchange
# make soak    the long, seeded tests
# make docs    the site, in build/docs; a warning is an error
# make wheel   a pure and a compiled wheel, in dist/; the compiled wheel needs a C compiler
# Bench and lab run the compiled package (see hatch_build.py). The tests run the sources, and some tests run both.
# Each target does its own set-up on first use. ARGS go to the command: make demo ARGS="--json -"
BIN := .venv/bin
# Two processes of tests for each core, since tests wait: for Spark, for restarts, for deadlines.
PROCESSES = $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) * 2)))
# The files with tests that measure time. To read all test files takes 9 s.
ALONE = $(shell grep --recursive --files-with-matches --include="*.py" "mark\.alone" tests | sort)

.PHONY: demo test check java-classes compat bench lab soak docs wheel setup

demo: setup
	@$(BIN)/headgate demo $(ARGS)

# First it runs every check, while Java writes the archive of Spark's classes. Then it runs several tests at once, then
# the tests that measure time, one by one. Then it tests the oldest versions while it builds the compiled package. At the
# end it tests the compiled package.
test: setup
	@scripts/test-tools
	@$(MAKE) --no-print-directory --jobs 2 check java-classes
	$(BIN)/pytest --numprocesses $(PROCESSES) -m "not soak and not alone" --planted slice $(ARGS)
	$(BIN)/pytest -m "alone and not soak" $(if $(ARGS),$(ARGS),$(ALONE))
	scripts/compiled true & scripts/compat slice; slice=$$?; wait $$! && exit $$slice
	scripts/compiled $(BIN)/pytest --numprocesses $(PROCESSES) -o pythonpath= -m "not soak and not alone" -k "not spark" tests/pipelines

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

# Without the archive, tests on Spark are slower.
java-classes: setup
	-@$(BIN)/python -m tests.java_classes

compat: setup
	scripts/compat check $(ARGS)

bench: setup
	@scripts/compiled $(BIN)/headgate bench $(ARGS)

lab: setup
	@scripts/compiled $(BIN)/headgate lab $(ARGS)

soak: setup
	$(BIN)/pytest -m "soak or planted" --timeout 1800 $(ARGS)

docs: setup
	$(BIN)/python scripts/docs.py
	$(BIN)/sphinx-build --fail-on-warning --keep-going --fresh-env --quiet --conf-dir docs . build/docs
	@echo build/docs/index.html

wheel: setup
	rm -rf dist
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .
	HEADGATE_COMPILE=1 $(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .

setup:
	@PYTHON="$(PYTHON)" scripts/bootstrap
