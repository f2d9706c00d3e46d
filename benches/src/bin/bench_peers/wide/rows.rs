//! What is compared in the wide set.

use serde::{Serialize, Serializer};

/// A figure that is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Row {
    /// Of a TCP run.
    Tcp(Stream, Figure),
    /// Of requests with answers, 32 bytes each way, one in flight.
    RoundTrip(Over, Beside, Percentile),
    /// Requests a second, each over a TCP connection of its own.
    Connections,
    /// The most UDP packets with this payload that arrived at any of the rates, in kpps.
    MostUdp(usize),
}

/// A TCP run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stream {
    Up,
    Down,
    EightUp,
    EightDown,
    /// Up, while the veth loses 1 % each way.
    Lossy,
}

/// What is told of a TCP run; all but the rate of both daemons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Figure {
    Rate,
    Cpu,
    Syscalls,
    Memory,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Over {
    Tcp,
    Udp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Beside {
    Nothing,
    /// One TCP stream up.
    Tcp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Percentile {
    P50,
    P99,
    P999,
}

impl Figure {
    pub(super) const ALL: [Self; 4] = [Self::Rate, Self::Cpu, Self::Syscalls, Self::Memory];

    fn name(self) -> (&'static str, &'static str) {
        match self {
            Self::Rate => ("gbps", "Gbit/s"),
            Self::Cpu => ("cpu", "CPU s/GB"),
            Self::Syscalls => ("syscalls", "thousand system calls/GB"),
            Self::Memory => ("memory", "peak memory, MB"),
        }
    }
}

impl Over {
    pub(super) const ALL: [Self; 2] = [Self::Tcp, Self::Udp];

    fn name(self) -> (&'static str, &'static str) {
        match self {
            Self::Tcp => ("tcp", "TCP"),
            Self::Udp => ("udp", "UDP"),
        }
    }
}

impl Percentile {
    pub(super) const ALL: [Self; 3] = [Self::P50, Self::P99, Self::P999];

    fn name(self) -> (&'static str, &'static str) {
        match self {
            Self::P50 => ("p50", "p50"),
            Self::P99 => ("p99", "p99"),
            Self::P999 => ("p99.9", "p99.9"),
        }
    }
}

impl Stream {
    fn name(self) -> (&'static str, &'static str) {
        match self {
            Self::Up => ("tcp-up", "TCP up"),
            Self::Down => ("tcp-down", "TCP down"),
            Self::EightUp => ("tcp-8-up", "TCP up, 8 streams"),
            Self::EightDown => ("tcp-8-down", "TCP down, 8 streams"),
            Self::Lossy => ("tcp-loss", "TCP up, 1 % lost"),
        }
    }
}

impl Beside {
    fn name(self) -> (&'static str, &'static str) {
        match self {
            Self::Nothing => ("idle", "idle"),
            Self::Tcp => ("loaded", "while TCP runs"),
        }
    }
}

impl Row {
    /// In the JSON file.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Tcp(stream, figure) => format!("{}-{}", stream.name().0, figure.name().0),
            Self::RoundTrip(over, beside, percentile) => format!(
                "request-{}-{}-{}",
                over.name().0,
                beside.name().0,
                percentile.name().0
            ),
            Self::Connections => "connections".to_owned(),
            Self::MostUdp(payload) => format!("udp-{payload}-most"),
        }
    }

    /// For people, with the unit.
    pub(crate) fn title(self) -> String {
        match self {
            Self::Tcp(stream, figure) => format!("{}, {}", stream.name().1, figure.name().1),
            Self::RoundTrip(over, beside, percentile) => format!(
                "{} request, {}, {}, µs",
                over.name().1,
                beside.name().1,
                percentile.name().1
            ),
            Self::Connections => "connections with a request, 1/s".to_owned(),
            Self::MostUdp(payload) => format!("UDP {payload} B, most that arrived, kpps"),
        }
    }

    pub(crate) fn more_is_better(self) -> bool {
        matches!(
            self,
            Self::Tcp(_, Figure::Rate) | Self::Connections | Self::MostUdp(_)
        )
    }

    /// Digits behind the point in a table.
    pub(crate) fn decimals(self) -> usize {
        match self {
            Self::Tcp(_, Figure::Rate | Figure::Cpu) => 2,
            Self::Tcp(_, Figure::Syscalls | Figure::Memory) | Self::MostUdp(_) => 1,
            Self::RoundTrip(..) | Self::Connections => 0,
        }
    }
}

impl Serialize for Row {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.name())
    }
}
