# Needs make, bash and Python 3.10+ with venv; everything else is installed into .venv on first use.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# Why constraints for the demo too? An unpinned torch is gigabytes of CUDA libraries; the pin takes the CPU build
# where pip is shown a place that has it, with PIP_FIND_LINKS or PIP_EXTRA_INDEX_URL.
INSTALL := $(BIN)/python -m pip install --constraint constraints.txt --editable

# Every child process would compile the package anew where the environment forbids to keep what was compiled.
unexport PYTHONDONTWRITEBYTECODE

# Stamps: nothing is installed again until pyproject.toml or constraints.txt changes.
DEMO_ENVIRONMENT := $(VENV)/.installed-demo
TEST_ENVIRONMENT := $(VENV)/.installed-test

GPU_VENV := .venv-gpu
GPU_BIN := $(GPU_VENV)/bin
GPU_ENVIRONMENT := $(GPU_VENV)/.installed

.PHONY: help install demo demo-cost test test-all gpu-test gpu-is-there lint format bench snapshots clean

help: ## Show the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' Makefile

$(DEMO_ENVIRONMENT): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) '.[cpu,torch,tensorflow,openvino,nncf,litert,report,tensorrt-rtx]'
	touch $@

# The wheels are not installed, since they import beside a GPU alone: tests read the names of TensorRT 10 and 11 in them.
$(TEST_ENVIRONMENT): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) '.[cpu,torch,tensorflow,openvino,nncf,images,litert,parquet,report,tensorrt-rtx,dev]'
	$(BIN)/python -m pip download --constraint constraints.txt --no-deps --only-binary=:all: \
	  --dest $(VENV)/wheels tensorrt-cu12-bindings tensorrt-cu13-bindings
	touch $@

# Gigabytes are installed on a machine that can use them only. `cpu` and `gpu` hold two builds of one module, so this
# environment is its own; TensorRT's libraries come from NVIDIA's package index, which its package on PyPI names.
$(GPU_ENVIRONMENT): pyproject.toml constraints.txt | gpu-is-there
	$(PYTHON) -m venv $(GPU_VENV)
	$(GPU_BIN)/python -m pip install --constraint constraints.txt --editable '.[gpu,torch,tensorflow,tensorrt-rtx,dev]'
	touch $@

gpu-is-there:
	@PYTHONPATH=src $(PYTHON) -c 'import sys; from paritygate.machine import gpu_of_machine; sys.exit(None if \
	  gpu_of_machine() else "gpu-test: the CUDA driver shows no NVIDIA GPU to this process: nothing was run")'

install: $(DEMO_ENVIRONMENT) ## Make .venv with all that a machine without a GPU runs, and do nothing else

# Prerequisites are made in this order: what it costs is said before anything is downloaded.
demo: demo-cost $(DEMO_ENVIRONMENT) ## Export, compare, gate and release the two demo models
	$(BIN)/convert-and-validate run klue-sts
	$(BIN)/convert-and-validate run klue-sts-tf
	$(BIN)/convert-and-validate export face-resnet50 --target tensorrt-rtx-fp32 --target tensorrt-rtx-fp16

demo-cost:
	@test -e $(DEMO_ENVIRONMENT) || printf '%s\n' \
	  'make demo first installs into $(VENV)/: 1 GB to download, 4 GB of disk, about' \
	  '4 minutes. Where pip finds no CPU build of torch, it downloads gigabytes of' \
	  'CUDA libraries besides: README.md, Install, says how to spare them.'
	@printf '%s\n' \
	  'Then it converts and compares two small models for about 15 minutes on 2 cores,' \
	  'without a GPU or a network, and writes to artifacts/ alone.'

# Passive: where each core has a worker, threads of PyTorch that wait busily take the core from the other one.
PYTEST := OMP_WAIT_POLICY=passive $(BIN)/python -m pytest --numprocesses auto --dist worksteal

test: lint ## Lint, check the types and run the tests, but for the thorough ones
	$(PYTEST) -m 'not thorough'

test-all: lint ## The same with all tests
	$(PYTEST)

gpu-test: gpu-is-there $(GPU_ENVIRONMENT) ## On a GPU machine: run what needs a GPU, write benchmarks/results/gpu_parity.json
	status=0; \
	$(GPU_BIN)/python -m pytest -m gpu || status=$$?; \
	$(GPU_BIN)/python benchmarks/gpu_parity.py --out benchmarks/results/gpu_parity.json || status=$$?; \
	exit $$status

lint: $(TEST_ENVIRONMENT) ## Lint, check the format and the types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy src

format: $(TEST_ENVIRONMENT) ## Sort imports, mend what can be mended, format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(DEMO_ENVIRONMENT) ## Measure what comparing costs beside inference
	$(BIN)/python benchmarks/compare_overhead.py

OUT ?= build/snapshots
snapshots: $(TEST_ENVIRONMENT) ## Write what users and programs see to OUT=build/snapshots, for a diff with another version's
	$(BIN)/python benchmarks/snapshots.py $(OUT)

clean: ## Remove the environment, builds and caches; artifacts/ stays
	rm -rf $(VENV) $(GPU_VENV) build dist src/paritygate.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find convert validate pipelines fixtures src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
