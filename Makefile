# Needs make and Python 3.11 or newer; everything else goes into .venv.
PYTHON ?= python3
ARGS ?=
BIN := .venv/bin
STAMP := .venv/.installed
PIP := $(BIN)/python -m pip --disable-pip-version-check --timeout 60 --retries 5

.DEFAULT_GOAL := help
.PHONY: help demo test test-all check format bench reproduce-micro docs docs-serve clean

help:  ## Show this list
	@echo "Plures: personalised federated learning. Targets:"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r name text; do \
		printf '%-17s %s\n' "$$name" "$$text"; done
	@echo "The first target you run creates .venv. Another interpreter: make test PYTHON=python3.12"
	@echo "More options for pytest: make test ARGS='-k fedavg -x'"

demo: $(STAMP)  ## Run a small comparison of methods
	$(BIN)/plures demo

test: $(STAMP)  ## Run the fast tests, on two cores
	OMP_NUM_THREADS=1 $(BIN)/pytest -q -n 2 --dist worksteal -m "not slow" $(ARGS)

test-all: $(STAMP)  ## Run every test, the slow ones too
	OMP_NUM_THREADS=1 $(BIN)/pytest -q -n 2 --dist worksteal $(ARGS)

check: $(STAMP)  ## Check format, style, types and import layers
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP)  ## Format the code and mend what ruff can mend
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

bench: $(STAMP)  ## Measure the engines beside plain loops (a quiet quarter of an hour)
	$(BIN)/python -m benchmarks.run $(ARGS)

reproduce-micro: $(STAMP)  ## Run the directions of the papers that are sure; an error if one fails
	$(BIN)/plures paper check

docs: $(STAMP)  ## Build the documentation site into site/; a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

docs-serve: $(STAMP)  ## Show the site at http://127.0.0.1:8000 and build it anew at every change
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

clean:  ## Remove caches and build output (.venv stays: remove it by hand)
	rm -rf build dist site .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -path ./.venv -prune -o -path ./.git -prune -o -name __pycache__ -type d -exec rm -rf {} +

# Torch comes first and pinned, so that no newer one is fetched only to be replaced.
$(STAMP): pyproject.toml constraints.txt
	@command -v "$(PYTHON)" >/dev/null || { \
		echo "Plures needs Python 3.11 or newer, but there is no '$(PYTHON)'. Name one: make PYTHON=/path/to/python3" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Plures needs Python 3.11 or newer, but '$(PYTHON)' is $$("$(PYTHON)" -V 2>&1). Name another: make PYTHON=python3.11" >&2; exit 1; }
	@test -x $(BIN)/pip || { echo "Creating .venv"; "$(PYTHON)" -m venv .venv; }
	@echo "Installing torch into .venv (a minute or so)"
	@$(PIP) install --quiet --constraint constraints.txt "$$(grep '^torch==' constraints.txt)"
	@echo "Installing Plures and its tools into .venv (a minute or so)"
	@$(PIP) install --quiet --constraint constraints.txt --editable ".[dev]"
	@touch $@
