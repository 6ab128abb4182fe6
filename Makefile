# Two commands are enough: `make demo` trains a GPT on real text, `make test` runs every test.
# `make help` lists the rest.
JOBS ?= $(shell sh scripts/jobs.sh)
PREFIX ?= /usr/local
# A GPU machine builds the CUDA backend; elsewhere `make cuda` compiles it. CUDA_ARCHS: compute capabilities (80;89;90a).
CREST_CUDA ?= $(shell sh scripts/cuda-device.sh)
CUDA_ARCHS ?= $(shell sh scripts/cuda-device.sh archs)
# What `make cuda` builds of it: crest, test_ops, ... (everything).
CUDA_TARGETS ?=
FUZZ_SECONDS ?= 10
# Test programs that run under sanitizers: those of what reads files and of what computes addresses.
ASAN_TESTS ?= core program ops passes plan data checkpoint malformed lab store
asan_tests = $(foreach t,$(ASAN_TESTS),$(if $(wildcard tests/$(t)/*.cpp),$(t)))
fuzz_targets = $(patsubst tests/fuzz/%.cpp,fuzz_%,$(wildcard tests/fuzz/*.cpp))
space := $(subst ,, )

.PHONY: help deps sanitize-deps build cuda all-targets test demo install dist format check-format asan fuzz clean
.DEFAULT_GOAL := help

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

deps:
	@sh scripts/install-deps.sh build $(if $(filter-out OFF,$(CREST_CUDA))$(filter cuda,$(MAKECMDGOALS)),cuda)

# ninja runs cmake again by itself when a CMake file or the list of sources changed.
build/%/build.ninja: | deps
	cmake --preset $* $(if $(filter release debug,$*),-DCREST_CUDA=$(CREST_CUDA)) "-DCREST_CUDA_ARCHS=$(CUDA_ARCHS)"

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

# Sanitizers and fuzzers share one build by clang.
build/sanitize/build.ninja: | sanitize-deps
sanitize-deps: deps
	@sh scripts/install-deps.sh fuzz

# Of programs in two shards (ops: a thousand cases a shard) the first: every second case.
asan: sanitize-deps build/sanitize/build.ninja ## runs unit tests with address and undefined-behaviour sanitizers
	ninja -C build/sanitize -j $(JOBS) $(addprefix test_,$(asan_tests))
	ctest --test-dir build/sanitize --output-on-failure -j $(JOBS) -R '^($(subst $(space),|,$(strip $(asan_tests))))([.]0)?$$'

fuzz: sanitize-deps build/sanitize/build.ninja ## runs each libFuzzer target for FUZZ_SECONDS=10
	ninja -C build/sanitize -j $(JOBS) $(fuzz_targets)
	JOBS=$(JOBS) sh tests/fuzz/run.sh $(FUZZ_SECONDS)

clean: ## removes build/ (runs and caches stay)
	rm -rf build
