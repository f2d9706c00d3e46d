# For people: what can be done here, one target each. `make help` lists them.

CARGO ?= cargo
# What the tests run beside Convoy itself.
TEST_PACKAGES = iproute2 iputils-ping nftables procps util-linux wireguard-go wireguard-tools \
	$(PROFILE_PACKAGES)
TEST_PROGRAMS = ip ping nft setpriv sysctl wireguard-go wg wg-quick $(PROFILE_PROGRAMS)
# What `make bench-peers` measures with, and what it measures that distributions have.
BENCH_PACKAGES = iperf3 iputils-ping nftables openssl openvpn $(PERF_PACKAGE)
BENCH_PROGRAMS = iperf3 ping nft openssl openvpn perf
# What looks into a running daemon.
PROFILE_PACKAGES = strace $(PERF_PACKAGE)
PROFILE_PROGRAMS = strace perf
PERF_PACKAGE = $(shell . /etc/os-release 2>/dev/null; \
	case "$$ID $$ID_LIKE" in (*ubuntu*) echo linux-tools-generic;; (*) echo linux-perf;; esac)

# The programs that `make interop` tests against and `make bench-peers` measures, as it installs them.
PEERS = $(CURDIR)/target/peers
PEER_VERSIONS = "$(PEERS)/bin/wireguard --version" "$(PEERS)/bin/boringtun-cli --version" \
	"$(PEERS)/bin/gotatun --version"
# Tailscale's fork of wireguard-go. It has no releases: the one that the newest Tailscale is built with.
FORK = github.com/tailscale/wireguard-go
FORK_VERSION = sed -n 's|^[[:space:]]*$(FORK) \(v[^ ]*\).*|\1|p' "$$(go list -m -f '{{.GoMod}}' tailscale.com@latest)"

.PHONY: help build speedtest speedtest-results profile profile-results profiling test test-packages test-profiler \
	cross cross-packages profile-packages interop peers lint fmt-check clippy doc deny audit bench bench-stages bench-compare bench-peers \
	bench-packages packet-rate growth report soak flood fuzz fuzz-merge miri asan tsan

help: ## This list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | column -t -s "$$(printf '\t')"

build: ## The release build: target/release/convoy
	$(CARGO) build --release --locked -p convoy

speedtest: build ## Build, set up two hosts, run the tunnel between them, print the result
	./target/release/convoy speedtest $(ARGS)

speedtest-results: build ## The speed test and its comparisons, into benches/results; as root
	$(call result,speedtest,$(ARGS))
	$(call result,speedtest-gso,--secs 3 --compare gso)
	$(call result,speedtest-tun-offload,--secs 3 --compare tun-offload)
	$(call result,speedtest-shape,--secs 3 --compare shape --tun-offload off)

# A run that fails leaves the former result alone.
result = $(RECORD) --out $(RESULTS)/$(1).json -- ./target/release/convoy speedtest --json $(2)

profile: profile-packages profiling ## Look into both daemons while the speed test runs: report, flame graph
	@mkdir -p target/profiles
	./target/profiling/convoy speedtest --profile target/profiles/$$(date +%Y-%m-%dT%H-%M-%S) $(ARGS)

profile-results: profile-packages profiling ## Profiles with GSO and without, into benches/results; as root
	@mkdir -p target/profiles
	profiles=target/profiles/$$(date +%Y-%m-%dT%H-%M-%S) && \
	$(RECORD) --out $(RESULTS)/profile.json --profiles $$profiles -- \
		./target/profiling/convoy speedtest --profile $$profiles --compare gso $(ARGS)

profiling: # The release build with symbols and frame pointers: target/profiling/convoy
	RUSTFLAGS="-C force-frame-pointers=yes" $(CARGO) build --profile profiling --locked -p convoy

test: test-packages ## Every test; as root with /dev/net/tun also those that need them
	$(CARGO) test --workspace --locked
	$(CARGO) test -p convoy-proto --locked --features mock-clock --test aging --test fuzz_histories
	$(CARGO) test -p convoy-proto --locked --features mock-clock --lib keys_are_gone

test-packages: # Installs what the tests run, when root and missing
	$(call install,$(TEST_PROGRAMS),$(TEST_PACKAGES),tests that need them are skipped)

profile-packages: # Installs what looks into a daemon, when root and missing
	$(call install,$(PROFILE_PROGRAMS),$(PROFILE_PACKAGES),a profile needs them)

# $(1): programs; $(2): their packages; $(3): what follows where they are not installed.
define install
	@missing=; for program in $(1); do \
		command -v $$program >/dev/null || PATH=$$PATH:/usr/sbin:/sbin command -v $$program >/dev/null \
			|| missing="$$missing $$program"; done; \
	if [ -z "$$missing" ]; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ]; then apt-get update && apt-get install -y --no-install-recommends $(2); \
	else echo "Not installed, $(3):$$missing"; echo "To install them: sudo apt-get install $(2)"; fi
