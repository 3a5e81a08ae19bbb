# Baton: `make demo` and `make test` do everything on a fresh Debian 12 or Ubuntu 24.04; `make` alone lists the rest.
PRESET ?= cpu-release
BUILD := build/$(PRESET)
PREFIX ?= /usr/local
PYTHON ?= python3
FUZZ_SECONDS ?= 60
VENV_REQUIREMENTS := tools/lint_requirements.txt bench/report/requirements.txt $(wildcard tests/e2e/requirements.txt)
# Clients whose bounds on versions exclude each other; what they need is in tests/e2e/requirements.txt.
VENV_WITHOUT_DEPENDENCIES := $(wildcard tests/e2e/requirements_without_dependencies.txt)
# Clients that ask for older versions of what other clients need have an environment of their own.
VENV_CLIENTS_REQUIREMENTS := $(wildcard tests/e2e/clients/requirements.txt)
SOAK := $(wildcard tests/e2e/soak.py)
HOSTILE := $(wildcard tests/e2e/hostile)

.DEFAULT_GOAL := help
.PHONY: help build demo test test-long test-ranks e2e wheel python-test deploy-test asan tsan fuzz bench bench-quick report format lint install clean
BENCH_SCALE ?= quick

help:  ## list the targets
	@awk -F ':.*## ' -v soak='$(SOAK)' -v hostile='$(HOSTILE)' '/^[a-z0-9-]+:.*## / && ($$1 != "soak" || soak) && ($$1 != "hostile" || hostile) { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "Variables: PRESET=$(PRESET) PREFIX=$(PREFIX) FUZZ_SECONDS=$(FUZZ_SECONDS) NO_INSTALL=1 (never install packages)"

build:  ## the programs: build/PRESET/bin/baton, baton-bench (asks before it installs missing packages)
	@packaging/install-packages build
	@packaging/compile $(PRESET)

demo: build  ## what sharing a prompt saves, then 64 questions about one catalogue over HTTP
	@$(BUILD)/bin/baton demo $(DEMO_FLAGS)

test:  ## C++ tests and goldens: offline, some twelve processor minutes once they are built
	@packaging/install-packages build test
	@packaging/compile $(PRESET) all test_programs
	@tools/run_tests $(BUILD) short

test-long:  ## what cannot be small (tests/support/long_run.h): failing allocations, drawn schemas, more seeds; under ten processor minutes
	@packaging/install-packages build test
	@packaging/compile $(PRESET) all test_programs
	@tools/run_tests $(BUILD) long

test-ranks:  ## the engine's tests with every CPU engine over 2, then over 4 processes
	@packaging/install-packages build test
	@packaging/compile $(PRESET) all engine_tests
	@for n in 2 4; do BATON_TEST_RANKS=$$n ctest --test-dir $(BUILD) -L '^ranks$$' --output-on-failure || exit 1; done

e2e: build build/venv/.ready $(if $(VENV_CLIENTS_REQUIREMENTS),build/venv-clients/.ready)  ## real clients against the server, two files at a time (Python in build/venv, build/venv-clients)
	@BATON_BINARY=$(CURDIR)/$(BUILD)/bin/baton build/venv/bin/python -m pytest -q -n 2 --dist loadfile tests/e2e

deploy-test: build build/venv-deploy/.ready  ## the files of deploy/: Ray, Kubernetes, Prometheus, systemd (Python in build/venv-deploy)
	@packaging/install-packages deploy
	@BATON_BINARY=$(CURDIR)/$(BUILD)/bin/baton build/venv-deploy/bin/python -m pytest -q -rs -W ignore tests/deploy

wheel: build build/venv-wheel/.ready  ## the Python package with the program inside: build/wheels
	@packaging/install-packages wheel
	@packaging/wheel build/venv-wheel/bin/python

