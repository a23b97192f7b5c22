# Every target is a `cargo xtask` command; CONTRIBUTING.md says what each does.

.PHONY: help demo test test-kernels check book bench soak test-deploy gpu-ebpf-bridge gpu-ebpf-bridge-container rust

help:
	@echo 'make demo             ten seconds of the whole: bridge, BPF program, maps (needs root, asks for sudo)'
	@echo 'make test             every test, those that need root and BPF included'
	@echo 'make test-kernels     the tests that matter on other kernels, in virtual machines: 5.10, 6.1, 6.12'
	@echo 'make check            format, lints, generated code, dependencies, documentation, links, the book'
	@echo 'make book             the documentation as a book, target/book/index.html'
	@echo 'make bench            what the bridge costs, measured: eight minutes on a quiet machine (docs/performance.md)'
	@echo 'make soak             the bridge under everything at once, for ten minutes (docs/testing.md)'
	@echo 'make test-deploy      what is delivered: release binaries, image, unit, packages; builds them all, the release twice: 20 minutes'
	@echo 'make gpu-ebpf-bridge  the release binary, ./gpu-ebpf-bridge'
	@echo 'make gpu-ebpf-bridge-container  the container image, with docker, podman or buildah'
	@echo 'All of them install what this machine lacks first, and say so.'

demo test test-kernels check book bench soak: rust
	@cargo xtask $@

gpu-ebpf-bridge: rust
	@cargo xtask build

gpu-ebpf-bridge-container: rust
	@cargo xtask deploy image

test-deploy: rust
	@cargo xtask deploy test

# What xtask itself cannot be built without.
rust:
	@command -v cargo >/dev/null || { echo 'Rust is missing: install 1.88 or newer with rustup, see https://rustup.rs'; exit 1; }
	@cargo --version | awk '{ split($$2, v, "."); exit !(v[1] > 1 || v[2] >= 88) }' || \
		{ echo "Rust 1.88 or newer is needed, this is $$(cargo --version): install it with rustup, see https://rustup.rs"; exit 1; }
	@command -v cc >/dev/null || { echo 'A C compiler is missing: apt-get install gcc libc6-dev, or dnf install gcc'; exit 1; }
