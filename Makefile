# Every target makes the virtual environment it needs by itself.
PYTHON ?= python3
BIN := .venv/bin
export OMP_WAIT_POLICY := PASSIVE
export NO_MKDOCS_2_WARNING := 1

.PHONY: demo test test-slow bench docs lint clean

demo: .venv/demo
	$(BIN)/assay demo --dry-run
	$(BIN)/assay demo

test: lint
	$(BIN)/python -m pytest -n 2 --dist loadfile

test-slow: .venv/dev
	$(BIN)/python -m pytest -m slow

bench: .venv/dev
	$(BIN)/python -m benchmarks

docs: .venv/dev
	$(BIN)/mkdocs build --strict

lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:
	rm -rf .venv assay-demo site

# Stamps: an environment is made once, and again when its description changes.
.venv/demo: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[demo]'
	touch $@

.venv/dev: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[demo,imagenet,dev,docs]'
	touch .venv/demo $@
