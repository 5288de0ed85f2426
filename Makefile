# make demo    the main job on real data, on Spark
# make test    every check and every test
# make bench   the measurements; make lab: the proofs of the exchange; make soak: the long, seeded runs
# Bench and lab run the compiled package, see hatch_build.py; the tests run the sources, and some of them both.
# Each does its own set-up on first use. ARGS are passed on: make demo ARGS="--json -"
BIN := .venv/bin

.PHONY: demo test check bench lab soak setup

demo: setup
	@$(BIN)/headgate demo $(ARGS)

# Several tests at once, then one by one those that look at the clock (tests/scheduling.py).
test: check
	$(BIN)/pytest --numprocesses logical $(ARGS)
	scripts/compiled $(BIN)/pytest --numprocesses logical -o pythonpath= -k "not spark" tests/pipelines

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

bench: setup
	@scripts/compiled $(BIN)/headgate bench $(ARGS)

lab: setup
	@scripts/compiled $(BIN)/headgate lab $(ARGS)

soak: setup
	$(BIN)/pytest -m soak --timeout 1800 $(ARGS)

setup:
	@PYTHON="$(PYTHON)" scripts/bootstrap
