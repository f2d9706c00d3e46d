//! The text that `convoy status` prints for people, in the order of `wg show`.

pub(super) mod counters;
mod fields;
pub(super) mod words;

use std::{
    collections::BTreeMap,
    fmt::{self, Write},
};

use convoy_process::paragraph::fill;
use convoy_report::{
    CarriedStatus, Condition, ForwardStatus, NatStatus, PeerState, PeerStatus, PortForwardStatus,
    PortMappingStatus, Rate, Status, Statuses, ViaStatus,
};
use convoy_stats::{binary, direct, relay};
use jiff::Timestamp;

use fields::{field, optional};
use words::{ago, from_now, milliseconds, rate, span, until_now};

/// All tunnels, with ages as of `now`.
pub fn render(statuses: &Statuses, now: Timestamp) -> String {
    let mut text = String::new();
    for (number, status) in statuses.interfaces.iter().enumerate() {
        if number > 0 {
            text.push('\n');
        }
        // INVARIANT: writing to a String does not fail.
        write_status(&mut text, status, now).expect("a String takes what is written");
    }
    text
}

fn write_status(out: &mut String, status: &Status, now: Timestamp) -> fmt::Result {
    writeln!(out, "interface: {}", status.name)?;
    field(out, "state", condition(status, now))?;
    let config = status.config.as_ref();
    optional(out, "configuration", config.map(|path| path.display()))?;
    optional(out, "public key", status.public_key.as_ref())?;
    let (port, mark) = (status.listen_port, status.fwmark);
    optional(out, "listening port", (port != 0).then_some(port))?;
    optional(out, "fwmark", (mark != 0).then(|| format!("{mark:#x}")))?;
    optional(out, "MTU", status.mtu)?;
    let servers = (!status.dns.is_empty()).then(|| status.dns.join(", "));
    optional(out, "name servers", servers)?;
    let mapping = status.port_mapping.as_ref();
    optional(out, "port mapping", mapping.map(port_mapping))?;
    let forwarded = status.port_forward.as_ref();
    optional(out, "forwarded port", forwarded.map(port_forward))?;
    optional(out, "engine", status.engine.as_ref())?;
    let commands = status.commands.filter(|count| *count > 0);
    optional(out, "commands inside", commands)?;
    if let Some(switch) = &status.kill_switch {
        let note = match (status.state, status.kill_switch_closed) {
            _ if switch == "off" => "",
            (Condition::Paused, _) => ", open for the pause",
            (_, Some(false)) => ", but open",
            _ => "",
        };
        field(out, "kill switch", format!("{switch}{note}"))?;
    }
    optional(out, "processes", processes(status))?;
    if let Some(stats) = &status.stats {
        counters::write(out, stats, status.rate)?;
    }
    let mut warnings = status.warnings.iter();
    warnings.try_for_each(|warning| field(out, "warning", warning))?;
    let mut forwards = status.forwards.iter();
    forwards.try_for_each(|forward| write_forward(out, forward))?;
    let mut nat = status.nat.iter();
    nat.try_for_each(|nat| write_nat(out, nat))?;
    for server in &status.relays {
        field(out, "relay", relay::words(server))?;
    }
    let mut peers = status.peers.iter();
    peers.try_for_each(|peer| write_peer(out, peer, now))?;
    let mut via = status.via.iter();
    via.try_for_each(|via| write_via(out, via, now))
}

/// The tunnel through which this one goes.
fn write_via(out: &mut String, via: &ViaStatus, now: Timestamp) -> fmt::Result {
    writeln!(out, "\nthrough: {}", via.name)?;
    let config = via.config.as_ref();
    optional(out, "configuration", config.map(|path| path.display()))?;
    optional(out, "public key", via.public_key.as_ref())?;
    if let Some(stats) = &via.stats {
        counters::write_outer(out, stats)?;
    }
    let mut peers = via.peers.iter();
    peers.try_for_each(|peer| write_peer(out, peer, now))
}

/// Returns whether it is up, and for how long.
pub(super) fn condition(status: &Status, now: Timestamp) -> String {
    let since = status
        .since
        .map(|since| format!(" for {}", span(until_now(since, now))));
    let since = since.unwrap_or_default();
    match (status.state, status.paused_until) {
        (Condition::Up, _) => format!("up{since}"),
        (Condition::Paused, Some(until)) => {
            let left = from_now(until, now);
            format!(
                "paused for another {}; packets leave outside the tunnel",
                span(left)
            )
        }
        (Condition::Paused, None) => "paused; packets leave outside the tunnel".to_owned(),
        (Condition::WithoutSupervisor, _) => format!("up without a supervisor{since}"),
        (Condition::Daemon, _) => "up as a daemon, without a supervisor".to_owned(),
    }
}

/// Words a mapping of the router, or why there is none.
fn port_mapping(mapping: &PortMappingStatus) -> String {
    match (&mapping.external, &mapping.protocol, &mapping.problem) {
        (Some(external), Some(protocol), _) => format!("{external} by {protocol}"),
        (_, _, Some(problem)) => format!("none: {problem}"),
        _ => "none yet: the router is being asked".to_owned(),
    }
}

/// Words a port of a provider, or why there is none.
fn port_forward(forward: &PortForwardStatus) -> String {
    match (forward.port, &forward.address, &forward.problem) {
        (Some(port), Some(address), _) => format!("{port}, at {address}"),
        (Some(port), None, _) => port.to_string(),
        (None, _, Some(problem)) => format!("none: {problem}"),
        (None, _, None) => format!("none yet: {} is being asked", forward.gateway),
    }
}

