# One target for each task. `make help` lists them.

CARGO ?= cargo
# Programs that the tests run besides Convoy.
TEST_PACKAGES = dbus dnsmasq-base ethtool iproute2 iptables iputils-ping nftables procps util-linux wireguard-go \
	wireguard-tools $(PROFILE_PACKAGES)
TEST_PROGRAMS = dbus-daemon dnsmasq ethtool ip iptables-legacy ping nft setpriv sysctl wireguard-go wg wg-quick $(PROFILE_PROGRAMS)
# Programs that WireGuard's own suite runs in `make interop`.
SUITE_PACKAGES = iperf3 iproute2 iptables iputils-ping ncat
SUITE_PROGRAMS = iperf3 ss iptables ping6 ncat
# Servers of `make interop`: what scrapes the metrics, STUN, and a router's port mappings.
SERVER_PACKAGES = coturn miniupnpd-nftables prometheus
SERVER_PROGRAMS = miniupnpd prometheus promtool turnserver
# Programs that the benches measure with, and peers that distributions package.
BENCH_PACKAGES = coturn ethtool haproxy iproute2 iputils-ping nftables openvpn rinetd socat $(PERF_PACKAGE)
BENCH_PROGRAMS = ethtool haproxy ip ping nft openvpn rinetd socat perf turnserver
# Programs that boot a Debian in a container.
SYSTEMD_PACKAGES = debootstrap systemd-container
SYSTEMD_PROGRAMS = debootstrap systemd-analyze systemd-nspawn
# Programs that profile a running daemon.
PROFILE_PACKAGES = strace $(PERF_PACKAGE)
PROFILE_PROGRAMS = strace perf
PERF_PACKAGE = $(shell . /etc/os-release 2>/dev/null; \
	case "$$ID $$ID_LIKE" in (*ubuntu*) echo linux-tools-generic;; (*) echo linux-perf;; esac)

# Where `make peers` and `make contenders` install the programs for `make interop` and the benches.
PEERS = $(CURDIR)/target/peers
PEER_VERSIONS = "$(PEERS)/bin/wireguard --version" "$(PEERS)/bin/boringtun-cli --version" \
	"$(PEERS)/bin/gotatun --version" "wireguard-go --version"
# Tailscale's fork of wireguard-go has no releases: use the version that the newest Tailscale requires.
FORK = github.com/tailscale/wireguard-go
FORK_VERSION = sed -n 's|^[[:space:]]*$(FORK) \(v[^ ]*\).*|\1|p' "$$(go list -m -f '{{.GoMod}}' tailscale.com@latest)"

.PHONY: help build speedtest speedtest-results profile profile-results profiling test test-all test-packages test-profiler \
	test-systemd systemd-packages \
	cross cross-packages lab-packages profile-packages interop interop-kernel guest-packages netns-suite server-packages \
	suite-packages peers contenders lint floors bounds fmt-check clippy doc deny audit bench bench-stages \
	bench-compare bench-forward bench-gateway bench-paths bench-peers bench-userspace gateway-packages bench-packages packet-rate growth report soak flood fuzz fuzz-merge test-timing miri asan tsan

help: ## List these targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | column -t -s "$$(printf '\t')"

build: ## Build target/release/convoy
	$(CARGO) build --release --locked -p convoy

speedtest: build lab-packages ## Build Convoy, connect two network namespaces by a tunnel and print its speed
	./target/release/convoy speedtest $(ARGS)

speedtest-results: build ## Run the speed test and its comparisons and record the results (root)
	$(call result,speedtest,$(ARGS))
	$(call result,speedtest-gso,--secs 3 --compare gso)
	$(call result,speedtest-tun-offload,--secs 3 --compare tun-offload)
	$(call result,speedtest-shape,--secs 3 --compare shape --tun-offload off)

# A failed run keeps the previous result.
result = $(RECORD) --out $(RESULTS)/$(1).jsonl -- ./target/release/convoy speedtest --json $(2)

profile: profile-packages profiling ## Profile both daemons of a speed test: report, flame graph
	@mkdir -p target/profiles
	./target/profiling/convoy speedtest --profile target/profiles/$$(date +%Y-%m-%dT%H-%M-%S) $(ARGS)

