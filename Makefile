PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# Where pip finds PyTorch; empty is pip's own index, whose build is for CUDA.
TORCH_INDEX ?= $(if $(shell command -v nvidia-smi 2>/dev/null),,https://download.pytorch.org/whl/cpu)
PIP_OPTIONS := --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test check check-pins format docs build clean

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
	$(BIN)/pytest --numprocesses 2

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

build: $(STAMP)
	$(BIN)/python -m build

clean:
	rm -rf $(VENV) build dist site
