# Baton: `make demo` and `make test` do everything on a fresh Debian 12 or Ubuntu 24.04.
PRESET ?= cpu-release
BUILD := build/$(PRESET)

.PHONY: build test packages
packages:
	@packaging/install-packages

build: packages
	@test -f $(BUILD)/build.ninja || cmake --preset $(PRESET)
	@cmake --build $(BUILD)

test: build
	@ctest --test-dir $(BUILD) --output-on-failure