endef

test-profiler: profile-packages profiling ## That Firefox Profiler takes what is recorded (needs npx)
	CONVOY_REQUIRE_LAB=1 CONVOY_TEST_PROGRAM=$(CURDIR)/target/profiling/convoy \
	$(CARGO) test --workspace --locked --test speedtest -- --ignored firefox_profiler

ARM64 = aarch64-unknown-linux-gnu
MUSL = x86_64-unknown-linux-musl
# What `make cross` builds with, and runs ARM64 programs with.
CROSS_PACKAGES = gcc-aarch64-linux-gnu libc6-dev-arm64-cross musl-tools qemu-user
CROSS_PROGRAMS = aarch64-linux-gnu-gcc musl-gcc qemu-aarch64
CROSS_ARM64 = CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc \
	CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64 -L /usr/aarch64-linux-gnu" \
	$(CARGO) $(1) --locked --profile cross --target $(ARM64)
# Each opens a UDP socket of the tunnel, and qemu-user passes on neither SO_TIMESTAMPNS nor UDP_SEGMENT.
NOT_IN_QEMU = --skip udp::
# Static programs are tested by static tests: that builds everything once.
SMOKE = interop:: lifecycle:: uapi:: wg_quick::

cross: test-packages cross-packages ## For ARM64, unit tests in qemu; as a static program, smoke tests; as root
	$(call CROSS_ARM64,build) -p convoy
	$(call CROSS_ARM64,test) -p convoy-proto -p convoy-tun --lib
	@echo "Not in qemu-user, which lacks their socket options: convoy-gso $(NOT_IN_QEMU)"
	$(call CROSS_ARM64,test) -p convoy-gso --lib -- $(NOT_IN_QEMU)
	$(CARGO) test --locked --profile cross --target $(MUSL) -p convoy --test end_to_end -- $(SMOKE)
	ldd target/$(MUSL)/cross/convoy | grep 'statically linked'

cross-packages: # Installs the compilers when root and missing, and the Rust targets
	$(call install,$(CROSS_PROGRAMS),$(CROSS_PACKAGES),it does not build without)
	@for target in $(ARM64) $(MUSL); do \
		[ -d "$$(rustc --print target-libdir --target $$target)" ] || rustup target add $$target || exit 1; done

interop: test-packages peers ## The long tests, and those against newest wireguard-go, BoringTun and GotaTun; as root
	CONVOY_REQUIRE_LAB=1 \
	CONVOY_TEST_WIREGUARD_GO=$(PEERS)/bin/wireguard \
	CONVOY_TEST_BORINGTUN=$(PEERS)/bin/boringtun-cli \
	CONVOY_TEST_GOTATUN=$(PEERS)/bin/gotatun \
	$(CARGO) test --locked -p convoy --test end_to_end -- --ignored --test-threads 1 $(ARGS)

