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

.PHONY: demo test check compat bench lab soak docs wheel setup

demo: setup
	@$(BIN)/headgate demo $(ARGS)

test: setup
	@scripts/test-tools
	@scripts/test $(ARGS)

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

compat: setup
	scripts/compat check $(ARGS)

bench: setup
	@scripts/compiled $(BIN)/headgate bench $(ARGS)

lab: setup
	@scripts/compiled $(BIN)/headgate lab $(ARGS)

soak: setup
	$(BIN)/pytest -m "soak or planted or turns or ends or hypothesis" --timeout 1800 $(ARGS)

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
