//! The series of `/metrics`. All have the label `interface`.
//!
//! | label | values |
//! |---|---|
//! | `direction` | `outbound`, `inbound` |
//! | `reason` | the drop reasons of `convoy stats`, about 30 |
//! | `call`, `event`, `feature` | those of `convoy stats`, about 10 each |
//! | `public_key`, `name` | of at most [`peers::MAX_PEERS`] peers a tunnel; a friendly name belongs to one key |
//!
//! The tunnel through which another goes has families of its own, `convoy_outer_…`, which no other sum includes.
//!
//! Addresses are no labels: a roaming peer would make new series for ever.

mod directs;
mod out;
mod outer;
mod peers;
mod relays;

use std::{borrow::Cow, fmt};

use convoy_report::{Counters, HISTOGRAMS, HistogramUnit, Report};
use jiff::Timestamp;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, text::encode},
    metrics::MetricType,
    registry::{Registry, Unit},
};

use super::{
    Client, Observation,
    histogram::{Histogram, Scale},
};
use out::Out;

/// The observation in OpenMetrics text.
pub(super) fn text(observation: Observation, now: Timestamp) -> Result<String, fmt::Error> {
    let interface = Cow::Owned(observation.interface.clone());
    let label = (Cow::Borrowed("interface"), interface);
    let mut registry = Registry::with_prefix_and_labels("convoy", [label].into_iter());
    registry.register_collector(Box::new(Families { observation, now }));
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

#[derive(Debug)]
struct Families {
    observation: Observation,
    now: Timestamp,
}

impl Collector for Families {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut out = Out(encoder);
        let responds = self.observation.report.is_ok();
        out.gauge(
            "tunnel_responding",
            "Whether the tunnel's process answers",
            u64::from(responds),
        )?;
        if let Some(client) = &self.observation.client {
            write_client(&mut out, client)?;
        }
        let Ok(report) = &self.observation.report else {
            return Ok(());
        };
        let version = [("version", report.version.as_str())];
        out.describe("build", "The running version", None, MetricType::Info)?
            .encode_info(&version)?;
        write_state(&mut out, &report.counters)?;
        write_traffic(&mut out, &report.counters)?;
        write_histograms(&mut out, &report.counters)?;
        self.write_peers(&mut out, report)
    }
}

impl Families {
    fn write_peers(&self, out: &mut Out<'_>, report: &Report) -> fmt::Result {
        let shown = peers::shown(&report.peers);
        let omitted = report.peers.len() - shown.len();
        out.gauge(
            "peers",
            "Peers that are configured",
            report.peers.len() as u64,
        )?;
        let help = "Peers without series of their own, as there are too many";
        out.gauge("peers_omitted", help, omitted as u64)?;
        let client = self.observation.client.as_ref();
        let names = client.map(|client| &client.names);
        peers::write(out, "", shown, names, self.now)?;
        directs::write(out, shown)?;
        relays::write(out, &report.relays)?;
        let mut outer = report.outer.iter();
        outer.try_for_each(|it| outer::write(out, it, names, self.now))
    }
}

fn write_client(out: &mut Out<'_>, client: &Client) -> fmt::Result {
    let help = "Whether the kernel drops what would leave outside the tunnel";
    out.gauge(
        "kill_switch_closed",
        help,
        u64::from(client.is_kill_switch_closed),
    )?;
    let help = "Whether packets leave outside the tunnel (convoy pause)";
    out.gauge("paused", help, u64::from(client.is_paused))?;
    let help = "Warnings that convoy status shows";
    out.gauge("warnings", help, client.warnings as u64)?;
    if let Some(port) = client.port_forwarded {
        let help = "The port that the provider forwards through the tunnel; 0 if it forwards none";
        out.gauge("forwarded_port", help, u64::from(port))?;
    }
    let deaths = [([], client.tunnel_deaths)];
    let help = "How often the tunnel's process has died and was started again";
    out.counters("tunnel_deaths", help, None, deaths.into_iter())
}

