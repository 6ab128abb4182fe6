# `make build` builds build/release/crest, `make demo` trains a small GPT on real text, `make test` runs every test.
# `make help` lists the rest.
JOBS ?= $(shell sh scripts/jobs.sh)
PREFIX ?= /usr/local
# A GPU machine builds the CUDA backend; elsewhere `make cuda` compiles it. CUDA_ARCHS: compute capabilities (80;89;90a;100;120).
CREST_CUDA ?= $(shell sh scripts/cuda-device.sh)
CUDA_ARCHS ?= $(shell sh scripts/cuda-device.sh archs)
# What `make cuda` builds of it: crest, test_ops, ... (everything).
CUDA_TARGETS ?=
# ON: only to see that kernels compile, as .ci/run does; they are slow on a GPU.
CUDA_CHECK ?= OFF
FUZZ_SECONDS ?= 10
TIDY_SECONDS ?= 180
# ON: a compiler's warning is an error, as in .ci/run. Who works on Crest exports it; a newer compiler must not stop others.
CREST_WERROR ?= OFF
NINJA = @bash scripts/ninja.sh -j $(JOBS)
fuzz_targets = $(patsubst tests/fuzz/%.cpp,fuzz_%,$(wildcard tests/fuzz/*.cpp))

.PHONY: help deps clang-deps build cuda all-targets test demo install dist image wheel format check-format check-layers check-prose \
  tidy asan fuzz tsan coverage ledger clean
.DEFAULT_GOAL := help

##@ Use Crest
help: ## this list
	@awk -F ':.*## ' '/^##@ / {print (n++ ? "\n" : "") substr($$0, 5)} \
	  /^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

deps:
	@sh scripts/install-deps.sh build $(if $(filter-out OFF,$(CREST_CUDA))$(filter cuda,$(MAKECMDGOALS)),cuda)

# ninja runs cmake again by itself when a CMake file or the list of sources changed; here it runs when CREST_WERROR did.
build/%/build.ninja: build/werror.$(CREST_WERROR) | deps
	@echo "Configuring build/$* (log: build/$*.configure.log)"
	@cmake --preset $* $(if $(filter release debug,$*),-DCREST_CUDA=$(CREST_CUDA)) "-DCREST_CUDA_ARCHS=$(CUDA_ARCHS)" \
	  -DCREST_WERROR=$(CREST_WERROR) >build/$*.configure.log || { cat build/$*.configure.log; exit 1; }
	@touch $@
build/werror.$(CREST_WERROR):
	@mkdir -p build && rm -f build/werror.* && touch $@

build: deps build/release/build.ninja ## builds build/release/crest; lists missing packages, then installs them
	@[ -e build/release/crest ] || echo "Building build/release/crest: minutes the first time, seconds afterwards"
	$(NINJA) -C build/release crest

all-targets: deps build/release/build.ninja
	$(NINJA) -C build/release

# Programs with the CUDA backend share all objects with the others but those that it changes. build/cuda is a link.
cuda: deps build/release/build.ninja ## compiles the CUDA backend into build/cuda (needs nvcc, no GPU)
	@cmake build/release -DCREST_CUDA_PROGRAMS=ON -DCREST_CUDA_CHECK=$(CUDA_CHECK) "-DCREST_CUDA_ARCHS=$(CUDA_ARCHS)" \
	  >build/cuda.configure.log || { cat build/cuda.configure.log; exit 1; }
	$(NINJA) -C build/release $(if $(CUDA_TARGETS),$(addsuffix _cuda,$(CUDA_TARGETS)),cuda)
	@[ -L build/cuda ] || rm -rf build/cuda
	@ln -sfn release/cuda build/cuda

demo: ## builds, then trains a small GPT on real text and reports on it (five minutes)
	@sh scripts/demo.sh

install: build ## builds and installs crest (PREFIX=/usr/local)
	cmake --install build/release --prefix "$(DESTDIR)$(PREFIX)"

dist: build ## makes an archive in build/dist for other Debian and Ubuntu machines
	@sh scripts/dist.sh build/release build/dist

image: dist ## writes a container file for that archive into build/image; builds offline
	@sh scripts/image.sh "$$(ls -t build/dist/crest-*.tar.gz | head -1)" build/image

wheel: build $(if $(wildcard build/cuda/crest),cuda) ## makes a wheel for pip in build/wheel (with CUDA after make cuda), and tries it
	@rm -rf build/wheel && python3 scripts/wheel.py
	@sh tests/tools/check_wheel.sh build/wheel/crest_train-*.whl

##@ Work on Crest
test: all-targets ## builds everything and runs every test
	@sh scripts/install-deps.sh python || echo "Going on without the tests of the Python package."
	ctest --test-dir build/release --output-on-failure -j $(JOBS)

format: ## formats the sources with clang-format 14
	@sh scripts/install-deps.sh format
	@sh scripts/format.sh

check-format: ## fails on a source that make format would change
	@sh scripts/install-deps.sh format
	@sh scripts/format.sh --check

check-layers: ## fails on an include that src/layers.txt does not allow
	@sh scripts/install-deps.sh format
	@python3 scripts/check-layers.py

check-prose: ## fails on a phrase of scripts/banned-phrases.txt, and on prose over 100 columns
	@sh scripts/install-deps.sh format
	@python3 scripts/check-prose.py

tidy: clang-deps build/sanitize/build.ninja ## runs clang-tidy over the files that differ from main (TIDY_ALL=1: all)
	@sh scripts/install-deps.sh tidy
	@JOBS=$(JOBS) TIDY_SECONDS=$(TIDY_SECONDS) python3 scripts/tidy.py build/sanitize

# Sanitizers and fuzzers share one build by clang.
build/sanitize/build.ninja build/tsan/build.ninja build/coverage/build.ninja: | clang-deps
clang-deps: deps
	@sh scripts/install-deps.sh fuzz

asan: clang-deps build/sanitize/build.ninja ## runs tests with address and undefined-behavior sanitizers
	$(NINJA) -C build/sanitize tests_sanitize
	ctest --preset sanitize -j $(JOBS)

fuzz: clang-deps build/sanitize/build.ninja ## runs each libFuzzer target for FUZZ_SECONDS=10
	$(NINJA) -C build/sanitize $(fuzz_targets)
	JOBS=$(JOBS) sh tests/fuzz/run.sh $(FUZZ_SECONDS)

tsan: clang-deps build/tsan/build.ninja ## runs tests of threads with the thread sanitizer (not in .ci/run)
	$(NINJA) -C build/tsan tests_tsan
	sh scripts/tsan.sh ctest --preset tsan

coverage: clang-deps build/coverage/build.ninja ## runs every test, prints the share of lines that ran (not in .ci/run)
	@sh scripts/install-deps.sh coverage
	$(NINJA) -C build/coverage
	JOBS=$(JOBS) python3 scripts/coverage.py build/coverage

ledger: build ## measures this tree against BASE=COMMIT, adds to docs/results/ledger.jsonl
	CREST_CUDA=$(CREST_CUDA) JOBS=$(JOBS) python3 scripts/ledger.py $(if $(BASE),--base $(BASE))

clean: ## removes build/; runs and caches stay
	rm -rf build
