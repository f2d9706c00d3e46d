//! What cost grows with, and what of it is shown.

use convoy_lab::measure::Sample;

use super::{Record, Series, USUAL};
use crate::plot::Scale;

/// What was varied, while all else was usual.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    /// Bytes of UDP payload; what needs it in a tunnel of a larger MTU.
    PacketSize,
    /// TCP streams at once.
    Flows,
    /// Of each daemon, all but one idle.
    Peers,
    /// Of the tunnel.
    Mtu,
}

/// A figure of a series.
#[derive(Clone, Copy, Debug)]
pub struct Quantity {
    /// With its unit.
    pub name: &'static str,
    /// That are shown of it.
    pub decimals: usize,
    /// Over the rounds.
    pub of: fn(&Series) -> Option<Sample>,
}

const GBPS: Quantity = Quantity {
    name: "Gbit/s",
    decimals: 2,
    of: |series| series.gbps.clone(),
};
const KPPS: Quantity = Quantity {
    name: "kpps",
    decimals: 1,
    of: |series| series.kpps.clone(),
};
const CPU_PER_GIGABYTE: Quantity = Quantity {
    name: "CPU s/GB",
    decimals: 2,
    of: |series| series.cpu_s_per_gb.clone(),
};
const CPU_PER_PACKET: Quantity = Quantity {
    name: "CPU ns/packet",
    decimals: 0,
    of: Series::cpu_ns_per_packet,
};
const MEMORY: Quantity = Quantity {
    name: "peak MiB",
    decimals: 1,
    of: Series::peak_memory_mib,
};

impl Axis {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Self; 4] = [Self::PacketSize, Self::Flows, Self::Peers, Self::Mtu];

    /// What is shown.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::PacketSize => "By packet size",
            Self::Flows => "By flows",
            Self::Peers => "By peers",
            Self::Mtu => "By MTU",
        }
    }

    /// What was varied, with its unit.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::PacketSize => "bytes of UDP payload",
            Self::Flows => "TCP streams",
            Self::Peers => "peers, all but one idle",
            Self::Mtu => "MTU in bytes",
        }
    }

    /// The plot's file.
    #[must_use]
    pub fn plot(self) -> &'static str {
        match self {
            Self::PacketSize => "growth_by_packet_size.svg",
            Self::Flows => "growth_by_flows.svg",
            Self::Peers => "growth_by_peers.svg",
            Self::Mtu => "growth_by_mtu.svg",
        }
    }

    /// How places on it are spread: sizes evenly, since a packet costs something and each of its bytes
    /// does.
    #[must_use]
    pub fn scale(self) -> Scale {
        match self {
            Self::PacketSize | Self::Mtu => Scale::Linear,
            Self::Flows | Self::Peers => Scale::Logarithmic,
        }
    }

    /// What is shown along it.
    #[must_use]
    pub fn quantities(self) -> &'static [Quantity] {
        match self {
            Self::PacketSize => &[KPPS, GBPS, CPU_PER_GIGABYTE, CPU_PER_PACKET],
            Self::Peers => &[GBPS, CPU_PER_GIGABYTE, MEMORY],
            Self::Flows | Self::Mtu => &[GBPS, CPU_PER_GIGABYTE],
        }
    }

    /// Where a series lies on this axis; none where something else was varied.
    #[must_use]
    pub fn place(self, series: &Series) -> Option<u32> {
        let tunnel = series.tunnel;
        let is_one_stream = series.streams() == Some(1);
        match self {
            Self::PacketSize => series.payload(),
            Self::Flows => series.streams().filter(|_| tunnel == USUAL),
            Self::Peers => (is_one_stream && tunnel.mtu == USUAL.mtu).then_some(tunnel.peers),
            Self::Mtu => (is_one_stream && tunnel.peers == USUAL.peers).then_some(tunnel.mtu),
        }
    }
}

impl Record {
    /// The series on an axis, from the lowest place on.
    #[must_use]
    pub fn along(&self, axis: Axis) -> Vec<(u32, &Series)> {
        let series = self.series.iter();
        let mut along: Vec<_> = series
            .filter_map(|series| Some((axis.place(series)?, series)))
            .collect();
        along.sort_by_key(|&(place, _)| place);
        along
    }
}
