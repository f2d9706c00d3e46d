# For people: what can be done here, one target each. `make help` lists them.

CARGO ?= cargo
# What the tests run beside Convoy itself.
TEST_PACKAGES = iproute2 iputils-ping nftables procps util-linux wireguard-go wireguard-tools
TEST_PROGRAMS = ip ping nft setpriv sysctl wireguard-go wg wg-quick

.PHONY: help build speedtest test test-packages lint fmt-check clippy doc bench

help: ## This list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | column -t -s "$$(printf '\t')"

build: ## The release build: target/release/convoy
	$(CARGO) build --release --locked -p convoy

speedtest: build ## Build, set up two hosts, run the tunnel between them, print the result
	./target/release/convoy speedtest $(ARGS)

test: test-packages ## Every test; as root with /dev/net/tun also those that need them
	$(CARGO) test --workspace --locked
	$(CARGO) test -p convoy-proto --locked --features mock-clock --test aging

test-packages: # Installs what the tests run, when root and missing
	@missing=; for program in $(TEST_PROGRAMS); do \
		command -v $$program >/dev/null || PATH=$$PATH:/usr/sbin:/sbin command -v $$program >/dev/null \
			|| missing="$$missing $$program"; done; \
	if [ -z "$$missing" ]; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ]; then apt-get update && apt-get install -y --no-install-recommends $(TEST_PACKAGES); \
	else echo "Not installed, tests that need them are skipped:$$missing"; \
		echo "To install them: sudo apt-get install $(TEST_PACKAGES)"; fi

lint: fmt-check clippy doc ## Formatting, clippy and documentation, warnings denied

fmt-check:
	$(CARGO) fmt --all --check

clippy:
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

doc:
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --document-private-items --locked

bench: ## One bench a stage
	$(CARGO) bench --locked -p convoy-benches
