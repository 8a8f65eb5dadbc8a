# agent-init. `make help` lists the targets.

VERSION     ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
STATICCHECK  = v0.8.2
ACTIONLINT   = v1.7.12
# Modules of their own, which "go test ./..." at the root leaves out.
MODULES      = internal/lab/cmd/bench internal/lab/pid1check
LDFLAGS      = -s -w -funcalign=16 -X main.version=$(VERSION)
GO          ?= go
# test/run.sh has one that says how far it is.
GOTEST      ?= $(GO) test
TOOLS        = $(CURDIR)/.cache/bin
FUZZTIME    ?= 30s
LAB          = test-lab-xtables-legacy test-lab-up test-lab-sidecar
# How many tests of the lab are under way at once. With more, some fail where processors are slow.
PARALLEL    ?= $(shell nproc)
RACE         = CGO_ENABLED=1 AGENT_INIT_BIN=$(CURDIR)/bin/agent-init $(GOTEST) -race -count=1 -p 2 -parallel $(PARALLEL) -timeout 60m
BASE_IMAGE  ?= debian:bookworm-slim
BUILD_BASE   = docker build -f Dockerfile.base --target debian --build-arg VERSION=$(VERSION)
PLACES      ?= docker compose devcontainer podman rootless kubernetes
VARIANTS     = $(shell awk '!/^\#/ {print $$1}' images/variants)
AGENTS       = $(patsubst images/%/packages,%,$(wildcard images/*/packages))

export CGO_ENABLED = 0

.DEFAULT_GOAL := help

## build: the static binary, at bin/agent-init
build:
	$(GO) build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' -o bin/agent-init ./cmd/agent-init

# Where there are no containers but in an engine's virtual machine.
HOSTS        = darwin-amd64 darwin-arm64 windows-amd64 windows-arm64

# host: what runs on a Mac and on Windows (agent-init launch and -C), at bin/host
host:
	@rm -rf bin/host && mkdir -p bin/host
	@for host in $(HOSTS); do \
		os=$${host%-*}; \
		GOOS=$$os GOARCH=$${host#*-} $(GO) build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' \
			-o bin/host/agent-init-$$host$$([ $$os != windows ] || echo .exe) ./cmd/agent-init-host || exit 1; \
	done

## release: the static binaries of both architectures, those of host, man pages and completions, with checksums, at bin/release
release: man host
	@rm -rf bin/release && mkdir -p bin/release
	@for arch in amd64 arm64; do \
		GOOS=linux GOARCH=$$arch $(GO) build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' -o bin/agent-init-$$arch ./cmd/agent-init && \
		cp bin/agent-init-$$arch bin/release/agent-init-linux-$$arch || exit 1; \
	done
	@cp bin/host/* bin/release/
	@tar -C bin --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX -cf - man completions | gzip -9n >bin/release/agent-init-man-completions.tar.gz
	@cd bin/release && sha256sum agent-init-* >SHA256SUMS
	@cat bin/release/SHA256SUMS

# reproducible: build the release twice, in two places, and compare
reproducible:
	test/reproducible.sh

## demo: see it work, on this machine, without an engine and without the internet (needs root)
demo: build
	@test/prepare.sh base
	@$(GO) run ./internal/lab/cmd/demo

# What test-prepare installs, see test/prepare.sh.
PREPARE     ?= all

## test: unit tests, the spine of the network lab, the real Claude Code in a container (needs root; installs what it lacks)
test: export PREPARE = test
test:
	@test/run.sh 2 test-claude "test-spine test-unit"

# What comes after another in a stream has its engine, and the images that it has built.
## test-all: what finds our faults: attacks over each packet filter and in each mode, races, containers, gVisor, lint (needs root)
test-all: export PARALLEL = 2
test-all:
	@test/run.sh 3 test-places test-container test-attack test-race test-checks \
		"test-gvisor lint" test-lab-xtables-legacy test-lab-up test-lab-sidecar
test-all: export PLACES = docker devcontainer

## test-release: the rest, weekly and before each release: each image, agent and place (needs root)
test-release: export PARALLEL = 2
test-release:
	@test/run.sh 2 test-places "test-agents test-images" test-collector

# The OpenTelemetry Collector with deploy/telemetry, from its modules: building it takes minutes.
test-collector:
	cd test/collector && $(GO) test -count=1 -timeout 60m -v ./...

test-prepare:
	@test/prepare.sh $(PREPARE)

# test-unit: the tests that need neither a network of their own nor other people's programs; as root, all of them run
test-unit:
	$(GOTEST) -vet=off -exec $(CURDIR)/test/leftovers.sh -skip '^Test(Kernel|Lab|Container|Memory|Peer)' $$($(GO) list ./... | grep -v /test/attack)

# One box between the lab's networks: what is allowed arrives, and nothing else does.
test-spine: build
	AGENT_INIT_BIN=$(CURDIR)/bin/agent-init $(GOTEST) -count=1 ./test/attack/spine

# The longest packages begin first. The packet filter's tests wait for most of their time: nothing would be left to run
# beside them.
# An earlier agent-init has left its files where they are (test/leftovers.sh).
test-race: build
	$(RACE) -exec $(CURDIR)/test/leftovers.sh -skip '^(TestContainer|TestMemory)' ./pkg/firewall ./test/session $$($(GO) list ./... | grep -vE '/test/attack/|/(lab/scorecard|session/terminal|broker/judge)$$')

# The race detector would find nothing here, and take ten times as long: the attacks are on a program that runs on its own,
# the checks of PID 1 start themselves a thousand times, a terminal's model and a request's judge belong to one goroutine each.
# What takes memory takes many times as much under it.
# The attacks run again where it matters what filters packets, or how agent-init is started: each test says beside itself
# where else it runs.
test-lab-xtables-legacy: export AGENT_INIT_TEST_BACKEND = xtables-legacy
test-lab-up: export AGENT_INIT_TEST_MODE = up
test-lab-sidecar: export AGENT_INIT_TEST_MODE = sidecar
# One package after another: go prints a test's end when it comes, and PARALLEL is how many are under way.
test-attack $(LAB): build
	AGENT_INIT_BIN=$(CURDIR)/bin/agent-init $(GOTEST) -count=1 -p 1 -parallel $(PARALLEL) -timeout 60m ./test/attack/...

# "make scorecard" has the other modes, and all other settings.
test-checks: build
	AGENT_INIT_BIN=$(CURDIR)/bin/agent-init $(GOTEST) -count=1 -skip '^TestLabScorecard$$/^(up|sidecar)$$' -p 2 -parallel $(PARALLEL) -timeout 60m ./internal/lab/scorecard ./pkg/session/terminal ./pkg/broker/judge
	AGENT_INIT_BIN=$(CURDIR)/bin/agent-init $(GO) test -C internal/lab/pid1check -count=1 -parallel $(PARALLEL) -timeout 60m .
	$(GOTEST) -count=1 -run '^TestMemory' ./pkg/broker

# stress: the faults and the load of the lab, and an attack, for as long as it takes to believe them: half an hour (needs root)
stress: export AGENT_INIT_STRESS = 1
stress: export AGENT_INIT_BIN = $(CURDIR)/bin/agent-init
stress: build
	$(GO) test -count=1 -p 1 -timeout 120m -v ./test/attack/...
	test/container.sh -run '^TestContainer$$/^faults$$' -v

SOAK        ?= 2h

# soak: a container at work for SOAK (2h) of real time, its guard killed every minute; samples and picture at bin/soak (needs root)
soak: build
	AGENT_INIT_SOAK=$(SOAK) AGENT_INIT_SOAK_DIR=$(CURDIR)/bin/soak AGENT_INIT_BIN=$(CURDIR)/bin/agent-init \
		$(GO) test -count=1 -timeout 0 -v ./test/attack/faults

# Its picture and its figures into docs/stress.md.
soak-docs:
	$(GO) run ./internal/lab/cmd/soak -picture docs/soak.svg -page docs/stress.md bin/soak/soak.csv

# test-container: the images, in a real engine of the test's own (needs root)
test-container: build
	AGENT_INIT_BIN=$(CURDIR)/bin/agent-init test/container.sh

# Of the images and places, what make test tries.
test-claude: build
	AGENT_INIT_BIN=$(CURDIR)/bin/agent-init test/container.sh -run '^TestContainer$$/^(probes-can-fail|agent)$$'

test-devcontainer: build
	AGENT_INIT_BIN=$(CURDIR)/bin/agent-init PART=template test/places.sh devcontainer

# test-images: the base images: Alpine's target, the languages, the other architecture's binary (needs root)
test-images: build
	AGENT_INIT_BIN=$(CURDIR)/bin/agent-init test/images.sh

# test-agents: every agent's image, on a terminal and without, against the names that it may reach (needs root; gets the agents with npm)
test-agents: build
	AGENT_INIT_BIN=$(CURDIR)/bin/agent-init test/agents.sh

# test-places: where people start agents: Docker, devcontainers, Compose, Kubernetes, Podman; PLACES='charts cluster': the weekly ones (needs root)
test-places: build
	AGENT_INIT_BIN=$(CURDIR)/bin/agent-init test/places.sh $(PLACES)

# test-gvisor: inside of gVisor, under a runsc that is built once (needs root)
test-gvisor: build
	AGENT_INIT_BIN=$(CURDIR)/bin/agent-init test/gvisor.sh

## lint: gofmt, vet, staticcheck, shellcheck, actionlint, and govulncheck where it can be had
lint: $(TOOLS)/staticcheck $(TOOLS)/actionlint
	@test/prepare.sh lint
	@out=$$(git ls-files '*.go' | xargs gofmt -l); if [ -n "$$out" ]; then echo "gofmt would change: $$out"; exit 1; fi
	$(GO) vet ./...
	GOARCH=arm64 $(GO) vet ./pkg/privdrop/drop # the one package that differs; test-images builds the rest for it
	@$(MAKE) --no-print-directory host HOSTS='darwin-arm64 windows-amd64'
	$(TOOLS)/staticcheck ./...
	@for m in $(MODULES); do (cd $$m && $(GO) vet ./... && $(TOOLS)/staticcheck ./...) || exit 1; done
	shellcheck $$(git ls-files '*.sh' '*.bash' ':!:cmd/agent-init/testdata/migrating') .ci/run
	shellcheck -o check-set-e-suppressed,check-extra-masked-returns test/*.sh test/places/*.sh images/*.sh .ci/run
	$(TOOLS)/actionlint
	@if grep -nE '^[^#]*uses:' .github/workflows/*.yml | grep -vE 'uses: [^@ ]+@[0-9a-f]{40} # v[0-9.]+$$|uses: \./'; then echo "pin these actions by commit"; exit 1; fi
	@if command -v govulncheck >/dev/null; then govulncheck ./...; else echo "govulncheck: not installed, not run"; fi

$(TOOLS)/staticcheck:
	GOBIN=$(TOOLS) $(GO) install honnef.co/go/tools/cmd/staticcheck@$(STATICCHECK)

$(TOOLS)/actionlint:
	GOBIN=$(TOOLS) $(GO) install github.com/rhysd/actionlint/cmd/actionlint@$(ACTIONLINT)

# oracle: a million mutations of the question for the clipboard, given to a real tmux and a real xterm
oracle:
	test/prepare.sh oracle
	go test -count=1 -v -timeout 60m -run TestPeerOracle ./pkg/session/terminal -xterm -mutations 1000000

## fuzz: every fuzz target, for FUZZTIME each (30s)
fuzz:
	test/fuzz.sh $(FUZZTIME)

## bench: the budgets, into docs/benchmarks.md; ONLY=start,link: some rows; BEFORE=BINARY: another build in the same turns (needs root)
bench: build
	@test/prepare.sh bench
	AGENT_INIT_BIN=$(CURDIR)/bin/agent-init $(GO) run -C internal/lab/cmd/bench . $(if $(ONLY),-only $(ONLY)) \
		$(if $(BEFORE),-before $(abspath $(BEFORE)),-write $(CURDIR)/docs/benchmarks.md)

# supervision: the table of docs/supervision.md: agent-init, tini, dumb-init and catatonit under the same checks (needs root)
supervision: build
	@test/prepare.sh peers
	AGENT_INIT_BIN=$(CURDIR)/bin/agent-init $(GO) run -C internal/lab/pid1check . -write $(CURDIR)/docs/supervision.md

## scorecard: docs/scorecard.md: every attack in every setting; PART=gateway: behind gateways alone; IMAGE=foo/bar: what leaks from that image; SUBJECTS=all: from other tools (needs root)
scorecard: build
	AGENT_INIT_BIN=$(CURDIR)/bin/agent-init IMAGE='$(IMAGE)' OPTIONS='$(OPTIONS)' SETUP='$(SETUP)' AGENT='$(AGENT)' PROXY='$(PROXY)' WRAP='$(WRAP)' NETWORK='$(NETWORK)' \
		ALLOWED='$(or $(ALLOWED),api.anthropic.com)' WILDCARD='$(WILDCARD)' OURS='$(OURS)' PART='$(PART)' \
		JSON='$(JSON)' BADGE='$(BADGE)' SUBJECTS='$(SUBJECTS)' test/scorecard.sh

# corpus: the cases of agent-egress-bench that have a URL, asked from sealed boxes; CORPUS=DIR is a checkout of it (needs root)
corpus: build
	@[ -n '$(CORPUS)' ] || { echo "usage: make corpus CORPUS=DIR, see docs/corpus.md" >&2; exit 64; }
	AGENT_EGRESS_BENCH='$(abspath $(CORPUS))' AGENT_INIT_MUST_RUN=1 AGENT_INIT_BIN=$(CURDIR)/bin/agent-init \
		$(GO) test -count=1 -v ./test/attack/inspect

## image: agent-base (Debian) and agent-claude, with the local engine
image: image-claude

# image-base: agent-base; image-node, -python, -rust, -go: the same with a language
image-base: build
	$(BUILD_BASE) --build-arg DEBIAN=$(BASE_IMAGE) -t agent-base .

# image-slim: agent-base:slim, without the tools of docs/images.md
image-slim: build
	$(BUILD_BASE) --build-arg DEBIAN=$(BASE_IMAGE) --build-arg TOOLS= -t agent-base:slim .
$(VARIANTS:%=image-%): image-%: build
	set -- $$(awk '$$1 == "$*"' images/variants); $(BUILD_BASE) --build-arg DEBIAN=$$2 --build-arg DETECT=$$3 -t agent-$* .

# image-AGENT: agent-AGENT, for each directory of images: image-claude, image-codex, …; PROVIDER=api.anthropic.com allows that host
$(AGENTS:%=image-%): image-%:
	images/fetch.sh $*
	docker build $(if $(PROVIDER),--build-arg PROVIDER=$(PROVIDER)) -t agent-$* images/$*
$(foreach agent,$(AGENTS),$(eval image-$(agent): image-$(shell sed -n 's/^ARG BASE=agent-//p' images/$(agent)/Dockerfile)))

# publish: every image for every platform that it has, to the registry REGISTRY, as VERSION (needs docker buildx)
publish:
	images/publish.sh $(REGISTRY) $(VERSION)

# presets: the addresses of GitHub in allowlist.d, as GitHub says them today (asks api.github.com)
presets:
	$(GO) run ./internal/lab/cmd/githubmeta allowlist.d/github-meta.txt

# man: the man pages, at bin/man, and the completions, at bin/completions
man: build
	@mkdir -p bin/man bin/completions
	$(GO) run ./internal/lab/cmd/man bin/agent-init bin/man
	@for s in bash zsh fish; do bin/agent-init completion $$s >bin/completions/agent-init.$$s; done

## clean: remove what was built
clean:
	rm -rf bin .cache

# Those with two # are what a person needs; the others are steps of these, or for who looks after the project.
help:
	@sed -n 's/^## \([a-zA-Z-]*\): /  \1\t/p' Makefile | expand -t 18

.PHONY: build test-collector host oracle stress soak soak-docs release reproducible demo test test-all test-release test-spine test-attack test-checks test-claude test-devcontainer test-prepare test-unit test-race $(LAB) test-container test-images test-agents test-places test-gvisor lint fuzz bench supervision scorecard corpus presets man publish clean help image \
	image-base image-slim $(VARIANTS:%=image-%) $(AGENTS:%=image-%)
