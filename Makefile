# Two commands are enough: `make demo` trains a GPT on real text, `make test` runs every test.
# `make help` lists the rest.
JOBS ?= $(shell sh scripts/jobs.sh)
PREFIX ?= /usr/local
# A GPU machine builds the CUDA backend; elsewhere `make cuda` compiles it. CUDA_ARCHS: compute capabilities (80;89;90a;100;120).
CREST_CUDA ?= $(shell sh scripts/cuda-device.sh)
CUDA_ARCHS ?= $(shell sh scripts/cuda-device.sh archs)
# What `make cuda` builds of it: crest, test_ops, ... (everything).
CUDA_TARGETS ?=
FUZZ_SECONDS ?= 10
# ON: a compiler's warning is an error, as in .ci/run. Who works on Crest exports it; a newer compiler must not stop others.
CREST_WERROR ?= OFF
fuzz_targets = $(patsubst tests/fuzz/%.cpp,fuzz_%,$(wildcard tests/fuzz/*.cpp))

.PHONY: help deps clang-deps build cuda all-targets test demo install dist format check-format check-layers tidy asan \
  fuzz tsan coverage ledger clean
.DEFAULT_GOAL := help

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

deps:
	@sh scripts/install-deps.sh build $(if $(filter-out OFF,$(CREST_CUDA))$(filter cuda,$(MAKECMDGOALS)),cuda)

# ninja runs cmake again by itself when a CMake file or the list of sources changed; here it runs when CREST_WERROR did.
build/%/build.ninja: build/werror.$(CREST_WERROR) | deps
	cmake --preset $* $(if $(filter release debug,$*),-DCREST_CUDA=$(CREST_CUDA)) "-DCREST_CUDA_ARCHS=$(CUDA_ARCHS)" \
	  -DCREST_WERROR=$(CREST_WERROR)
	@touch $@
build/werror.$(CREST_WERROR):
	@mkdir -p build && rm -f build/werror.* && touch $@

build: deps build/release/build.ninja ## installs what is missing and builds build/release/crest
	ninja -C build/release -j $(JOBS) crest

all-targets: deps build/release/build.ninja
	ninja -C build/release -j $(JOBS)

# Programs with the CUDA backend share all objects with the others but those that it changes. build/cuda is a link.
cuda: deps build/release/build.ninja ## compiles everything with the CUDA backend into build/cuda (needs nvcc, no GPU)
	cmake build/release -DCREST_CUDA_PROGRAMS=ON "-DCREST_CUDA_ARCHS=$(CUDA_ARCHS)"
	ninja -C build/release -j $(JOBS) $(if $(CUDA_TARGETS),$(addsuffix _cuda,$(CUDA_TARGETS)),cuda)
	@[ -L build/cuda ] || rm -rf build/cuda
	@ln -sfn release/cuda build/cuda

test: all-targets ## builds everything and runs every test
	ctest --test-dir build/release --output-on-failure -j $(JOBS)

demo: build ## trains a small GPT on real text for two minutes, lets it write, measures its levers, writes a report
	@sh scripts/demo.sh

install: build ## installs crest (PREFIX=/usr/local)
	cmake --install build/release --prefix "$(DESTDIR)$(PREFIX)"

dist: build ## makes build/dist/crest-VERSION-linux-ARCH.tar.gz, which runs on other Debian and Ubuntu machines
	@sh scripts/dist.sh build/release build/dist

format: ## formats the sources with clang-format 14
	@sh scripts/install-deps.sh format
	@sh scripts/format.sh

check-format: ## fails when a source is not formatted
	@sh scripts/install-deps.sh format
	@sh scripts/format.sh --check

check-layers: ## fails when an include breaks src/layers.txt
	@sh scripts/install-deps.sh format
	@python3 scripts/check-layers.py

tidy: clang-deps build/sanitize/build.ninja ## runs clang-tidy over what differs from main (TIDY_ALL=1: over everything)
	@sh scripts/install-deps.sh tidy
	@JOBS=$(JOBS) sh scripts/tidy.sh build/sanitize

# Sanitizers and fuzzers share one build by clang.
build/sanitize/build.ninja build/tsan/build.ninja build/coverage/build.ninja: | clang-deps
clang-deps: deps
	@sh scripts/install-deps.sh fuzz

asan: clang-deps build/sanitize/build.ninja ## runs unit tests with address and undefined-behaviour sanitizers
	ninja -C build/sanitize -j $(JOBS) tests_sanitize
	ctest --preset sanitize -j $(JOBS)

fuzz: clang-deps build/sanitize/build.ninja ## runs each libFuzzer target for FUZZ_SECONDS=10
	ninja -C build/sanitize -j $(JOBS) $(fuzz_targets)
	JOBS=$(JOBS) sh tests/fuzz/run.sh $(FUZZ_SECONDS)

tsan: clang-deps build/tsan/build.ninja ## runs tests of what has threads with the thread sanitizer (not in .ci/run)
	ninja -C build/tsan -j $(JOBS) tests_tsan
	sh scripts/tsan.sh ctest --preset tsan

coverage: clang-deps build/coverage/build.ninja ## runs every test and prints how much of each folder ran (not in .ci/run)
	@sh scripts/install-deps.sh coverage
	ninja -C build/coverage -j $(JOBS)
	JOBS=$(JOBS) python3 scripts/coverage.py build/coverage

ledger: build ## measures the last accepted commit (BASE=COMMIT) against this tree, adds a line to docs/results/ledger.jsonl
	CREST_CUDA=$(CREST_CUDA) JOBS=$(JOBS) python3 scripts/ledger.py $(if $(BASE),--base $(BASE))

clean: ## removes build/ (runs and caches stay)
	rm -rf build
