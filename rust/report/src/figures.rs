//! One declaration of each histogram of a report, from which text, status, watch and OpenMetrics are rendered.

/// A histogram: its names, titles and unit.
#[derive(Clone, Copy, Debug)]
pub struct HistogramFigure {
    /// Key in [`crate::Counters::histograms`].
    pub name: &'static str,
    /// Name of its family in OpenMetrics, without prefix and unit.
    pub metric: &'static str,
    /// Help of its family.
    pub help: &'static str,
    /// Title in `convoy stats`.
    pub title: &'static str,
    /// Title in `convoy status`, which shows batches only.
    pub short_title: Option<&'static str>,
    /// Meaning of its values.
    pub unit: HistogramUnit,
}

/// Meaning of a histogram's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HistogramUnit {
    /// Packets or segments.
    Count,
    /// Times in units of 100 µs, rounded down.
    HundredMicroseconds,
}

/// All histograms, in the order of the packets' path: outbound, then inbound.
pub const HISTOGRAMS: [HistogramFigure; 6] = [
    batches(
        "packets_per_read",
        ["read_packets", "Packets per TUN read"],
        ["packets per TUN read", "packets per TUN read"],
    ),
    batches(
        "packets_per_batch",
        ["batch_packets", "Packets per batch of the TUN reader"],
        ["packets per batch of the reader", "packets per batch"],
    ),
    batches(
        "segments_per_send",
        ["send_segments", "Datagrams per UDP send"],
        ["segments per UDP send", "segments per send"],
    ),
    batches(
        "segments_per_receive",
        ["receive_segments", "Datagrams per UDP receive buffer"],
        ["segments per UDP receive", "segments per receive"],
    ),
    batches(
        "packets_per_write",
        ["write_packets", "Packets per TUN write"],
        ["packets per TUN write", "packets per TUN write"],
    ),
    HistogramFigure {
        name: "cpu_time_per_tick",
        metric: "tick_cpu",
        help: "CPU time per turn of the event loop; its sum is an estimate",
        title: "CPU time per tick of the event loop, in 100 µs",
        short_title: None,
        unit: HistogramUnit::HundredMicroseconds,
    },
];

const fn batches(
    name: &'static str,
    [metric, help]: [&'static str; 2],
    [title, short_title]: [&'static str; 2],
) -> HistogramFigure {
    HistogramFigure {
        name,
        metric,
        help,
        title,
        short_title: Some(short_title),
        unit: HistogramUnit::Count,
    }
}
