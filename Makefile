# Short names for what CMake, Ninja, CTest and tools/ do. Everything made lands in build/.

JOBS ?= $(shell nproc)
SECONDS_PER_FUZZER ?= 60
BUILD ?= build
PREFIX ?= /usr/local

# In a build for tests a warning is an error; `make test NDP_WERROR=` goes on.
test test-changed test-room test-all: export NDP_WERROR ?= 1

build: ## the program: build/ndparallel (installs nothing)
	@for tool in cmake ninja; do command -v $$tool >/dev/null || { echo "$$tool is missing: 'make deps' installs what the build needs" >&2; exit 1; }; done
	@cmake --preset release --log-level=WARNING >/dev/null
	@cmake --build build -j $(JOBS)

deps: ## installs the Debian packages that the build needs, those that are missing
	@tools/install-deps build

quickstart: deps build ## trains a small Llama on real text on 4 ranks, about a minute
	@tools/quickstart

test: ## installs, builds, tests
	@tools/install-deps build test
	@tools/test-python
	@tools/compile --again build
	@$(MAKE) --no-print-directory build
	@tools/check-sources
	@cmake --build build -j $(JOBS) --target tests benches
	@tools/run-tests build --label-regex short

test-samples: ## all generated cases of which `make test` runs some, kernels at lower levels of NDP_ISA, packages; after `make test`
	@tools/run-tests build --label-regex samples

test-changed: ## the short tests of the rooms that have changed since origin/main, or SINCE=COMMIT, and of those above them
	@tools/test-changed $(SINCE)

test-room: ## the short tests of one room: make test-room ROOM=mesh
	@[ -d "tests/$(ROOM)" ] && [ -n "$(ROOM)" ] || { echo "no tests/$(ROOM): ROOM=mesh, or another folder of tests/" >&2; exit 1; }
	@tools/install-deps build test
	@cmake --preset release --log-level=WARNING >/dev/null
	@tools/compile --again build
	@cmake --build build -j $(JOBS) --target tests-$(ROOM)
	@tools/run-tests build --label-exclude long --tests-regex '^$(ROOM)/'

test-all: test test-samples ## the long tests, the sanitizer builds, a minute of every fuzzer
	@tools/install-deps build test analysis packages slurm aarch64
	@tools/test-python dump
	@tools/run-tests build --label-regex long
	@tools/test-sanitized asan ubsan tsan
	@tools/fuzz $(SECONDS_PER_FUZZER)

cuda: build ## the plugin for NVIDIA's GPUs: build/ndp_cuda.so (needs nvcc)
	@cmake --build build -j $(JOBS) --target ndp_cuda

deps-cuda: ## takes NVIDIA's compiler, headers and cuBLASLt from PyPI into build/cuda
	@tools/gpu/deps-cuda

install: build ## program, libraries, header, manual pages, completion below PREFIX (/usr/local); DESTDIR for packages
	@tools/package/install $(BUILD) "$(PREFIX)" "$(DESTDIR)"

packages: build ## Debian packages of program, library, development files and plugins, in build/packages
	@cpack --config $(BUILD)/CPackConfig.cmake >$(BUILD)/packages.log 2>&1 || { tail -n 20 $(BUILD)/packages.log >&2; exit 1; }
	@rm -rf $(BUILD)/packages/_CPack_Packages && ls $(BUILD)/packages/*.deb

uninstall: ## removes what `make install` with the same PREFIX and DESTDIR put there
	@tools/package/uninstall "$(PREFIX)" "$(DESTDIR)"

bench: build ## our time beside the machine's floor
	@cmake --build build -j $(JOBS) --target benches
	@for b in build/bench_*; do [ ! -x $$b ] || { echo "== $${b##*/}"; $$b || exit; }; done

format: ## clang-format over all sources
	@find src include tests bench examples -name '*.[ch]' -o -name '*.cc' -o -name '*.hpp' -o -name '*.cu' -o -name '*.cuh' | xargs clang-format -i

clean: ## removes build/
	rm -rf build

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

.PHONY: build deps quickstart test test-samples test-changed test-room test-all cuda deps-cuda install packages uninstall bench format clean help
