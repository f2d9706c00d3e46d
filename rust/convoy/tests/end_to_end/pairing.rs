//! The programs at both ends of a tunnel, and one test for each pairing.

use std::{
    env,
    path::PathBuf,
    time::{Duration, SystemTime},
};

use convoy_lab::wireguard::Implementation;

use crate::scene::convoy_program;

/// A program that speaks WireGuard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    Convoy,
    /// The one installed on the system.
    WireguardGo,
    NewestWireguardGo,
    BoringTun,
    GotaTun,
}

impl Program {
    /// Its path, or a name to look up in `PATH`.
    pub(crate) fn path(self) -> PathBuf {
        match self {
            Self::Convoy => convoy_program(),
            Self::WireguardGo => "wireguard-go".into(),
            Self::NewestWireguardGo => installed("CONVOY_TEST_WIREGUARD_GO", "wireguard"),
            Self::BoringTun => installed("CONVOY_TEST_BORINGTUN", "boringtun-cli"),
            Self::GotaTun => installed("CONVOY_TEST_GOTATUN", "gotatun"),
        }
    }

    pub(crate) fn implementation(self) -> Implementation {
        let implementation = Implementation::new(self.path());
        match self {
            Self::Convoy | Self::WireguardGo | Self::NewestWireguardGo => implementation,
            // They look up the logged-in user and exit if there is none.
            Self::BoringTun | Self::GotaTun => implementation.argument("--disable-drop-privileges"),
        }
    }

    /// The argument that it needs to follow its own host, or a peer, to another address.
    pub(crate) fn argument_to_roam(self) -> Option<&'static str> {
        match self {
            // It connects a socket to each peer, which pins both addresses.
            Self::BoringTun => Some("--disable-connected-udp"),
            _ => None,
        }
    }

    /// Returns whether it keeps working when its host loses the address that it sends from.
    pub(crate) fn survives_losing_its_address(self) -> bool {
        // Two of them get stuck with each other, too.
        self != Self::WireguardGo
    }

    /// Returns whether an existing peer can be changed, rather than only removed and added again.
    pub(crate) fn changes_peers(self) -> bool {
        self != Self::BoringTun
    }

    /// Returns whether it carries packets longer than an Ethernet frame's.
    pub(crate) fn carries_jumbo_packets(self) -> bool {
        // Two of them do not carry them between each other, either.
        !matches!(self, Self::BoringTun | Self::GotaTun)
    }

    /// Returns whether `wg set` can change its private key and its firewall mark while it runs.
    pub(crate) fn changes_itself(self) -> bool {
        self != Self::GotaTun
    }

    /// Returns whether its listen port can be changed under load.
    pub(crate) fn changes_its_port(self) -> bool {
        // Version 0.10.2 sometimes shuts down with "channel closed".
        self != Self::GotaTun
    }

    /// Returns whether its replies leave from the address that the peer sent to.
    pub(crate) fn keeps_its_source(self) -> bool {
        matches!(self, Self::Convoy | Self::WireguardGo)
    }

    /// The time of the last handshake, from its field in `wg show IFACE dump`.
    pub(crate) fn handshake_time(self, field: &str) -> SystemTime {
        let seconds = Duration::from_secs(field.parse().unwrap());
        match self {
            // It reports the age instead.
            Self::BoringTun => SystemTime::now() - seconds,
            _ => SystemTime::UNIX_EPOCH + seconds,
        }
    }
}

/// The path in the variable, or where `make interop` installs the program.
pub(crate) fn installed(variable: &str, program: &str) -> PathBuf {
    let default = || {
        let peers = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/peers/bin");
        PathBuf::from(peers).join(program)
    };
    env::var_os(variable).map_or_else(default, PathBuf::from)
}

/// The programs at the two ends; the left end sends first.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pairing {
    ConvoyToConvoy,
    ConvoyToWireguardGo,
    WireguardGoToConvoy,
    ConvoyToNewestWireguardGo,
    NewestWireguardGoToConvoy,
    ConvoyToBoringTun,
    BoringTunToConvoy,
    ConvoyToGotaTun,
    GotaTunToConvoy,
}