profile-results: profile-packages profiling ## Profile with GSO and without and record the results (root)
	@mkdir -p target/profiles
	profiles=target/profiles/$$(date +%Y-%m-%dT%H-%M-%S) && \
	$(RECORD) --out $(RESULTS)/profile.jsonl --profiles $$profiles -- \
		./target/profiling/convoy speedtest --profile $$profiles --compare gso $(ARGS)

profiling: # Build target/profiling/convoy: a release build with symbols and frame pointers
	RUSTFLAGS="-C force-frame-pointers=yes" $(CARGO) build --profile profiling --locked -p convoy

# Builds and runs tests; $(1): further arguments. Its own output names the slowest tests and each that failed.
SUITE = $(CARGO) run --quiet --locked -p convoy-suite -- $(1) -- --workspace --locked
# A build in which time stands still for boringtun, so that a test can move it.
MOCK_CLOCK = $(call SUITE,) --features convoy-proto/mock-clock --test boringtun

# Files that name a few tests of each feature.
SMOKE_FILES = $(foreach target,convoy/tests/end_to_end convoy/tests/speedtest host/tests/host,\
	$(notdir $(target))=rust/$(target)/smoke.txt)
CASES_FILE = end_to_end=rust/convoy/tests/end_to_end/cases.txt

test: test-packages ## Run all unit tests and a few end-to-end tests of each feature (ten minutes; labs need root)
	$(call SUITE,$(addprefix --only ,$(SMOKE_FILES)) $(ARGS)) --lib --bins --tests

test-all: test-packages ## Run all but the slow tests; those with network namespaces need root and /dev/net/tun
	$(call SUITE,$(addprefix --known ,$(SMOKE_FILES) $(CASES_FILE)) $(ARGS)) --lib --bins --tests
	$(MOCK_CLOCK)

test-cases: test-packages ## Run the tests of inputs and attacks that have once gone wrong (root; part of make test)
	$(call SUITE,--only $(CASES_FILE) $(ARGS)) --test end_to_end

test-packages: # Install missing programs for the tests, if root
	$(call install,$(TEST_PROGRAMS),$(TEST_PACKAGES),tests that need them are skipped)

lab-packages: # Install ip, which sets up network namespaces, if root
	$(call install,ip,iproute2,the speed test needs it)

profile-packages: # Install missing programs for profiles, if root
	$(call install,$(PROFILE_PROGRAMS),$(PROFILE_PACKAGES),a profile needs them)

# $(1): programs; $(2): their packages; $(3): the consequence of their absence.
define install
	@missing=; for program in $(1); do \
		command -v $$program >/dev/null || PATH=$$PATH:/usr/sbin:/sbin command -v $$program >/dev/null \
			|| missing="$$missing $$program"; done; \
	if [ -z "$$missing" ]; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ]; then .ci/install $(2); \
	else echo "Not installed ($(3)):$$missing"; echo "To install: sudo apt-get install $(2)"; fi
endef

test-systemd: test-packages systemd-packages ## Test the units under a real systemd, in a container (minutes; root)
	CONVOY_REQUIRE_LAB=1 $(CARGO) test --locked -p convoy --test systemd -- --include-ignored --test-threads 1 \
		--skip package:: $(ARGS)

systemd-packages: # Install missing programs for test-systemd, if root
	$(call install,$(SYSTEMD_PROGRAMS),$(SYSTEMD_PACKAGES),make test-systemd needs them)

test-profiler: profile-packages profiling ## Test that Firefox Profiler accepts a profile (needs npx)
	CONVOY_REQUIRE_LAB=1 CONVOY_TEST_PROGRAM=$(CURDIR)/target/profiling/convoy \
	$(CARGO) test --workspace --locked --test speedtest -- --ignored firefox_profiler

ARM64 = aarch64-unknown-linux-gnu
MUSL = x86_64-unknown-linux-musl
# Compilers for `make cross`, and the emulator that runs ARM64 programs.
CROSS_PACKAGES = gcc-aarch64-linux-gnu libc6-dev-arm64-cross musl-tools qemu-user
CROSS_PROGRAMS = aarch64-linux-gnu-gcc musl-gcc qemu-aarch64
CROSS_ARM64 = CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc \
	CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64 -L /usr/aarch64-linux-gnu" \
	$(CARGO) $(1) --locked --profile cross --target $(ARM64)
