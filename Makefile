# Needs Go, make, and gcc for the race detector. `make` alone lists what there is. `make test` needs Debian or Ubuntu and
# their packages too: it fetches and starts real servers (scripts/services.sh).
GO      ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null)
# Pinned in a module of its own; the first run builds it, which takes a minute or two.
LINTER  := $(GO) tool -modfile='$(CURDIR)/.ci/tools/go.mod' golangci-lint
# A module of its own, which ./... does not reach.
EXAMPLE := examples/custom-sink
# The simulation's runs, each with another seed.
SEEDS   ?= 20000
# How long things are broken at random with each pair of a source and a sink, of which there are nine; SEED repeats the
# schedule of a run, and PAIRS names some of the pairs, as sqlite-file,postgres-kafka.
CHAOS   ?= 5m
SEED    ?= 0
PAIRS   ?=
# How often each figure of `make bench` is taken. LARGE=1 drains five million rows too.
ROUNDS  ?= 5
# A file for the figures of `make bench`, as JSON, or for what `make chaos` and `make scale` saw, as Markdown.
REPORT  ?=
LARGE   ?=
# One table of `make scale` instead of all, and a look at small sizes.
PART    ?=
QUICK   ?=

.DEFAULT_GOAL := help
.PHONY: help demo build test lint format bench scale chaos generate

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: build ## a relay on a temporary SQLite file, with a receiver and live output
	bin/connectd demo

build: ## bin/connectd, one static binary
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w -X main.version=$(VERSION)' -o bin/connectd ./cmd/connectd

test: ## every test, with the race detector and real servers, and the engine's simulation with 10,000 seeds without it
	$(GO) vet ./...
	scripts/services.sh run $(GO) test -race -shuffle=on -timeout 25m ./...
	$(GO) -C $(EXAMPLE) vet ./...
	$(GO) -C $(EXAMPLE) test -race -shuffle=on ./...
	$(GO) test -count=1 -run '^TestSimulation$$' ./core/engine

lint: ## the linters and the import rules of .golangci.yml, and ShellCheck
	$(LINTER) run ./...
	cd $(EXAMPLE) && $(LINTER) run ./...
	scripts/shellcheck.sh

format: ## rewrite the code as lint wants it
	$(LINTER) fmt ./...
	cd $(EXAMPLE) && $(LINTER) fmt ./...

bench: ## the figures of docs/benchmarks.md, in ROUNDS rounds, with real servers; PART=NAME some of them; REPORT=FILE writes them as JSON too
	scripts/services.sh run $(GO) test -run '^$$' -bench '^BenchmarkGoals$$/$(PART)' -benchtime $(ROUNDS)x -timeout 2h ./cmd/connectd/bench \
		-report '$(abspath $(REPORT))' $(if $(LARGE),-large)

scale: ## how cost grows, in 11 minutes, with real servers; REPORT=docs/scaling.md writes it there, PART=NAME does one table, QUICK=1 less of each
	scripts/services.sh run $(GO) test -run '^$$' -bench '^BenchmarkScale$$/^$(PART)' -benchtime 1x -timeout 40m ./cmd/connectd/bench \
		-page '$(abspath $(REPORT))' $(if $(QUICK),-quick)

chaos: ## break things at random: the engine's simulation with SEEDS seeds, then nine real fleets, for CHAOS each; REPORT=FILE
	$(GO) test -count=1 -timeout 2h -run '^TestSimulation$$' ./core/engine -sim.seeds $(SEEDS)
	CONNECTD_TEST_SERVICES=1 CONNECTD_TEST_SERVICES_SH='$(CURDIR)/scripts/services.sh' \
		$(GO) test -race -count=1 -timeout 24h -v -run '^TestFaults$$' ./cmd/connectd/chaos \
		-chaos.time $(CHAOS) -chaos.seed $(SEED) -chaos.pairs '$(PAIRS)' -report '$(abspath $(REPORT))'

generate: ## the generated code
	$(GO) generate ./...
