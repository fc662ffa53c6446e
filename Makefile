# SPDX-License-Identifier: Apache-2.0
# Everything a person types. Each target does its own set-up: Debian packages that are missing
# (tools/setup.sh), the build (build/), the Python environment (.venv). The logic is in tools/.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help demo test build soak compat gpu-test vgg19 wheel docs format lint clean

BUILD := build
# One cache of compilations for all checkouts.
export CCACHE_BASEDIR ?= $(CURDIR)
PROGRAM := bin/vramscope lib/libvramscope_probe.so lib/libvramscope_read.so

help:
	@echo "make demo      record a real PyTorch training and show where its memory went"
	@echo "make test      all tests that need no GPU"
	@echo "make build     build everything into build/; the program is build/bin/vramscope"
	@echo "make soak      the long tests: fuzzing, random driver programs (SECONDS_EACH=600)"
	@echo "make compat    oldest and newest PyTorch under every Python at hand; the table is in docs/VERSIONS.md"
	@echo "make gpu-test  the tests of a machine with a GPU; the figures go to bench/results/history.csv"
	@echo "make vgg19     the CUDA example with five convolutions; needs nvcc, cuBLAS, cuFFT and cuDNN 9"
	@echo "make wheel     the Python package with the program in it, and its sources, checked: dist/"
	@echo "make docs      the documentation as a site, in build/site/; it works offline"
	@echo "make format    clang-format all C++ files; make lint checks them, with clang-tidy (CHANGED=1: what changed)"
	@echo "make clean     remove what the targets above made"

build: configure
	cmake --build $(BUILD)

.PHONY: configure
configure:
	@tools/setup.sh
	@tools/configure.sh $(BUILD)

# The demo needs the program alone: no packages, no targets of tests. PyTorch comes while it compiles.
demo:
	@echo "This takes three to seven minutes on 2 cores: install, compile, record a training for 60 s."
	@tools/setup.sh --program
	@tools/configure.sh $(BUILD) --program
	@tools/venv.sh --torch --allow-debian-torch & torch=$$!; status=0; \
	  cmake --build $(BUILD) --target $(PROGRAM) || status=$$?; wait $$torch; exit $$status
	@tools/venv.sh $(BUILD) --allow-debian-torch
	@tools/demo.sh $(BUILD)

test: build
	@tools/setup.sh --tests
	@tools/prometheus.sh $(BUILD)
	@tools/venv.sh $(BUILD)
	@tools/test.sh $(BUILD)

soak: build
	@tools/setup.sh --fuzz
	@tools/venv.sh $(BUILD)
	@tools/soak.sh $(BUILD) $(or $(SECONDS_EACH),600)

compat:
	@tools/setup.sh --program
	@tools/configure.sh $(BUILD) --program
	@cmake --build $(BUILD) --target $(PROGRAM)
	@python3 tools/compat.py $(BUILD)

# The machine has its own Python with a CUDA PyTorch; nothing is installed there.
gpu-test:
	@status=0; python3 tests/gpu/run.py --build $(BUILD) --json $(BUILD)/gpu.json || status=$$?; \
	  [[ $$status -eq 2 ]] || python3 bench/history.py add $(BUILD)/gpu.json; exit $$status

vgg19:
	@examples/vgg19/build.sh $(BUILD)

wheel:
	@tools/setup.sh --program
	@tools/configure.sh $(BUILD) --program
	@cmake --build $(BUILD) --target $(PROGRAM)
	@tools/wheel.sh $(BUILD)

docs:
	@tools/setup.sh --program
	@tools/configure.sh $(BUILD) --program
	@cmake --build $(BUILD) --target bin/vramscope
	@tools/docs.sh $(BUILD)

format:
	@git ls-files '*.cc' '*.h' '*.cu' | xargs clang-format -i

lint:
	@tools/setup.sh
	@tools/setup.sh --lint
	@tools/lint.sh $(BUILD) $(if $(CHANGED),--changed)

clean:
	rm -rf build build-* .venv demo-out
