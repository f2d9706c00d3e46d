//! Who is at which end of a tunnel, and one test for each such pairing.

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
    /// As the system has it.
    WireguardGo,
    NewestWireguardGo,
    BoringTun,
    GotaTun,
}

impl Program {
    /// Where it is: a path, or a name to be found in `PATH`.
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
            // They ask for the user who has logged in, and end where nobody has.
            Self::BoringTun | Self::GotaTun => implementation.argument("--disable-drop-privileges"),
        }
    }

    /// What it has to be told to follow its own host, or a peer, to another address.
    pub(crate) fn argument_to_roam(self) -> Option<&'static str> {
        match self {
            // It connects a socket to each peer, which keeps the addresses that both had then.
            Self::BoringTun => Some("--disable-connected-udp"),
            _ => None,
        }
    }

    /// Whether it goes on when the address that it has sent from is taken from its host.
    pub(crate) fn notices_that_its_address_is_gone(self) -> bool {
        // Two of its kind stand still.
        self != Self::WireguardGo
    }

    /// Whether a peer that is there can be changed; otherwise only removed and added anew.
    pub(crate) fn changes_peers(self) -> bool {
        self != Self::BoringTun
    }

    /// Whether it carries packets longer than those of an Ethernet.
    pub(crate) fn carries_jumbo_packets(self) -> bool {
        // Two of the same kind do not, either.
        !matches!(self, Self::BoringTun | Self::GotaTun)
    }

    /// Whether `wg set` may change its key and its mark once it runs.
    pub(crate) fn changes_itself(self) -> bool {
        self != Self::GotaTun
    }

    /// Whether its answers leave from the address that it was spoken to.
    pub(crate) fn keeps_its_source(self) -> bool {
        matches!(self, Self::Convoy | Self::WireguardGo)
    }

    /// When the last handshake was, from the field that `wg show IFACE dump` gives.
    pub(crate) fn handshake_time(self, field: &str) -> SystemTime {
        let seconds = Duration::from_secs(field.parse().unwrap());
        match self {
            // It tells how long ago.
            Self::BoringTun => SystemTime::now() - seconds,
            _ => SystemTime::UNIX_EPOCH + seconds,
        }
    }
}

/// The path that a variable names, else where `make interop` installs the program.
fn installed(variable: &str, program: &str) -> PathBuf {
    let default = || {
        let peers = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/peers/bin");
        PathBuf::from(peers).join(program)
    };
    env::var_os(variable).map_or_else(default, PathBuf::from)
}

/// Who is at which end; the left end speaks first.
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

    /// Whether both ends are so; says that the test is left out if one of them is not.
    pub(crate) fn both(self, are: impl Fn(Program) -> bool) -> bool {
        let (left, right) = self.ends();
        let both = are(left) && are(right);
        if !both {
            eprintln!("{self:?}: left out, the other program cannot do this");
        }
        both
    }

    /// The left end and the right one.
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

/// Makes of each function a module with one test a [`Pairing`]: those with programs that
/// `make interop` installs are for it alone.
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

/// The same for tests that wait long: all of them are for `make interop`.
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
