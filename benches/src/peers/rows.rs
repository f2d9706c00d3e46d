//! What is compared, and what is asked of Convoy.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// A figure that is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Row {
    /// TCP from left to right, one stream
    TcpUp,
    /// TCP from right to left, one stream
    TcpDown,
    /// TCP from left to right, four streams
    #[value(name = "tcp-4")]
    #[serde(rename = "tcp-4")]
    Tcp4,
    /// TCP both ways at once, one stream each, the sum
    TcpBoth,
    /// CPU time of both daemons for a gigabyte of `tcp-up`
    Cpu,
    /// The highest rate of 1,200-byte UDP packets with at most 1 % loss
    #[value(name = "udp-1200")]
    #[serde(rename = "udp-1200")]
    Udp1200,
    /// The highest rate of 64-byte UDP packets with at most 1 % loss
    #[value(name = "udp-64")]
    #[serde(rename = "udp-64")]
    Udp64,
    /// What arrives when 200,000 UDP packets of 1,200 bytes are sent a second
    #[value(name = "udp-200k")]
    #[serde(rename = "udp-200k")]
    Udp200k,
    /// As `tcp-up`, with UDP segmentation off on the veth, as on a wire
    TcpCut,
    /// Median round trip without load
    PingIdle,
    /// Median round trip during `tcp-up`
    PingTcp,
    /// CPU time of one daemon without traffic
    CpuIdle,
    /// The most memory that one daemon had (VmHWM), after all other rows
    Memory,
}

/// What is asked of Convoy in a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Must {
    /// This ratio to the best peer, or more.
    RatioAtLeast(f64),
    /// This ratio to the best peer, or less.
    RatioAtMost(f64),
    /// This figure, or less.
    AtMost(f64),
}

impl Row {
    /// In the order of the table.
    pub const ALL: [Self; 13] = [
        Self::TcpUp,
        Self::TcpDown,
        Self::Tcp4,
        Self::TcpBoth,
        Self::Cpu,
        Self::Udp1200,
        Self::Udp64,
        Self::Udp200k,
        Self::TcpCut,
        Self::PingIdle,
        Self::PingTcp,
        Self::CpuIdle,
        Self::Memory,
    ];

    /// For people, with the unit.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::TcpUp => "TCP up, Gbit/s",
            Self::TcpDown => "TCP down, Gbit/s",
            Self::Tcp4 => "TCP, 4 streams, Gbit/s",
            Self::TcpBoth => "TCP, both ways, Gbit/s",
            Self::Cpu => "CPU s/GB",
            Self::Udp1200 => "UDP 1,200 B, ≤ 1 % loss, kpps",
            Self::Udp64 => "UDP 64 B, ≤ 1 % loss, kpps",
            Self::Udp200k => "of 200 kpps arrive, kpps",
            Self::TcpCut => "TCP, veth without USO, Gbit/s",
            Self::PingIdle => "ping, idle, ms",
            Self::PingTcp => "ping, while TCP runs, ms",
            Self::CpuIdle => "CPU when idle, %",
            Self::Memory => "peak memory, MB",
        }
    }

    /// What is asked of Convoy.
    #[must_use]
    pub fn must(self) -> Must {
        match self {
            Self::TcpUp | Self::TcpDown | Self::Tcp4 | Self::TcpBoth => Must::RatioAtLeast(1.25),
            Self::Cpu => Must::RatioAtMost(0.8),
            Self::Udp1200 | Self::Udp200k => Must::RatioAtLeast(2.0),
            Self::Udp64 => Must::RatioAtLeast(1.1),
            Self::TcpCut => Must::RatioAtLeast(1.8),
            Self::PingIdle | Self::PingTcp => Must::RatioAtMost(1.2),
            Self::CpuIdle => Must::AtMost(1.0),
            Self::Memory => Must::AtMost(24.0),
        }
    }

    /// Whether more is better.
    #[must_use]
    pub fn more_is_better(self) -> bool {
        matches!(self.must(), Must::RatioAtLeast(_))
    }

    /// Digits behind the point in a table.
    #[must_use]
    pub fn decimals(self) -> usize {
        match self {
            Self::Udp1200 | Self::Udp64 | Self::Udp200k | Self::Memory => 1,
            Self::PingIdle | Self::PingTcp => 3,
            _ => 2,
        }
    }
}
