//! The kinds of flood, and what each is to show.

use clap::ValueEnum;
use convoy_lab::flood::Datagrams;

use crate::scene::Captured;

/// One row of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// Random bytes of random lengths
    Noise,
    /// Handshake initiations by type and length, with wrong MACs
    WrongMac,
    /// Initiations that the peer has sent before
    ReplayedHandshakes,
    /// The same with a wrong answer to a cookie
    WrongCookies,
    /// Data that the peer has sent before, in the running session
    ReplayedData,
    /// Data for the running session with counters to come: every one is decrypted in vain
    ForgedData,
    /// Trains of 64 KiB in segments of 1,472 bytes, the last one shorter
    Trains,
    /// Trains of 64 segments of 100 bytes, the last one shorter
    ShortTrains,
}

impl Kind {
    /// As it is called on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Noise => "noise",
            Self::WrongMac => "wrong-mac",
            Self::ReplayedHandshakes => "replayed-handshakes",
            Self::WrongCookies => "wrong-cookies",
            Self::ReplayedData => "replayed-data",
            Self::ForgedData => "forged-data",
            Self::Trains => "trains",
            Self::ShortTrains => "short-trains",
        }
    }

    /// Whether the node is to ask for cookies: the first MAC is right.
    pub(crate) fn brings_cookies(self) -> bool {
        matches!(self, Self::ReplayedHandshakes | Self::WrongCookies)
    }

    pub(crate) fn datagrams(self, captured: &Captured) -> Datagrams {
        match self {
            Self::Noise => Datagrams::noise(),
            Self::WrongMac => Datagrams::wrong_macs(),
            Self::ReplayedHandshakes => Datagrams::replayed(captured.initiations.clone()),
            Self::WrongCookies => Datagrams::wrong_cookies(&captured.initiations),
            Self::ReplayedData => Datagrams::replayed(captured.data.clone()),
            Self::ForgedData => Datagrams::forged(captured.data.clone()),
            Self::Trains => Datagrams::trains(1472),
            Self::ShortTrains => Datagrams::trains(100),
        }
    }
}
