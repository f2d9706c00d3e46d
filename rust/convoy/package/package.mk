# Installation and packages. Included by the Makefile at the top.

PREFIX ?= /usr/local
BIN_DIR = $(PREFIX)/bin
MAN_DIR = $(PREFIX)/share/man
# systemd reads units below /usr and /usr/local; with another prefix, set this to /etc/systemd/system.
UNIT_DIR = $(PREFIX)/lib/systemd/system
BASH_DIR = $(PREFIX)/share/bash-completion/completions
ZSH_DIR = $(PREFIX)/share/zsh/site-functions
FISH_DIR = $(PREFIX)/share/fish/vendor_completions.d

PACKAGE = rust/convoy/package
UNITS = $(wildcard rust/convoy/systemd/*)
# The program that is installed.
PROGRAM ?= target/release/convoy
# Its man pages and completions.
DOCUMENTS = target/documents
PACKAGES = $(CURDIR)/target/packages
TOOLS = $(CURDIR)/target/tools
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)

.PHONY: install uninstall deb tarball image release release-packages reproducible sbom test-deb

install: ## Install what `make build` has built, units, man pages, completions: make install [DESTDIR=] [PREFIX=/usr/local]
	@[ -x $(PROGRAM) ] || { echo "There is no $(PROGRAM): run \`make build\` first" >&2; exit 2; }
	rm -rf $(DOCUMENTS)
	$(PROGRAM) generate-documents $(DOCUMENTS)
	install -D -m 755 $(PROGRAM) $(DESTDIR)$(BIN_DIR)/convoy
	install -d $(DESTDIR)$(UNIT_DIR) $(DESTDIR)$(MAN_DIR)/man1 $(DESTDIR)$(MAN_DIR)/man5
	for unit in $(UNITS); do \
		sed 's,^\(Exec[A-Za-z]*=\)convoy ,\1$(BIN_DIR)/convoy ,' $$unit > $(DESTDIR)$(UNIT_DIR)/$${unit##*/} && \
		chmod 644 $(DESTDIR)$(UNIT_DIR)/$${unit##*/} || exit 1; done
	install -m 644 $(DOCUMENTS)/man/*.1 $(DESTDIR)$(MAN_DIR)/man1
	install -m 644 $(DOCUMENTS)/man/*.5 $(DESTDIR)$(MAN_DIR)/man5
	install -D -m 644 $(DOCUMENTS)/completions/convoy.bash $(DESTDIR)$(BASH_DIR)/convoy
	install -D -m 644 $(DOCUMENTS)/completions/_convoy $(DESTDIR)$(ZSH_DIR)/_convoy
	install -D -m 644 $(DOCUMENTS)/completions/convoy.fish $(DESTDIR)$(FISH_DIR)/convoy.fish

uninstall: ## Remove what `make install` installed
	rm -f $(DESTDIR)$(BIN_DIR)/convoy $(addprefix $(DESTDIR)$(UNIT_DIR)/,$(notdir $(UNITS)))
	rm -f $(DESTDIR)$(MAN_DIR)/man1/convoy.1 $(DESTDIR)$(MAN_DIR)/man1/convoy-*.1 \
		$(DESTDIR)$(MAN_DIR)/man5/convoy.conf.5
	rm -f $(DESTDIR)$(BASH_DIR)/convoy $(DESTDIR)$(ZSH_DIR)/_convoy $(DESTDIR)$(FISH_DIR)/convoy.fish

# Paths of this machine stay out of the programs, so that everybody builds the same bytes.
REMAP = --remap-path-prefix=$(CURDIR)=/convoy \
	--remap-path-prefix=$(or $(CARGO_HOME),$(HOME)/.cargo)=/cargo \
	--remap-path-prefix=$(shell rustc --print sysroot)=/rust
# The time of the commit, for archives.
EPOCH = $(or $(SOURCE_DATE_EPOCH),$(shell git log -1 --format=%ct 2>/dev/null),0)

GNU_TARGETS = x86_64-unknown-linux-gnu aarch64-unknown-linux-gnu
MUSL_TARGETS = x86_64-unknown-linux-musl aarch64-unknown-linux-musl
# Rust targets to build packages for.
DEB_TARGETS ?= $(GNU_TARGETS)
TARBALL_TARGETS ?= $(MUSL_TARGETS)
# Also tells the builds apart: a supervisor replaces a tunnel of another one.
DEB_VERSION ?= $(VERSION)-1
DEB_MAINTAINER ?= The Convoy authors <convoy@localhost>
# Cargo's profile for packages.
PROFILE ?= release
RELEASE_PACKAGES = dpkg-dev gcc-aarch64-linux-gnu libc6-dev-arm64-cross musl-tools
RELEASE_PROGRAMS = aarch64-linux-gnu-gcc dpkg-shlibdeps musl-gcc

# $(1): Rust targets.
define release
	@for target in $(1); do \
		[ -d "$$(rustc --print target-libdir --target $$target)" ] || rustup target add $$target || exit 1; \
		CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc \
		CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_LINKER=aarch64-linux-gnu-gcc \
		CC_aarch64_unknown_linux_musl=aarch64-linux-gnu-gcc \
		CONVOY_BUILD=$(DEB_VERSION) RUSTFLAGS="$(REMAP)" \
		$(CARGO) build --profile $(PROFILE) --locked -p convoy --target $$target || exit 1; done
endef

# $(1): a crate with a program of that name; one in PATH will do. $(2): options of `cargo install`.
define tool
	@PATH=$(TOOLS)/bin:$$PATH; \
	command -v $(1) >/dev/null || $(CARGO) install --locked --root $(TOOLS) $(2) $(1)
endef

# Runs `make install` into target/package/root. $(1): the program that writes its documents; $(2): prefix.
define stage
	rm -rf target/package
	$(MAKE) --no-print-directory install DESTDIR=target/package/root PREFIX=$(2) PROGRAM=$(1) \
		ZSH_DIR=$(2)/share/zsh/vendor-completions
	$(PACKAGE)/third-party-licenses > target/package/third-party-licenses
	gzip -9n target/package/third-party-licenses
endef

deb: release-packages ## Build Debian packages for amd64 and arm64 into target/packages: make deb [DEB_VERSION=…]
	$(call tool,cargo-deb)
	$(call release,$(DEB_TARGETS))
	$(call stage,target/$(HOST)/$(PROFILE)/convoy,/usr)
	printf 'convoy ($(DEB_VERSION)) unstable; urgency=medium\n\n  * See CHANGELOG.md of the project.\n\n -- %s\n' \
		"$(DEB_MAINTAINER)  $$(date -R -u -d @$(EPOCH))" > target/package/changelog
	mkdir -p $(PACKAGES)
	for target in $(DEB_TARGETS); do \
		PATH=$(TOOLS)/bin:$$PATH SOURCE_DATE_EPOCH=$(EPOCH) $(CARGO) deb --no-build --locked -p convoy \
			--profile $(PROFILE) --target $$target --deb-version $(DEB_VERSION) \
			--maintainer "$(DEB_MAINTAINER)" --output $(PACKAGES)/ || exit 1; done

tarball: release-packages ## Build static programs with their files, for x86-64 and ARM64, into target/packages
	$(call release,$(TARBALL_TARGETS))
	$(call stage,target/$(firstword $(TARBALL_TARGETS))/$(PROFILE)/convoy,/usr/local)
	cp LICENSE-MIT LICENSE-APACHE README.md target/package/third-party-licenses.gz target/package/root
	rm -f target/package/root/usr/local/bin/convoy
	mkdir -p $(PACKAGES)
	for target in $(TARBALL_TARGETS); do \
		name=convoy-$(VERSION)-$${target%%-*}-linux && \
		install -D -m 755 target/$$target/$(PROFILE)/convoy target/package/root/usr/local/bin/convoy && \
		tar --create --directory target/package/root --transform "s,^\.,$$name," --sort=name --owner=0 --group=0 \
			--numeric-owner --mtime=@$(EPOCH) . | gzip -9n > $(PACKAGES)/$$name.tar.gz || exit 1; done

image: release-packages ## Build the container image `convoy` (buildah, or podman)
	$(call release,$(firstword $(MUSL_TARGETS)))
	rm -rf target/package/image
	mkdir -p target/package/image/run target/package/image/etc/wireguard target/package/image/var/lib
	ln -s /run target/package/image/var/run
	cp target/$(firstword $(MUSL_TARGETS))/$(PROFILE)/convoy LICENSE-MIT LICENSE-APACHE target/package/image
	$$(command -v buildah || echo podman) build --timestamp $(EPOCH) --tag convoy \
		--file $(PACKAGE)/Containerfile target/package/image

# Built soon, with two builds of the program.
test-deb: test-packages systemd-packages ## Test the package in a Debian: installed, upgraded under a tunnel, removed (root)
	rm -rf target/test-packages
	for version in 1 2; do \
		$(MAKE) deb PROFILE=cross DEB_TARGETS=$(HOST) DEB_VERSION=$(VERSION)-$$version \
			PACKAGES=$(CURDIR)/target/test-packages || exit 1; done
	CONVOY_REQUIRE_LAB=1 CONVOY_TEST_PACKAGES=$(CURDIR)/target/test-packages \
		$(CARGO) test --locked -p convoy --test systemd -- --include-ignored --test-threads 1 package:: $(ARGS)

release-packages: # Install missing compilers for packages, if root
	$(call install,$(RELEASE_PROGRAMS),$(RELEASE_PACKAGES),packages need them)

reproducible: ## Build the program in two directories and compare the bytes (ten minutes)
	rm -rf target/reproducible
	for copy in first second/and-deeper; do \
		directory=target/reproducible/$$copy && mkdir -p $$directory && \
		git ls-files --cached --others --exclude-standard -z | xargs -0 cp --parents --target-directory=$$directory && \
		$(MAKE) --directory $$directory release && sha256sum $$directory/target/$(HOST)/release/convoy || exit 1; done
	cmp target/reproducible/*/target/$(HOST)/release/convoy \
		target/reproducible/second/and-deeper/target/$(HOST)/release/convoy

release: ## Build the program of the packages for this machine, without this machine's paths in it
	$(call release,$(HOST))

sbom: ## Write what the program consists of as target/packages/convoy.cdx.json (CycloneDX)
	$(call tool,cargo-cyclonedx)
	mkdir -p $(PACKAGES)
	PATH=$(TOOLS)/bin:$$PATH SOURCE_DATE_EPOCH=$(EPOCH) $(CARGO) cyclonedx --format json --target $(HOST) \
		--manifest-path rust/convoy/Cargo.toml
	mv rust/convoy/convoy.cdx.json $(PACKAGES)
	find . -name '*.cdx.json' -not -path './target/*' -delete
