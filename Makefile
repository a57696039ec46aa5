# Everything runs in .venv, which is made on first use with nothing but Python (>= 3.11), its venv module and pip.
#   make sweep       the demo sweep, end to end      make lint         ruff and mypy --strict
#   make test        the fast tests                  make format       let ruff fix what it can
#   make test-full   only the slow tests             make lock         renew requirements.lock
#   make test-gpu    only the tests that need CUDA   make clean        remove everything that was made
#   make test-lowest tests of the core install, on the lowest versions that pyproject.toml allows
#   make docs        the documentation as a site, in build/site; every warning is an error
# Variables: PYTHON (python3), JOBS (2: test processes), PIP_ARGS (more arguments for `pip install`), ARGS (for pytest or hpo).

PYTHON ?= python3
JOBS ?= 2
PIP_ARGS ?=
ARGS ?=

PY := .venv/bin/python
PIP_INSTALL := $(PY) -m pip install --quiet --disable-pip-version-check $(PIP_ARGS)
PYTEST := OMP_NUM_THREADS=1 RAY_USAGE_STATS_ENABLED=0 $(PY) -m pytest
# loadfile keeps a file's tests in one process, so that what a module sets up (a Ray head, a fitted model) is set up once.
FAST := $(PYTEST) -m "not slow and not gpu" -n $(JOBS) --dist loadfile --junitxml=build/junit-fast.xml -o junit_suite_name=fast
SLOW := $(PYTEST) -m "slow or gpu" --timeout=1200 --junitxml=build/junit-slow.xml -o junit_suite_name=slow

# A virtual environment holds absolute paths: one that came along with a moved or copied checkout is made anew.
ifneq "$(shell cat .venv/checkout 2>/dev/null)" "$(CURDIR)"
.PHONY: .venv/installed
endif

.PHONY: sweep test test-full test-gpu test-lowest docs lint lint-rules lint-format lint-types format lock clean setup
.DELETE_ON_ERROR:

sweep: setup
	.venv/bin/hpo sweep bench/demo.yaml --out "runs/demo-$$(date +%Y%m%d-%H%M%S)" $(ARGS)

test: setup
	$(FAST) $(ARGS)

test-full: setup
	$(SLOW) $(ARGS)

test-gpu: setup
	$(PYTEST) -m gpu --timeout=600 $(ARGS)

# The core install at its lowest versions: without torch and Ray, so without the tests that need either.
CORE_TESTS := tests/unit/adapters tests/unit/bench tests/unit/commands tests/unit/core tests/unit/reporting tests/unit/search_spaces \
  tests/unit/test_cli.py tests/property tests/reference tests/contract tests/end_to_end/test_bench_replay.py \
  tests/end_to_end/test_check.py tests/end_to_end/test_monitor.py tests/end_to_end/test_plan.py
NEED_TORCH_OR_RAY := tests/contract/test_ray_* tests/contract/test_optuna_callbacks.py tests/unit/adapters/test_ray_* \
  tests/unit/bench/test_loop_overhead.py tests/unit/bench/test_matmul_rate.py tests/unit/bench/test_own_runs.py \
  tests/reference/test_published_sizes.py

test-lowest:
	rm -rf build/lowest && "$(PYTHON)" -m venv build/lowest
	"$(PYTHON)" -c 'import tomllib; p = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
	  print(*(r.replace(">=", "==") for r in p["dependencies"]), sep="\n")' > build/lowest.txt
	build/lowest/bin/python -m pip install --quiet $(PIP_ARGS) -r build/lowest.txt hypothesis pytest pytest-timeout pytest-xdist
	build/lowest/bin/python -m pip install --quiet --no-deps --editable .
	OMP_NUM_THREADS=1 build/lowest/bin/python -m pytest -m "not slow and not gpu" -n $(JOBS) --dist loadfile \
	  -W ignore::optuna.exceptions.ExperimentalWarning -k "not ray_asha and not upsets_no_rule and not without_tensorboard" \
	  $(addprefix --ignore-glob=,$(NEED_TORCH_OR_RAY)) $(CORE_TESTS) $(ARGS)

docs: setup
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict --quiet
	@echo "build/site/index.html" >&2

lint: lint-rules lint-format lint-types

lint-rules: setup
	$(PY) -m ruff check .

lint-format: setup
	$(PY) -m ruff format --check .

lint-types: setup
	$(PY) -m mypy

format: setup
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

setup: .venv/installed

.venv/installed: requirements.lock pyproject.toml
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "collapse-hpo needs Python 3.11 or newer: make PYTHON=/path/to/python3.11 ..." >&2; exit 1; }
	@echo "setting up .venv (once; a few minutes, most of it torch and Ray)" >&2
	@rm -f .venv/installed
	@[ "$$(cat .venv/checkout 2>/dev/null)" = "$(CURDIR)" ] || rm -rf .venv
	"$(PYTHON)" -m venv .venv
	$(PIP_INSTALL) -r requirements.lock
	$(PIP_INSTALL) --no-deps --no-build-isolation --editable .
	@printf '%s\n' "$(CURDIR)" > .venv/checkout
	@touch .venv/installed

# torch is asked for by its exact version, so that the lock changes it only when this line does; the build's label (+cpu,
# +cu130) is dropped, so that each machine takes the build its pip offers.
lock:
	rm -rf build/lock && "$(PYTHON)" -m venv build/lock
	build/lock/bin/python -m pip install --quiet $(PIP_ARGS) 'torch==2.13.0' '.[sweep,dev,docs,frameworks]'
	{ echo "# Every package of the development environment, pinned. Made by \`make lock\`; do not edit."; \
	  build/lock/bin/python -m pip freeze --all | sed -E '/^(pip|wheel|collapse-hpo|nvidia-[^=]*|triton)( @|==)/d; s/^(torch==[^+]*)\+.*/\1/'; \
	} > build/requirements.lock
	mv build/requirements.lock requirements.lock
	rm -rf build/lock build/lib build/bdist.*

clean:
	rm -rf .venv build dist *.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