# Each opens a UDP socket of the tunnel, and qemu-user refuses SO_TIMESTAMPNS.
NOT_IN_QEMU = --skip udp::
# The tests are static, too, so that nothing is built twice.
SMOKE = interop:: lifecycle:: uapi:: wg_quick::

cross: test-packages cross-packages ## Build for ARM64 and static musl, and test both (qemu-user; root)
	$(call CROSS_ARM64,build) -p convoy
	$(call CROSS_ARM64,test) -p convoy-proto -p convoy-tun --lib
	$(call CROSS_ARM64,test) -p convoy-aead --lib --tests
	@echo "Skipped, because qemu-user refuses SO_TIMESTAMPNS: convoy-gso $(NOT_IN_QEMU)"
	$(call CROSS_ARM64,test) -p convoy-gso --lib -- $(NOT_IN_QEMU)
	$(CARGO) run --quiet --locked -p convoy-suite -- $(SMOKE) $(ARGS) -- \
		--locked --profile cross --target $(MUSL) -p convoy --test end_to_end
	ldd target/$(MUSL)/cross/convoy | grep 'statically linked'

cross-packages: # Install missing compilers, if root, and the Rust targets
	$(call install,$(CROSS_PROGRAMS),$(CROSS_PACKAGES),make cross needs them)
	@for target in $(ARM64) $(MUSL); do \
		[ -d "$$(rustc --print target-libdir --target $$target)" ] || rustup target add $$target || exit 1; done

interop: test-packages server-packages suite-packages peers ## Run slow tests, and tests against the newest WireGuard programs (half an hour; root)
	CONVOY_REQUIRE_LAB=1 \
	CONVOY_TEST_WIREGUARD_GO=$(PEERS)/bin/wireguard \
	CONVOY_TEST_BORINGTUN=$(PEERS)/bin/boringtun-cli \
	CONVOY_TEST_GOTATUN=$(PEERS)/bin/gotatun \
	$(CARGO) test --locked -p convoy --test end_to_end -- --ignored --test-threads 1 --skip kernel:: $(ARGS)
	$(MAKE) --no-print-directory netns-suite

netns-suite: suite-packages peers # Run the suite of the newest wireguard-go, unchanged, with Convoy at both ends (root)
	$(CARGO) build --locked -p convoy
	module=$$(go version -m $(PEERS)/bin/wireguard | awk '$$1 == "mod" { print $$2 "@" $$3 }') && \
	sources=$$(go mod download -json $$module | sed -n 's/.*"Dir": "\(.*\)".*/\1/p') && \
	timeout 600 bash "$$sources/tests/netns.sh" $(CURDIR)/target/debug/convoy </dev/null

suite-packages: # Install missing programs for WireGuard's own suite, if root
	$(call install,$(SUITE_PROGRAMS),$(SUITE_PACKAGES),make interop needs them)

# Programs that boot the guest, and those that its initramfs is made of or built by.
GUEST_PACKAGES = busybox-static kmod musl-tools qemu-system-x86
GUEST_PROGRAMS = busybox depmod musl-gcc qemu-system-x86_64
GUEST = $(CURDIR)/target/guest

interop-kernel: test-packages guest-packages ## Run tests against the kernel's WireGuard, emulated by QEMU (a quarter of an hour; root, Debian)
	rust/convoy/tests/end_to_end/kernel/build-guest $(GUEST)
	$(CARGO) build --locked --profile cross --target $(MUSL) -p convoy
	CONVOY_REQUIRE_LAB=1 CONVOY_TEST_GUEST=$(GUEST) \
	CONVOY_TEST_STATIC_PROGRAM=$(CURDIR)/target/$(MUSL)/cross/convoy \
	$(CARGO) test --locked -p convoy --test end_to_end -- --ignored --test-threads 1 kernel::$(ARGS)

guest-packages: # Install missing programs for the guest, if root, and the Rust target
	$(call install,$(GUEST_PROGRAMS),$(GUEST_PACKAGES),make interop-kernel needs them)
	@[ -d "$$(rustc --print target-libdir --target $(MUSL))" ] || rustup target add $(MUSL)

# Not for `make test`: Debian's packages start servers.
server-packages: # Install missing servers, if root
	$(call install,$(SERVER_PROGRAMS),$(SERVER_PACKAGES),make interop needs them)