impl Pairing {
    pub(crate) const ALL: [Self; 9] = [
        Self::ConvoyToConvoy,
        Self::ConvoyToWireguardGo,
        Self::WireguardGoToConvoy,
        Self::ConvoyToNewestWireguardGo,
        Self::NewestWireguardGoToConvoy,
        Self::ConvoyToBoringTun,
        Self::BoringTunToConvoy,
        Self::ConvoyToGotaTun,
        Self::GotaTunToConvoy,
    ];

    /// Returns whether both programs can do this; says that the test is skipped if one of them cannot.
    pub(crate) fn both(self, can: impl Fn(Program) -> bool) -> bool {
        let (left, right) = self.ends();
        let both = can(left) && can(right);
        if !both {
            eprintln!("{self:?}: skipped, the other program does not support this");
        }
        both
    }

    /// The left end and the right end.
    pub(crate) fn ends(self) -> (Program, Program) {
        use Program::{BoringTun, Convoy, GotaTun, NewestWireguardGo, WireguardGo};
        match self {
            Self::ConvoyToConvoy => (Convoy, Convoy),
            Self::ConvoyToWireguardGo => (Convoy, WireguardGo),
            Self::WireguardGoToConvoy => (WireguardGo, Convoy),
            Self::ConvoyToNewestWireguardGo => (Convoy, NewestWireguardGo),
            Self::NewestWireguardGoToConvoy => (NewestWireguardGo, Convoy),
            Self::ConvoyToBoringTun => (Convoy, BoringTun),
            Self::BoringTunToConvoy => (BoringTun, Convoy),
            Self::ConvoyToGotaTun => (Convoy, GotaTun),
            Self::GotaTunToConvoy => (GotaTun, Convoy),
        }
    }
}

/// Turns each function into a module with one test per [`Pairing`]. Only `make interop` runs the
/// tests that need the programs it installs.
macro_rules! for_each_pairing {
    ($($(#[doc = $doc:literal])* fn $name:ident($pairing:ident: Pairing) $body:block)*) => {$(
        $(#[doc = $doc])*
        mod $name {
            #[allow(unused_imports, reason = "not every test needs all of its module")]
            use super::*;
            use $crate::pairing::Pairing;

            fn test($pairing: Pairing) $body

            $crate::pairing::pairing_tests! {
                [] from_convoy_to_convoy: ConvoyToConvoy,
                [] from_convoy_to_wireguard_go: ConvoyToWireguardGo,
                [] from_wireguard_go_to_convoy: WireguardGoToConvoy,
            }
            $crate::pairing::tests_with_installed_peers! {}
        }
    )*};
}

/// The same for slow tests: only `make interop` runs them.
macro_rules! for_each_pairing_at_length {
    ($($(#[doc = $doc:literal])* fn $name:ident($pairing:ident: Pairing) $body:block)*) => {$(
        $(#[doc = $doc])*
        mod $name {
            #[allow(unused_imports, reason = "not every test needs all of its module")]
            use super::*;
            use $crate::pairing::Pairing;

            fn test($pairing: Pairing) $body

            $crate::pairing::pairing_tests! {
                [#[ignore = "make interop"]] from_convoy_to_convoy: ConvoyToConvoy,
            }
            $crate::pairing::tests_with_installed_peers! {}
        }
    )*};
}

macro_rules! tests_with_installed_peers {
    () => {
        $crate::pairing::pairing_tests! {
            [#[ignore = "make interop"]] from_convoy_to_newest_wireguard_go: ConvoyToNewestWireguardGo,
            [#[ignore = "make interop"]] from_newest_wireguard_go_to_convoy: NewestWireguardGoToConvoy,
            [#[ignore = "make interop"]] from_convoy_to_boringtun: ConvoyToBoringTun,
            [#[ignore = "make interop"]] from_boringtun_to_convoy: BoringTunToConvoy,
            [#[ignore = "make interop"]] from_convoy_to_gotatun: ConvoyToGotaTun,
            [#[ignore = "make interop"]] from_gotatun_to_convoy: GotaTunToConvoy,
        }
    };
}

macro_rules! pairing_tests {
    ($([$(#[$attribute:meta])*] $name:ident: $pairing:ident,)*) => {$(
        #[test]
        $(#[$attribute])*
        fn $name() {
            test(Pairing::$pairing);
        }
    )*};
}

pub(crate) use {
    for_each_pairing, for_each_pairing_at_length, pairing_tests, tests_with_installed_peers,
};
