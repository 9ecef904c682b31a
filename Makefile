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

# Packages that build other people's architectures; nothing but the zoo needs them.
ZOO_VENV := .venv-zoo
ZOO_BIN := $(ZOO_VENV)/bin
ZOO_ENVIRONMENT := $(ZOO_VENV)/.installed
ZOO_OUT ?= build/zoo

# What builds the site, and nothing of the product.
DOCS_VENV := .venv-docs
DOCS_ENVIRONMENT := $(DOCS_VENV)/.installed

# A real Triton server for tests: the wheel that carries its binary is unpacked and installed nowhere, since it asks for
# an older NumPy; what its backend runs is an environment of its own.
TRITON_VENV := .venv-triton
TRITON_ENVIRONMENT := $(TRITON_VENV)/.installed

# Servers written in Python, each in an environment of its own: some do not resolve together.
SERVERS_VENV := .venv-servers
SERVERS := fastapi litserve bentoml mlserver kserve ray
SERVERS_ENVIRONMENTS := $(SERVERS:%=$(SERVERS_VENV)/%/.installed)

.PHONY: help install install-test install-cost demo demo-cost triton-cost live-cost servers-cost triton-demo live-demo triton-tune test test-all triton-test live-test servers-test gpu-test gpu-is-there lint style format docs bench bench-diagnose snapshots zoo clean

help: ## Show the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' Makefile

$(DEMO_ENVIRONMENT): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) '.[cpu,torch,tensorflow,openvino,nncf,endpoint,images,litert,metrics,parquet,signing,stores,tensorrt-rtx]'
	touch $@

# The wheels are not installed, since they import beside a GPU alone: tests read the names of TensorRT 10 and 11 in them.
$(TEST_ENVIRONMENT): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) '.[cpu,torch,tensorflow,openvino,nncf,endpoint,images,litert,metrics,parquet,signing,stores,tensorrt-rtx,dev]'
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
	@$(PYTHON) -c 'import ctypes.util, sys; found = ctypes.util.find_library("cuda"); sys.exit(None if found and \
	  ctypes.CDLL(found).cuInit(0) == 0 else "gpu-test: the CUDA driver shows no NVIDIA GPU to this process: nothing was run")'

install: $(DEMO_ENVIRONMENT) ## Make .venv with all that a machine without a GPU runs, and do nothing else

install-test: $(TEST_ENVIRONMENT) ## Make .venv with what the tests need besides, and do nothing else

# Prerequisites are made in this order: what it costs is said before anything is downloaded.
demo: demo-cost $(DEMO_ENVIRONMENT) ## Export, compare, gate and release the two demo models
	$(BIN)/convert-and-validate run klue-sts
	$(BIN)/convert-and-validate run klue-sts-tf
	$(BIN)/convert-and-validate export face-resnet50 --target tensorrt-rtx-fp32 --target tensorrt-rtx-fp16

install-cost:
	@test -e $(DEMO_ENVIRONMENT) || printf '%s\n' \
	  'First $(VENV)/ is installed: 1 GB to download, 4 GB of disk, about 4 minutes.' \
	  'Where pip finds no CPU build of torch, it downloads gigabytes of CUDA libraries' \
	  'besides: README.md, Install, shows how to spare them.'

demo-cost: install-cost
	@printf '%s\n' \
	  'Then it converts and compares two small models for about 8 minutes on 2 cores,' \
	  'without a GPU or a network, and writes to artifacts/ alone.'

triton-cost: install-cost
	@test -e $(TRITON_ENVIRONMENT) || printf '%s\n' \
	  'A real Triton and a proxy go into $(TRITON_VENV)/: 140 MB to download, 610 MB of disk.'
	@printf '%s\n' \
	  'Then it converts, serves and compares a small model for about 5 minutes on 2' \
	  'cores, without a GPU or a network, and writes to artifacts/ alone.'