peers: # Install missing peers of the tests and print their versions
	$(call need_go,wireguard)
	@[ -x $(PEERS)/bin/wireguard ] || GOBIN=$(PEERS)/bin go install golang.zx2c4.com/wireguard@latest
	$(call install_crate,boringtun-cli,boringtun-cli)
	$(call install_crate,gotatun-cli,gotatun)
	@for version in $(PEER_VERSIONS); do $$version 2>&1 | head -n 1; done

# Not for `make interop`, which tests neither.
contenders: peers # Install missing programs that only benches compare with and print their versions
	$(call need_go,wireguard-tailscale)
	@if [ ! -x $(PEERS)/bin/wireguard-tailscale ]; then \
		version=$$($(FORK_VERSION)); \
		if [ -z "$$version" ]; then \
			echo "The go.mod of the newest tailscale.com does not name $(FORK)" >&2; exit 1; fi; \
		GOBIN=$(PEERS)/fork go install $(FORK)@$$version && \
		mv $(PEERS)/fork/wireguard-go $(PEERS)/bin/wireguard-tailscale && rmdir $(PEERS)/fork; fi
	$(call install_crate,onetun,onetun)
	@$(PEERS)/bin/onetun --version
	@go version -m $(PEERS)/bin/wireguard-tailscale | awk '$$1 == "mod" { print $$2, $$3 }'

# $(1): the program to build.
define need_go
	@if [ ! -x $(PEERS)/bin/$(1) ]; then \
		minor=$$(go env GOVERSION 2>/dev/null | sed -n 's/^go1\.\([0-9]*\).*/\1/p'); \
		if [ "$${minor:-0}" -lt 21 ]; then \
			echo "Building wireguard-go needs Go 1.21 or newer, which is not in PATH." >&2; \
			echo "Debian 13 and newer have it: apt-get install golang-go" >&2; exit 1; fi; fi
endef

# $(1): the crate; $(2): its program.
define install_crate
	@[ -x $(PEERS)/bin/$(2) ] || $(CARGO) install --locked --root $(PEERS) $(1)
endef

include rust/convoy/package/package.mk

lint: fmt-check clippy doc ## Check formatting, clippy and documentation; warnings are errors

floors: ## Print the lines of each crate, what it depends on, and circles between its files
	@$(CARGO) run --quiet --locked -p convoy-floors -- $(ARGS)

bounds: ## Write rust/BOUNDS.md from the constants
	$(CARGO) run --quiet --locked -p convoy-floors -- --bounds

fmt-check:
	$(CARGO) fmt --all --check

clippy:
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

doc:
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --document-private-items --locked

deny: ## Check licences, sources and banned crates
	$(call tool,cargo-deny,--debug)
	$(CARGO) fetch --locked
	PATH=$(TOOLS)/bin:$$PATH $(CARGO) deny --offline check bans licenses sources

audit: ## Check for known vulnerabilities (cargo install cargo-deny cargo-audit)
	$(CARGO) deny check
	$(CARGO) audit --deny warnings

# Committed results.
RESULTS = benches/results
# The program of all long measurements; the fast build is for subcommands that send traffic themselves.
BENCH = $(CARGO) run --quiet --locked -p convoy-benches --
FAST_BENCH = $(CARGO) run --quiet --release --locked -p convoy-benches --
RECORD = $(BENCH) record

bench: ## Measure each stage: make bench [ARGS=part of a name]
	$(CARGO) bench --locked -p convoy-stages --bench stages -- $(ARGS)

bench-stages: ## Measure each stage with its noise and instruction count and record the results
	$(BENCH) commits $(ARGS)

bench-compare: ## Compare this tree with another commit: make bench-compare BASE=main (as root, tunnels too)
	@[ -n "$(BASE)" ] || { echo "Usage: make bench-compare BASE=REF" >&2; exit 2; }
	$(FAST_BENCH) commits --base $(BASE) $(ARGS)

packet-rate: ## Measure how many datagrams per second this machine sends (three minutes; root)
	$(FAST_BENCH) packets $(ARGS)

growth: build ## Measure how cost grows with packet size, flows, peers and MTU (a quarter of an hour; root)
	$(BENCH) growth $(ARGS)