/// A listener, and what it has carried and refused.
fn write_forward(out: &mut String, forward: &ForwardStatus) -> fmt::Result {
    let (at, target) = (forward.listen.join(" "), &forward.target);
    let line = match forward.is_inside {
        true => format!("{at} (inside) → {target}"),
        false => format!("{at} → {target}"),
    };
    field(out, "forward", line)?;
    writeln!(out, "{}", fill(&carried(&forward.carried), "    ", "    "))
}

/// A gateway, and what it has carried and refused.
fn write_nat(out: &mut String, nat: &NatStatus) -> fmt::Result {
    field(out, "nat", "peers' traffic to other addresses is forwarded")?;
    let flows = [("TCP", &nat.tcp), ("UDP", &nat.udp), ("ping", &nat.icmp)];
    let dns = nat.dns.iter().map(|dns| ("DNS", dns));
    for (protocol, of_protocol) in flows.into_iter().chain(dns) {
        if *of_protocol != CarriedStatus::default() {
            let line = format!("{protocol}: {}", carried(of_protocol));
            writeln!(out, "{}", fill(&line, "    ", "      "))?;
        }
    }
    if !nat.dropped_packets.is_empty() {
        let line = format!("packets dropped: {}", by_reason(&nat.dropped_packets));
        writeln!(out, "{}", fill(&line, "    ", "      "))?;
    }
    Ok(())
}

fn carried(carried: &CarriedStatus) -> String {
    let (bytes_out, bytes_in) = (binary(carried.bytes_out), binary(carried.bytes_in));
    let mut line = format!(
        "{} open, {} so far, {bytes_out} out, {bytes_in} in",
        carried.open, carried.opened
    );
    if !carried.refused.is_empty() {
        line += &format!("; refused: {}", by_reason(&carried.refused));
    }
    if !carried.bounds_met.is_empty() {
        line += &format!("; bounds met: {}", by_reason(&carried.bounds_met));
    }
    if carried.dropped_datagrams > 0 {
        line += &format!("; datagrams dropped: {}", carried.dropped_datagrams);
    }
    line
}

fn by_reason(counts: &BTreeMap<String, u64>) -> String {
    let counts = counts.iter();
    let words: Vec<_> = counts
        .map(|(reason, count)| format!("{} {count}", reason.replace('_', " ")))
        .collect();
    words.join(", ")
}

fn processes(status: &Status) -> Option<String> {
    let pids = [
        ("supervisor", status.supervisor_pid),
        ("tunnel", status.tunnel_pid),
    ];
    let pids = pids
        .iter()
        .filter_map(|(name, pid)| Some(format!("{name} {}", (*pid)?)));
    let pids: Vec<_> = pids.collect();
    (!pids.is_empty()).then(|| pids.join(", "))
}

fn write_peer(out: &mut String, status: &PeerStatus, now: Timestamp) -> fmt::Result {
    let peer = &status.peer;
    let name = status.name.as_ref().map(|name| format!(" ({name})"));
    let name = name.unwrap_or_default();
    writeln!(out, "\npeer: {}{name}", peer.public_key)?;
    field(out, "state", contact(status, now))?;
    optional(out, "problem", status.problem.as_ref())?;
    let is_shared = peer.has_preshared_key;
    optional(out, "preshared key", is_shared.then_some("(hidden)"))?;
    optional(out, "endpoint", peer.endpoint.as_ref())?;
    optional(out, "path", relay::path(peer))?;
    let allowed = match peer.allowed_ips.is_empty() {
        true => "(none)".to_owned(),
        false => peer.allowed_ips.join(", "),
    };
    field(out, "allowed ips", allowed)?;
    let latest = peer.latest_handshake.map(|time| ago(time, now));
    let latest = latest.unwrap_or_else(|| "never".to_owned());
    field(out, "latest handshake", latest)?;
    let round_trip = peer.handshake_round_trip_us.map(milliseconds);
    optional(out, "handshake round trip", round_trip)?;
    if peer.rx_bytes + peer.tx_bytes > 0 {
        let (received, sent) = (binary(peer.rx_bytes), binary(peer.tx_bytes));
        field(out, "transfer", format!("{received} received, {sent} sent"))?;
    }
    optional(out, "rate", status.rate.map(rate))?;
    let mut directs = peer.direct.iter();
    directs
        .try_for_each(|direct| writeln!(out, "{}", fill(&direct::line(direct), "  ", "    ")))?;
    let keepalive = u64::from(peer.persistent_keepalive);
    let keepalive = (keepalive > 0).then(|| format!("every {}", span(keepalive)));
    optional(out, "persistent keepalive", keepalive)
}

/// The state of a peer in words; its problem has a line of its own.
fn contact(status: &PeerStatus, now: Timestamp) -> String {
    let why = match status.state {
        PeerState::Connected => {
            let since = status.peer.connected_since;
            let time = since.map(|since| format!(" for {}", span(until_now(since, now))));
            return format!("connected{}", time.unwrap_or_default());
        }
        PeerState::Connecting => return "connecting".to_owned(),
        PeerState::Idle if status.peer.latest_handshake.is_none() => {
            return "not used yet: the first packet connects".to_owned();
        }
        PeerState::Idle => return "idle: the next packet connects".to_owned(),
        PeerState::NoAnswer => "no answer",
        PeerState::NotAuthentic => "its answers are not authentic",
        PeerState::NoRoute => "no route",
        PeerState::NameNotFound => "name not found",
        PeerState::NoEndpoint => "no endpoint",
    };
    format!("not connected: {why}")
}

#[cfg(test)]
mod tests;