live-cost: install-cost
	@test -e $(TRITON_ENVIRONMENT) || printf '%s\n' \
	  'A real Triton and a proxy go into $(TRITON_VENV)/: 140 MB to download, 610 MB of disk.'
	@printf '%s\n' \
	  'Then it releases a small model if there is none, loads its server, and judges its' \
	  'traffic for about 6 minutes on 2 cores. All of it listens on 127.0.0.1 alone,' \
	  'and ends with the command, also after Ctrl-C.'

# Passive: where each core has a worker, threads of PyTorch that wait busily take the core from the other one.
# Plugins by name: of every package with a plugin that pytest finds, ours too, it compiles all modules again, in each worker.
PYTEST_ARGUMENTS ?=
PYTEST := OMP_WAIT_POLICY=passive PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 $(BIN)/python -m pytest \
  -p xdist.plugin -p pytest_timeout -p _hypothesis_pytestplugin --numprocesses auto --dist worksteal $(PYTEST_ARGUMENTS)

# Checking the types takes one core for a minute or two, so the tests do not wait for it.
TYPES_AND = mkdir -p build; \
	$(BIN)/mypy src > build/types.txt 2>&1 & types=$$!; \
	status=0; $(1) || status=$$?; \
	wait $$types || status=$$?; cat build/types.txt; exit $$status

test: style ## Lint, check the types and run the tests, but for the thorough ones
	$(call TYPES_AND,$(PYTEST) -m 'not thorough')

test-all: style ## The same with all tests, as continuous integration does every night
	$(call TYPES_AND,$(PYTEST))

$(TRITON_ENVIRONMENT): benchmarks/triton/requirements.txt benchmarks/triton/unpack.py
	$(PYTHON) -m venv $(TRITON_VENV)
	$(TRITON_VENV)/bin/python -m pip install --only-binary=:all: --requirement benchmarks/triton/requirements.txt
	$(TRITON_VENV)/bin/python -m pip download --no-deps --only-binary=:all: --dest $(TRITON_VENV)/wheels nvidia-pytriton==0.7.0
	$(TRITON_VENV)/bin/python benchmarks/triton/unpack.py $(TRITON_VENV)/wheels $(TRITON_VENV)/server
	touch $@

triton-test: $(TEST_ENVIRONMENT) $(TRITON_ENVIRONMENT) ## Release to a real Triton server and hold its answers against the model's
	$(BIN)/python -m pytest -m triton tests/triton

triton-demo: triton-cost $(DEMO_ENVIRONMENT) $(TRITON_ENVIRONMENT) ## From a release to a real Triton server that answers it, compared over gRPC
	$(BIN)/python benchmarks/triton/demo.py $(TRITON_VENV)

live-demo: live-cost $(DEMO_ENVIRONMENT) $(TRITON_ENVIRONMENT) ## Load a real Triton, judge its traffic through a real proxy, and find a wrong file
	$(BIN)/python benchmarks/triton/live_demo.py $(TRITON_VENV)

# The whole folders: with the thorough tests, whose servers are processes of their own.
live-test: $(TEST_ENVIRONMENT) $(TRITON_ENVIRONMENT) ## Test load, endurance, shadow and capture with real servers and a real proxy
	$(BIN)/python -m pytest tests/pipelines/live tests/pipelines/shadow tests/triton/test_triton_live.py tests/triton/test_triton_chain.py

$(SERVERS_VENV)/%/.installed: benchmarks/servers/requirements/%.txt pyproject.toml
	$(PYTHON) -m venv $(SERVERS_VENV)/$*
	$(SERVERS_VENV)/$*/bin/python -m pip install --requirement $< --editable '.[cpu]'
	touch $@

servers-cost:
	@for each in $(SERVERS_ENVIRONMENTS); do test -e $$each || { printf '%s\n' \
	  'Six servers are installed into $(SERVERS_VENV)/, each with its own environment: 3.3 GB of disk.'; break; }; done