peers: # Installs the programs that these need, where missing, and says which they are
	@if [ ! -x $(PEERS)/bin/wireguard ] || [ ! -x $(PEERS)/bin/wireguard-tailscale ]; then \
		minor=$$(go env GOVERSION 2>/dev/null | sed -n 's/^go1\.\([0-9]*\).*/\1/p'); \
		if [ "$${minor:-0}" -lt 21 ]; then \
			echo "Go 1.21 or newer is needed to build wireguard-go, and it is not in PATH:" >&2; \
			echo "'apt-get install golang-go' has it from Debian 13 on" >&2; exit 1; fi; fi
	@[ -x $(PEERS)/bin/wireguard ] || GOBIN=$(PEERS)/bin go install golang.zx2c4.com/wireguard@latest
	@if [ ! -x $(PEERS)/bin/wireguard-tailscale ]; then \
		version=$$($(FORK_VERSION)); \
		if [ -z "$$version" ]; then \
			echo "go.mod of the newest tailscale.com names no version of $(FORK)" >&2; exit 1; fi; \
		GOBIN=$(PEERS)/fork go install $(FORK)@$$version && \
		mv $(PEERS)/fork/wireguard-go $(PEERS)/bin/wireguard-tailscale && rmdir $(PEERS)/fork; fi
	@for crate in boringtun-cli:boringtun-cli gotatun-cli:gotatun; do \
		if [ ! -x $(PEERS)/bin/$${crate#*:} ]; then \
			$(CARGO) install --locked --root $(PEERS) $${crate%:*} || exit 1; fi; done
	@for version in $(PEER_VERSIONS) "wireguard-go --version"; do $$version 2>&1 | head -n 1; done
	@go version -m $(PEERS)/bin/wireguard-tailscale | awk '$$1 == "mod" { print $$2, $$3 }'

lint: fmt-check clippy doc ## Formatting, clippy and documentation, warnings denied

fmt-check:
	$(CARGO) fmt --all --check

clippy:
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

doc:
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --document-private-items --locked

deny: ## Licences, sources and banned crates, without the network (cargo install cargo-deny)
	$(CARGO) deny --offline check bans licenses sources

audit: ## Known vulnerabilities, by the newest list (cargo install cargo-deny cargo-audit)
	$(CARGO) deny check
	$(CARGO) audit --deny warnings

# Where results are committed.
RESULTS = benches/results
# What only runs other programs and reads what they print need not be fast itself.
BENCH_COMPARE = $(CARGO) run --quiet --locked -p convoy-benches --bin bench_compare --
RECORD = $(CARGO) run --quiet --locked -p convoy-benches --bin record --

bench: ## One bench a stage: make bench [ARGS=part of a name]
	$(CARGO) bench --locked -p convoy-stages --bench stages -- $(ARGS)

bench-stages: ## The same against itself, for the noise, with instructions, into benches/results/stages.json
	$(BENCH_COMPARE) $(ARGS)

bench-compare: ## This tree against another commit, in turns: make bench-compare BASE=main; as root the tunnel, too
	@[ -n "$(BASE)" ] || { echo "Which commit? make bench-compare BASE=REF" >&2; exit 2; }
	$(BENCH_COMPARE) --base $(BASE) $(ARGS)

packet-rate: ## How many datagrams a second this machine sends, in at most three minutes; as root over veth, too
	$(CARGO) build --release --locked -p convoy-benches --bin packet_rate
	./target/release/packet_rate $(ARGS)

growth: build ## How cost grows with packet size, flows, peers and MTU, with plots (eight minutes; as root)
	$(CARGO) build --release --locked -p convoy-benches --bin growth
	./target/release/growth $(ARGS)

report: ## benches/RESULTS.md and all plots, made anew of the files in benches/results
	$(call draw,packet_rate)
	$(call draw,soak)
	$(CARGO) run --quiet --locked -p convoy-benches --bin report

# Only the program that has measured knows its whole result.
draw = @[ ! -e $(RESULTS)/$(1).json ] || $(CARGO) run --quiet --locked -p convoy-benches --bin $(1) -- --draw

bench-peers: build peers bench-packages ## Convoy against its newest peers and OpenVPN, measured in turns (an hour; as root)
	$(CARGO) build --release --locked -p convoy-benches --bin bench_peers
	./target/release/bench_peers $(ARGS)

bench-packages: # Installs what is measured and what measures, when root and missing
	$(call install,$(BENCH_PROGRAMS),$(BENCH_PACKAGES),rows that need them stay empty)

soak: build ## Load, rekeys and changes for ten minutes, judged and plotted; as root: make soak [SECS=600]
	$(CARGO) build --release --locked -p convoy-benches --bin soak
	./target/release/soak --secs $(or $(SECS),600) $(ARGS)

flood: build ## What floods of datagrams cost a tunnel's traffic; as root
	$(CARGO) build --release --locked -p convoy-benches --bin flood
	./target/release/flood $(ARGS)

fuzz: ## Look for failing inputs with libFuzzer: make fuzz SECS=600 [TARGET=part of a name]
	rust/fuzz/run $(or $(SECS),60) $(TARGET)

fuzz-merge: ## Make the committed corpora of what was found the smallest that reach as much
	rust/fuzz/run merge $(TARGET)

# Not what sums megabytes, nor what asks the kernel.
MIRI_TESTS = queue:: flush:: receive:: buffers:: cut:: coalesce:: checksum:: outbound:: inbound:: write:: pool:: \
	--skip fuzz --skip udp:: --skip every_length --skip all_ones --skip the_obvious_segmentation

miri: ## Queue, flush, cutting and coalescing in Miri, on nightly (rustup component add miri rust-src)
	MIRIFLAGS=-Zmiri-disable-isolation PROPTEST_CASES=2 $(CARGO) +nightly miri test --locked \
		--target-dir target/miri -p convoy-gso -p convoy-tun --lib -- $(MIRI_TESTS)

HOST = $$(rustc -vV | sed -n 's/^host: //p')
# The libraries of the data path, with the tests beside them.
DATA_PATH = -p convoy-gso -p convoy-tun -p convoy-proto -p convoy-tunnel --lib --tests

asan: ## The data path's tests under AddressSanitizer, on nightly
	RUSTFLAGS=-Zsanitizer=address $(CARGO) +nightly test --locked --target-dir target/asan \
		--target $(HOST) $(DATA_PATH)

tsan: ## The tests of what has threads under ThreadSanitizer, on nightly (rustup component add rust-src)
	RUSTFLAGS=-Zsanitizer=thread $(CARGO) +nightly test --locked --target-dir target/tsan \
		--target $(HOST) -Zbuild-std -p convoy-gso -p convoy-tun -p convoy-tunnel --lib --tests
	RUSTFLAGS=-Zsanitizer=thread $(CARGO) +nightly test --locked --target-dir target/tsan \
		--target $(HOST) -Zbuild-std -p convoy --lib uapi::