python-test: wheel  ## the wheel in an environment of its own, and the examples of docs/python.md
	@$(PYTHON) -m venv --clear build/wheel-venv
	@build/wheel-venv/bin/python -m pip install -q --disable-pip-version-check build/wheels/*.whl $$(grep '^pytest==' tests/e2e/requirements.txt)
	@cd build && wheel-venv/bin/python -m pytest -q -p no:cacheprovider ../tests/python

asan:  ## the tests under the address and undefined-behaviour sanitizers
	@packaging/install-packages build test
	@packaging/compile cpu-asan all test_programs
	@tools/run_tests build/cpu-asan all

tsan:  ## the tests under the thread sanitizer
	@packaging/install-packages build test
	@packaging/compile cpu-tsan all test_programs
	@tools/run_tests build/cpu-tsan all

fuzz:  ## each parser of untrusted input, FUZZ_SECONDS each (clang-16, libFuzzer)
	@packaging/install-packages build fuzz
	@packaging/compile cpu-fuzz fuzz_programs
	@tools/run_fuzz build/cpu-fuzz $(FUZZ_SECONDS)

ifneq ($(SOAK),)
.PHONY: soak
soak: build build/venv/.ready  ## random clients, ends and restarts: SOAK_FLAGS="--minutes 30", PRESET=cpu-asan
	@BATON_BINARY=$(CURDIR)/$(BUILD)/bin/baton build/venv/bin/python $(SOAK) $(SOAK_FLAGS)
endif

ifneq ($(HOSTILE),)
.PHONY: hostile
hostile: build build/venv/.ready  ## floods and malformed requests, with limits: HOSTILE_FLAGS="--quick --minutes 1 --only stalled"
	@BATON_BINARY=$(CURDIR)/$(BUILD)/bin/baton PYTHONPATH=tests/e2e build/venv/bin/python -m hostile $(HOSTILE_FLAGS)
endif

bench:  ## micro-benchmarks (bench/*/*_bench.cpp), then baton bench attention
	@packaging/install-packages build bench && mkdir -p build
	@test -f $(BUILD)/build.ninja || cmake --preset $(PRESET) -Wno-dev > build/configure-$(PRESET).log
	@cmake -DBATON_BENCH=ON $(BUILD) > build/configure-$(PRESET).log
	@packaging/compile $(PRESET) all bench_programs
	@for program in $(BUILD)/bench/*_bench; do [ ! -x $$program ] || $$program || exit 1; done
	@$(BUILD)/bin/baton bench attention $(BENCH_FLAGS)

bench-quick: build build/venv/.ready  ## the papers' experiments, small, with the demo model: under 10 minutes, build/bench-quick
	@rm -rf build/bench-$(BENCH_SCALE)
	@bench/experiments/run_all.py --baton $(BUILD)/bin/baton --$(BENCH_SCALE) --results build/bench-$(BENCH_SCALE)
	@build/venv/bin/python bench/report/draw.py --results build/bench-$(BENCH_SCALE) --out build/bench-$(BENCH_SCALE)/figures
	@bench/report/fill.py --results build/bench-$(BENCH_SCALE) --print offline attention losses

report: build/venv/.ready  ## the figures and tables of docs/report, from bench/results
	@build/venv/bin/python bench/report/draw.py
	@bench/report/fill.py

format:  ## rewrite the sources as .clang-format says
	@packaging/install-packages lint
	@tools/lint --fix

lint: build/venv/.ready  ## formatting, layers, mirrors, locks, documents, lengths, Python
	@tools/lint

install: build  ## the programs, their modules and the demo model under PREFIX
	@cmake --install $(BUILD) --prefix $(PREFIX)

clean:  ## remove build/
	rm -rf build

# Python compiles what is imported; all that is installed would take as long again.
build/venv/.ready: $(VENV_REQUIREMENTS) $(VENV_WITHOUT_DEPENDENCIES)
	@packaging/install-packages e2e lint
	@$(PYTHON) -m venv --clear build/venv
	@build/venv/bin/python -m pip install -q --disable-pip-version-check --no-compile $(addprefix -r ,$(VENV_REQUIREMENTS))
	@build/venv/bin/python -m pip install -q --disable-pip-version-check --no-compile --no-deps $(addprefix -r ,$(VENV_WITHOUT_DEPENDENCIES))
	@touch $@

build/venv-wheel/.ready: packaging/wheel_requirements.txt
	@packaging/install-packages wheel
	@$(PYTHON) -m venv --clear build/venv-wheel
	@build/venv-wheel/bin/python -m pip install -q --disable-pip-version-check -r $<
	@touch $@

build/venv-clients/.ready: $(VENV_CLIENTS_REQUIREMENTS)
	@packaging/install-packages e2e
	@$(PYTHON) -m venv --clear build/venv-clients
	@build/venv-clients/bin/python -m pip install -q --disable-pip-version-check --no-compile $(addprefix -r ,$(VENV_CLIENTS_REQUIREMENTS))
	@touch $@

build/venv-deploy/.ready: tests/deploy/requirements.txt
	@packaging/install-packages e2e
	@$(PYTHON) -m venv --clear build/venv-deploy
	@build/venv-deploy/bin/python -m pip install -q --disable-pip-version-check -r $<
	@touch $@
