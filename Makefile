# Every target sets itself up from nothing: a virtual environment in .venv with pinned dependencies.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
# The index that torch is installed from, if it is not pip's default; PyTorch's index of CPU builds saves gigabytes.
TORCH_INDEX ?=
TOOLS  := build/tools

.PHONY: help demo models kernels test test-all lint format bench trust mutate docs package release-check locked lock sbom audit clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(READY): pyproject.toml constraints.txt
	@echo "Installing permalign and what it needs into $(VENV). With the default build of torch for Linux this may be"
	@echo "gigabytes; README.md says how to set TORCH_INDEX to a CPU build, of about 200 MB."
	$(PYTHON) -m venv $(VENV)
	$(if $(TORCH_INDEX),$(BIN)/python -m pip install --quiet --constraint constraints.txt torch --index-url $(TORCH_INDEX))
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	@touch $@

demo: $(READY)  ## train a model on arithmetic, test it, and draw how it reads an expression
	@$(BIN)/permalign demo

models: $(READY)  ## train the small models that come with the package again
	$(BIN)/python -m permalign.reproduction.bundle

lint: $(READY)  ## style, formatting and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)  ## mend style and formatting
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

kernels: $(READY)  ## compile the kernels, so that several processes do not do so at the same time
	$(BIN)/python -m permalign.kernels

test: kernels  ## all tests but the slow ones, with doctests
	$(BIN)/pytest -n 2 -m "not slow"

test-all: kernels  ## the slow tests as well, in a random order, why others are skipped, and which lines no test runs
	$(BIN)/pytest -n 2 -rs --random-order --cov --cov-report=term:skip-covered

bench: $(READY)  ## side-by-side speed ratios, kept in benchmarks/results
	$(BIN)/python -m benchmarks

trust: $(READY)  ## kill runs, damage files, fuzz readers and load the explorer, in about 17 minutes; writes results/trust.md
	$(BIN)/python -m tests.trust

mutate: $(READY)  ## change the code in 100 small ways, list those that no test notices, and write results/mutation.md
	$(BIN)/python -m tests.trust.mutate --write results/mutation.md

docs: kernels  ## the documentation, in build/docs, without a warning
	$(BIN)/sphinx-build -W --keep-going -q docs build/docs
	@echo "open build/docs/index.html"

package: $(READY)  ## a wheel and an sdist, in dist, installed into an empty environment and used
	rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist
	$(BIN)/pytest -q tests/test_package.py

release-check: $(READY)  ## everything that must hold before a release
	@test -z "$$(git status --porcelain)" || { echo "There are uncommitted changes: commit or stash them."; exit 1; }
	$(BIN)/python .ci/check_version.py
	$(MAKE) lint test-all docs package
	@echo "Ready. Tag the commit, and upload what is in dist: python -m twine upload dist/*"

locked:  ## the virtual environment again, from constraints.lock: every file but torch's is compared with its hash
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX))
	$(BIN)/python -m pip install --quiet --require-hashes --no-deps --requirement constraints.lock
	$(BIN)/python -m pip install --quiet --no-deps --editable .
	$(BIN)/python -m pip check
	@touch $(READY)

$(TOOLS):
	$(PYTHON) -m venv $(TOOLS)
	$(TOOLS)/bin/python -m pip install --quiet uv cyclonedx-bom pip-audit

lock: $(TOOLS)  ## constraints.lock again, the versions of constraints.txt with the hashes of their files
	$(TOOLS)/bin/uv pip compile --quiet --universal --no-deps --generate-hashes --no-annotate --no-header \
		--no-emit-index-url --no-emit-package torch --output-file constraints.lock constraints.txt

sbom: $(READY) $(TOOLS)  ## a CycloneDX list of what is installed, and docs/licences.md; fails for a surprising licence
	$(TOOLS)/bin/cyclonedx-py environment --output-file build/sbom.json $(BIN)/python
	$(BIN)/python .ci/check_licences.py docs/licences.md

audit: $(TOOLS)  ## whether the versions of constraints.txt have known vulnerabilities, according to the package index
	$(TOOLS)/bin/pip-audit --strict --no-deps --disable-pip --requirement constraints.txt

clean:  ## remove the virtual environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage build docs/figures
