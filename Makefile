# agent-init. `make help` lists the targets.

VERSION     ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
STATICCHECK  = v0.8.2
LDFLAGS      = -s -w -X main.version=$(VERSION)
GO          ?= go
TOOLS        = $(CURDIR)/.cache/bin
FUZZTIME    ?= 30s
# What of the lab is about the packet filter, and so runs over each backend. Parsers of DNS, TLS and HTTP, files, logs
# and processes are the same code above all of them.
FILTER_LAB   = ^TestLab(Spine|ExitCode|Works|Inbound|Fault(Guard|Tampering)|Mode(Up|Sidecar|Reload|Containers)|Gate(Direct|Revoke|GuardKilled)|Grant$$|RefusalNetwork|E(05|1[4-79]|2[1-8]|3[0-9]|4[01]|5[67]|6[01]|67F|68|69|7[0-2]))
BASE_IMAGE  ?= debian:bookworm-slim
BUILD_BASE   = docker build -f Dockerfile.base --target debian --build-arg VERSION=$(VERSION)
PLACES       = docker
AGENTS       = $(patsubst images/%/packages,%,$(wildcard images/*/packages))

export CGO_ENABLED = 0

.DEFAULT_GOAL := help

## build: the static binary, at bin/agent-init
build:
	$(GO) build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' -o bin/agent-init ./cmd/agent-init

## demo: see it work, on this machine, without an engine and without the internet (needs root)
demo: build
	@test/prepare.sh base
	@$(GO) run ./internal/lab/cmd/demo

## test: everything: unit tests, network lab, containers (needs root; installs what it lacks)
test: test-prepare test-unit test-lab test-container test-agents test-places

test-prepare:
	@test/prepare.sh all

## test-unit: the tests that need no root, with the race detector
test-unit:
	CGO_ENABLED=1 $(GO) test -race -skip '^(TestKernel|TestLab|TestContainer)' ./...

## test-lab: real netfilter, DNS and TLS in network namespaces, over each packet filter (needs root)
test-lab: build
	CGO_ENABLED=1 AGENT_INIT_BIN=$(CURDIR)/bin/agent-init $(GO) test -race -count=1 -p 1 -timeout 30m -run '^(TestKernel|TestLab)' ./...
	for backend in xtables-nft xtables-legacy; do \
		CGO_ENABLED=1 AGENT_INIT_BIN=$(CURDIR)/bin/agent-init AGENT_INIT_TEST_BACKEND=$$backend \
			$(GO) test -race -count=1 -timeout 30m -run '$(FILTER_LAB)' ./test/attack || exit 1; \
	done

## test-container: the images, in a real engine of the test's own (needs root)
test-container: build
	AGENT_INIT_BIN=$(CURDIR)/bin/agent-init test/container.sh

## test-agents: every agent's image, against the names that it may reach (needs root; gets the agents with npm)
test-agents: build
	AGENT_INIT_BIN=$(CURDIR)/bin/agent-init test/agents.sh

## test-places: where people start agents: plain Docker, devcontainers, Compose, Kubernetes, Podman (needs root)
test-places: build
	AGENT_INIT_BIN=$(CURDIR)/bin/agent-init test/places.sh $(PLACES)

## test-gvisor: inside of gVisor, under a runsc that is built once (needs root)
test-gvisor: build
	AGENT_INIT_BIN=$(CURDIR)/bin/agent-init test/gvisor.sh

## lint: gofmt, vet, staticcheck, shellcheck, and govulncheck where it can be had
lint: $(TOOLS)/staticcheck
	@test/prepare.sh lint
	@out=$$(git ls-files '*.go' | xargs gofmt -l); if [ -n "$$out" ]; then echo "gofmt would change: $$out"; exit 1; fi
	$(GO) vet ./...
	GOARCH=arm64 $(GO) vet ./...
	$(TOOLS)/staticcheck ./...
	shellcheck $$(git ls-files '*.sh') .ci/run
	@if command -v govulncheck >/dev/null; then govulncheck ./...; else echo "govulncheck: not installed, not run"; fi

$(TOOLS)/staticcheck:
	GOBIN=$(TOOLS) $(GO) install honnef.co/go/tools/cmd/staticcheck@$(STATICCHECK)

## fuzz: every fuzz target, for FUZZTIME each (30s)
fuzz:
	test/fuzz.sh $(FUZZTIME)

## bench: the figures of docs/benchmarks.md (needs root)
bench: build
	@test/prepare.sh bench
	AGENT_INIT_BIN=$(CURDIR)/bin/agent-init $(GO) run ./internal/lab/cmd/bench

## supervision: the table of docs/supervision.md: agent-init, tini, dumb-init and catatonit under the same checks (needs root)
supervision: build
	@test/prepare.sh peers
	AGENT_INIT_BIN=$(CURDIR)/bin/agent-init $(GO) run ./internal/lab/cmd/pid1check -write docs/supervision.md

## image: agent-base (Debian) and agent-claude, with the local engine
image: image-claude

## image-base: agent-base; image-node, -python, -rust, -go: the same with a language
image-base: build
	$(BUILD_BASE) --build-arg DEBIAN=$(BASE_IMAGE) -t agent-base .
image-node: build
	$(BUILD_BASE) --build-arg DEBIAN=node:22-bookworm-slim --build-arg DETECT=npm -t agent-node .
image-python: build
	$(BUILD_BASE) --build-arg DEBIAN=python:3.13-slim-bookworm --build-arg DETECT=pip -t agent-python .
image-rust: build
	$(BUILD_BASE) --build-arg DEBIAN=rust:1-slim-bookworm --build-arg DETECT=cargo -t agent-rust .
image-go: build
	$(BUILD_BASE) --build-arg DEBIAN=golang:1.26-bookworm --build-arg DETECT=go -t agent-go .

## image-AGENT: agent-AGENT, for each directory of images: image-claude, image-codex, …
$(AGENTS:%=image-%): image-%: image-base
	images/fetch.sh $*
	docker build -t agent-$* images/$*
image-gemini image-qwen image-pi: image-node
image-aider: image-python

## man: the man pages, at bin/man, and the completions, at bin/completions
man: build
	@mkdir -p bin/man bin/completions
	bin/agent-init __man bin/man
	@for s in bash zsh fish; do bin/agent-init completion $$s >bin/completions/agent-init.$$s; done

## clean: remove what was built
clean:
	rm -rf bin .cache

## help: this list
help:
	@sed -n 's/^## \([a-zA-Z-]*\): /  \1\t/p' Makefile | expand -t 18

.PHONY: build demo test test-prepare test-unit test-lab test-container test-agents test-places test-gvisor lint fuzz bench supervision man clean help image \
	image-base image-node image-python image-rust image-go $(AGENTS:%=image-%)