servers-test: servers-cost $(TEST_ENVIRONMENT) $(SERVERS_ENVIRONMENTS) ## Release to six servers written in Python, judge their answers, write the table of docs/results-servers.md
	rm -rf build/servers
	status=0; \
	$(BIN)/python -m pytest -m servers tests/servers || status=$$?; \
	$(BIN)/python benchmarks/servers/table.py || status=$$?; \
	exit $$status

TUNE_ARGUMENTS ?=
triton-tune: $(DEMO_ENVIRONMENT) $(TRITON_ENVIRONMENT) ## Tune a model on a real Triton server; TUNE_ARGUMENTS runs Model Analyzer beside it
	$(BIN)/python benchmarks/triton/tune.py $(TRITON_VENV) --out build/triton-tune.json $(TUNE_ARGUMENTS)

gpu-test: gpu-is-there $(GPU_ENVIRONMENT) ## On a GPU machine: run what needs a GPU, write benchmarks/results/gpu_parity.json
	status=0; \
	$(GPU_BIN)/python -m pytest -m gpu || status=$$?; \
	$(GPU_BIN)/python benchmarks/gpu_parity.py --out benchmarks/results/gpu_parity.json || status=$$?; \
	exit $$status

lint: style ## Lint, check the format and the types
	$(BIN)/mypy src

style: $(TEST_ENVIRONMENT)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(TEST_ENVIRONMENT) ## Sort imports, mend what can be mended, format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(DEMO_ENVIRONMENT) ## Measure what comparing, the whole gate and its cache cost beside inference
	$(BIN)/python benchmarks/compare_overhead.py
	$(BIN)/python benchmarks/gate_cost.py
	$(BIN)/python benchmarks/cache_cost.py

bench-diagnose: $(TEST_ENVIRONMENT) ## Plant faults into models without names, and count the operators that diagnose names
	$(BIN)/python benchmarks/diagnose.py
	$(BIN)/python benchmarks/diagnose_frameworks.py
	$(BIN)/python benchmarks/repair.py --model transformer
	$(BIN)/python benchmarks/repair_conversions.py

# Not installed with the product: its pages are read, and none of its code is imported.
$(DOCS_ENVIRONMENT): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(DOCS_VENV)
	$(DOCS_VENV)/bin/python -m pip install --constraint constraints.txt --editable '.[docs]'
	touch $@

docs: $(DOCS_ENVIRONMENT) ## Build the site from docs/ into build/docs; a link that leads nowhere is an error
	$(DOCS_VENV)/bin/python -m sphinx -W --keep-going -q -b html docs build/docs
	@echo 'open build/docs/index.html'

$(ZOO_ENVIRONMENT): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(ZOO_VENV)
	$(ZOO_BIN)/python -m pip install --constraint constraints.txt --editable \
	  '.[cpu,torch,tensorflow,openvino,litert,zoo]'
	touch $@

# Resumes where it was broken off; SHARD=1/4 does every fourth case. ZOO_ARGUMENTS takes what zoo.py takes.
zoo: $(ZOO_ENVIRONMENT) ## Convert, judge and check many architectures: hours; results go to ZOO_OUT=build/zoo, the table to docs/zoo.md
	nice $(ZOO_BIN)/python benchmarks/zoo/zoo.py --out $(ZOO_OUT) $(ZOO_ARGUMENTS)
	$(ZOO_BIN)/python benchmarks/zoo/table.py $(ZOO_OUT)/results.jsonl --machine "$$(nproc) cores, $$(uname -m)"

OUT ?= build/snapshots
snapshots: $(TEST_ENVIRONMENT) ## Write what users and programs see to OUT=build/snapshots, for a diff with another version's
	$(BIN)/python benchmarks/snapshots.py $(OUT)

clean: ## Remove the environment, builds and caches; artifacts/ stays
	rm -rf $(VENV) $(GPU_VENV) $(ZOO_VENV) $(DOCS_VENV) $(TRITON_VENV) $(SERVERS_VENV) build dist src/paritygate.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find convert validate pipelines fixtures src tests tools benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
