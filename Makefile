# Two commands do everything on a fresh clone: `make up` and `make test`. `make help` lists the rest.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV_VERSION := 0.13.9

.DEFAULT_GOAL := help
.PHONY: help install install-dev up demo doctor test soak check lint types contracts format lock clean

help:  ## what there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

install: $(VENV)/.runtime  ## the environment only (.venv), enough to run and to benchmark

install-dev: $(VENV)/.dev  ## the environment with everything the tests need

$(VENV)/.uv:
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed, this is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	@touch $@

$(VENV)/.runtime: $(VENV)/.uv requirements.lock
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python --require-hashes -r requirements.lock
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime requirements-dev.lock
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python --require-hashes -r requirements-dev.lock
	@touch $@

up: install  ## everything running with a demo; prints address, login and token; Ctrl-C stops it
	@exec $(BIN)/python manage.py up

demo: install  ## the main job without a browser: imports workflows, sends a burst, prints a table
	@exec $(BIN)/python manage.py demo

doctor: install  ## names what is missing or wrong, and the remedy
	@exec $(BIN)/python manage.py doctor

lint: install-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install-dev
	$(BIN)/mypy .

contracts: install-dev
	$(BIN)/lint-imports

test: install-dev  ## installs what the tests need (Chromium by apt when root) and runs them all, sampled
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || { \
	  [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	  apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null; } || \
	  echo "Chromium is missing: the browser tests will be skipped (in CI: fail). Install it, or run as root." >&2
	$(BIN)/python -m pytest -n 2 --dist loadfile

soak: install-dev  ## the long versions of the sampled tests
	DYSERVE_SOAK=1 $(BIN)/python -m pytest -n 2 --dist loadfile --timeout 3600

check: lint types contracts test  ## exactly what CI runs

format: install-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock: $(VENV)/.uv  ## resolves the dependencies anew
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	  --custom-compile-command "make lock" --extra build pyproject.toml -o requirements.lock
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	  --custom-compile-command "make lock" --extra build --extra dev pyproject.toml -o requirements-dev.lock

clean:  ## removes the environment and the caches; keeps var/
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