report: ## Write benches/RESULTS.md and its plots from the files in benches/results
	$(BENCH) report $(ARGS)

bench-peers: build contenders bench-packages ## Compare Convoy with the newest WireGuard programs and OpenVPN (an hour; root)
	$(FAST_BENCH) peers $(ARGS)

# wireproxy is taken from PATH or $(PEERS)/bin.
bench-userspace: build contenders bench-packages ## Compare convoy exec and up --userspace with wireproxy and onetun (half an hour; root)
	$(FAST_BENCH) peers --rootless $(ARGS)

bench-gateway: build bench-packages gateway-packages ## Compare --nat user with masquerading, pasta and slirp4netns (twenty minutes; root)
	$(FAST_BENCH) peers --gateway $(ARGS)

bench-paths: build bench-packages ## Measure what a path costs: straight, by a hub, direct, by a TURN server (five minutes; root)
	$(FAST_BENCH) peers --paths $(ARGS)

# Not every distribution has both.
gateway-packages: # Install missing user-mode networks, if root
	-$(call install,pasta slirp4netns,passt slirp4netns,make bench-gateway leaves them out)

bench-forward: build bench-packages ## Measure how fast convoy forward and other forwarders relay (four minutes; root)
	$(FAST_BENCH) forward $(ARGS)

bench-packages: # Install missing programs for benches, if root
	$(call install,$(BENCH_PROGRAMS),$(BENCH_PACKAGES),rows that need them stay empty)

soak: build ## Run five daemons under load and events and judge the run: make soak [SECS=600] (root)
	$(FAST_BENCH) soak --secs $(or $(SECS),600) $(ARGS)

flood: build ## Measure how floods of datagrams affect a tunnel's traffic (eight minutes; root)
	$(FAST_BENCH) flood $(ARGS)

fuzz: ## Search for failing inputs with libFuzzer: make fuzz SECS=600 [TARGET=part of a name]
	rust/fuzz/run $(or $(SECS),60) $(TARGET)

fuzz-merge: ## Replace the committed corpora with the smallest ones that cover everything found
	rust/fuzz/run merge $(TARGET)

test-timing: ## Test whether the duration of sealing and opening depends on secrets (a minute; quiet machine)
	$(CARGO) bench --locked -p convoy-aead --bench timing

# All but tests that sum megabytes or make system calls.
MIRI_TESTS = queue:: flush:: receive:: buffers:: cut:: coalesce:: checksum:: outbound:: inbound:: write:: pool:: \
	--skip fuzz --skip udp:: --skip every_length --skip all_ones --skip the_obvious_segmentation

miri: ## Test queue, flush, cutting, coalescing and the batch's kernel under Miri (nightly; rustup component add miri rust-src)
	MIRIFLAGS=-Zmiri-disable-isolation PROPTEST_CASES=2 $(CARGO) +nightly miri test --locked \
		--target-dir target/miri -p convoy-gso -p convoy-packet -p convoy-tun --lib -- $(MIRI_TESTS)
	MIRIFLAGS=-Zmiri-disable-isolation $(CARGO) +nightly miri test --locked \
		--target-dir target/miri -p convoy-aead --test aead

HOST = $$(rustc -vV | sed -n 's/^host: //p')
# The libraries of the data path and their tests.
DATA_PATH = -p convoy-aead -p convoy-gso -p convoy-noise -p convoy-packet -p convoy-tun -p convoy-proto -p convoy-tunnel \
	-p convoy-via --lib --tests

asan: ## Test the data path under AddressSanitizer (nightly)
	RUSTFLAGS=-Zsanitizer=address $(CARGO) +nightly test --locked --target-dir target/asan \
		--target $(HOST) $(DATA_PATH)

tsan: ## Test everything with threads under ThreadSanitizer (nightly; rustup component add rust-src)
	RUSTFLAGS=-Zsanitizer=thread $(CARGO) +nightly test --locked --target-dir target/tsan \
		--target $(HOST) -Zbuild-std -p convoy-gso -p convoy-tun -p convoy-tunnel --lib --tests
	RUSTFLAGS=-Zsanitizer=thread $(CARGO) +nightly test --locked --target-dir target/tsan \
		--target $(HOST) -Zbuild-std -p convoy-uapi --lib
