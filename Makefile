PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# Where pip finds PyTorch; empty is pip's own index, whose build is for CUDA.
TORCH_INDEX ?= $(if $(shell command -v nvidia-smi 2>/dev/null),,https://download.pytorch.org/whl/cpu)
# pip would compile every module, which is half of its work. Python compiles the modules that it
# imports, and keeps their bytecode because this variable is empty. Otherwise each process would
# compile PyTorch's modules again, which takes about two seconds.
export PYTHONDONTWRITEBYTECODE :=
PIP_OPTIONS := --quiet --disable-pip-version-check --no-compile --constraint constraints.txt

.PHONY: demo test quick test-lowest test-newest check check-pins format docs release compare-release clean

$(STAMP): pyproject.toml constraints.txt
	@echo "Fetching the packages of constraints.txt, PyTorch from $(or $(TORCH_INDEX),pip's own index (for CUDA: 2.7 GB)); TORCH_INDEX= names another index"
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "foretaste needs Python 3.11 or newer; set PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	$(if $(TORCH_INDEX),$(BIN)/pip install $(PIP_OPTIONS) --no-deps --extra-index-url $(TORCH_INDEX) torch)
	$(BIN)/pip install $(PIP_OPTIONS) --editable ".[dev]"
	touch $(STAMP)

demo: $(STAMP)
	$(BIN)/foretaste demo

test: check
	$(BIN)/pytest --numprocesses 2 --dist worksteal

# What a contributor runs between two edits.
quick: check
	$(BIN)/pytest --numprocesses 2 --dist worksteal -m "quick and not slow"

# The lowest versions that pyproject.toml allows, and the newest, each in an environment of its own.
test-lowest: VERSIONS := --constraint constraints-lowest.txt
test-lowest test-newest: test-%:
	$(PYTHON) -m venv --clear build/$*
	build/$*/bin/pip install --quiet --disable-pip-version-check $(VERSIONS) \
		$(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) --editable ".[dev]"
	PATH="$(CURDIR)/build/$*/bin:$$PATH" build/$*/bin/pytest --numprocesses 2

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# A dry run without wheels of this machine's own: they hide pins that contradict each other.
check-pins:
	$(PYTHON) -m venv --clear build/pins
	env -u PIP_FIND_LINKS PIP_CONFIG_FILE=/dev/null build/pins/bin/pip install $(PIP_OPTIONS) --dry-run ".[dev]"

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# Built twice, byte-equal, and run from the wheel in an environment that has nothing else.
release: export SOURCE_DATE_EPOCH := $(shell git log -1 --format=%ct)
release: $(STAMP)
	rm -rf dist build/again
	$(BIN)/python -m build --outdir dist
	$(BIN)/python -m build --outdir build/again
	set -e; for file in dist/*; do cmp "$$file" "build/again/$${file##*/}"; done
	$(PYTHON) -m venv --clear build/bare
	build/bare/bin/pip install $(PIP_OPTIONS) \
		$(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) dist/*.whl
	cd build/bare && bin/foretaste demo --output demo

# Seconds and quality in turns with an earlier release: make compare-release SINCE=v1.0.0rc1
compare-release: release
	git worktree add --force --detach build/since $(SINCE)
	$(BIN)/python -m benchmarks.leaderboard --data build/bare/demo --datasets dataset \
		--models ease ials vae neumf --seeds 1 2 3 --threads 1 --beside build/since
	git worktree remove --force build/since

clean:
	rm -rf $(VENV) build dist site