/// Writes what is on and off, and sizes. A state that another version reports in other words is left out.
fn write_state(out: &mut Out<'_>, counters: &Counters) -> fmt::Result {
    let state = &counters.state;
    if let Some(link) = state.get("link") {
        out.gauge("link_up", "Whether the link is up", u64::from(link == "up"))?;
    }
    let features = state
        .iter()
        .filter_map(|(name, value)| match value.as_str() {
            "on" => Some(([("feature", name.as_str())], 1)),
            "off" => Some(([("feature", name.as_str())], 0)),
            _ => None,
        });
    out.gauges(
        "feature_enabled",
        "Whether a feature is in use",
        None,
        features,
    )?;
    let number = |name: &str| state.get(name)?.parse().ok();
    if let Some(mtu) = number("mtu") {
        out.gauges(
            "mtu",
            "The interface's MTU",
            Some(&Unit::Bytes),
            [([], mtu)].into_iter(),
        )?;
    }
    let buffers = [
        ("outbound", "udp_send_buffer"),
        ("inbound", "udp_receive_buffer"),
    ];
    let buffers = buffers
        .into_iter()
        .filter_map(|(direction, name)| Some(([("direction", direction)], number(name)?)));
    out.gauges(
        "udp_buffer",
        "Size of a UDP socket's buffer",
        Some(&Unit::Bytes),
        buffers,
    )?;
    if let Some(suspended) = number("gso_suspended_destinations") {
        let help = "Addresses to which datagrams go one by one, as the kernel refuses segmentation";
        out.gauge("gso_suspended_destinations", help, suspended)?;
    }
    Ok(())
}

fn write_traffic(out: &mut Out<'_>, counters: &Counters) -> fmt::Result {
    let directions = [
        ("outbound", counters.outbound),
        ("inbound", counters.inbound),
    ];
    let by_direction = directions.map(|(name, traffic)| ([("direction", name)], traffic));
    let packets = by_direction.map(|(labels, traffic)| (labels, traffic.packets));
    out.counters("packets", "Packets in the clear", None, packets.into_iter())?;
    let bytes = by_direction.map(|(labels, traffic)| (labels, traffic.bytes));
    let help = "Bytes of packets in the clear";
    out.counters("packet", help, Some(&Unit::Bytes), bytes.into_iter())?;
    for (label, name, help, counts) in [
        (
            "reason",
            "drops",
            "Packets and datagrams dropped",
            &counters.drops,
        ),
        (
            "call",
            "system_calls",
            "System calls of the data path",
            &counters.syscalls,
        ),
        (
            "event",
            "events",
            "Refusals, retries and the like",
            &counters.events,
        ),
    ] {
        let series = counts
            .iter()
            .map(|(value, count)| ([(label, value.as_str())], *count));
        out.counters(name, help, None, series)?;
    }
    for (name, help, count) in [
        ("ticks", "Turns of the event loop", counters.ticks),
        ("handshakes", "Handshakes completed", counters.handshakes),
        (
            "cookie_replies",
            "Cookie replies sent",
            counters.cookies_sent,
        ),
    ] {
        out.counters(name, help, None, [([], count)].into_iter())?;
    }
    Ok(())
}

fn write_histograms(out: &mut Out<'_>, counters: &Counters) -> fmt::Result {
    for figure in HISTOGRAMS {
        let Some(counts) = counters.histograms.get(figure.name) else {
            continue;
        };
        let (unit, scale) = match figure.unit {
            HistogramUnit::Count => (None, Scale::Count),
            HistogramUnit::HundredMicroseconds => {
                (Some(&Unit::Seconds), Scale::HundredMicroseconds)
            }
        };
        let histogram = Histogram::of(counts, scale);
        out.histogram(figure.metric, figure.help, unit, &histogram)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
