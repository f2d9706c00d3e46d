//! The text that `convoy status` prints for people, in the order of `wg show`.

use std::fmt::{self, Write};

use jiff::{
    SignedDuration, Timestamp,
    fmt::friendly::{Designator, Direction, Spacing, SpanPrinter},
};

use super::{Condition, PeerStatus, Status, Statuses};
use crate::stats::binary;

/// Age in seconds at which a session ends (section 6 of the WireGuard paper).
const SESSION_TIME: u64 = 180;

/// All tunnels, with ages as of `now`.
pub(super) fn render(statuses: &Statuses, now: Timestamp) -> String {
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
    writeln!(out, "  state: {}", condition(status, now))?;
    if let Some(config) = &status.config {
        writeln!(out, "  configuration: {}", config.display())?;
    }
    if status.listen_port != 0 {
        writeln!(out, "  listening port: {}", status.listen_port)?;
    }
    if status.fwmark != 0 {
        writeln!(out, "  fwmark: {:#x}", status.fwmark)?;
    }
    if let Some(mtu) = status.mtu {
        writeln!(out, "  MTU: {mtu}")?;
    }
    if !status.dns.is_empty() {
        writeln!(out, "  name servers: {}", status.dns.join(", "))?;
    }
    if let Some(switch) = &status.kill_switch {
        let is_open = status.state == Condition::Paused && switch != "off";
        let note = if is_open { ", open for the pause" } else { "" };
        writeln!(out, "  kill switch: {switch}{note}")?;
    }
    let pids = [
        ("supervisor", status.supervisor_pid),
        ("tunnel", status.tunnel_pid),
    ];
    let pids = pids
        .iter()
        .filter_map(|(name, pid)| Some(format!("{name} {}", (*pid)?)));
    let pids: Vec<_> = pids.collect();
    if !pids.is_empty() {
        writeln!(out, "  processes: {}", pids.join(", "))?;
    }
    for warning in &status.warnings {
        writeln!(out, "  warning: {warning}")?;
    }
    let mut peers = status.peers.iter();
    peers.try_for_each(|peer| write_peer(out, peer, now))
}

fn condition(status: &Status, now: Timestamp) -> String {
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
    }
}

fn write_peer(out: &mut String, peer: &PeerStatus, now: Timestamp) -> fmt::Result {
    let name = peer.name.as_ref().map(|name| format!(" ({name})"));
    writeln!(
        out,
        "\npeer: {}{}",
        peer.public_key,
        name.unwrap_or_default()
    )?;
    if let Some(endpoint) = &peer.endpoint {
        writeln!(out, "  endpoint: {endpoint}")?;
    }
    let allowed = match peer.allowed_ips.is_empty() {
        true => "(none)".to_owned(),
        false => peer.allowed_ips.join(", "),
    };
    writeln!(out, "  allowed ips: {allowed}")?;
    match peer.latest_handshake {
        Some(time) => writeln!(out, "  latest handshake: {}", ago(time, now))?,
        None => writeln!(out, "  latest handshake: never")?,
    }
    if peer.rx_bytes + peer.tx_bytes > 0 {
        let (received, sent) = (binary(peer.rx_bytes), binary(peer.tx_bytes));
        writeln!(out, "  transfer: {received} received, {sent} sent")?;
    }
    if peer.persistent_keepalive > 0 {
        let every = span(peer.persistent_keepalive.into());
        writeln!(out, "  persistent keepalive: every {every}")?;
    }
    for problem in problems(peer, now) {
        writeln!(out, "  problem: {problem}")?;
    }
    Ok(())
}

/// What is wrong with a peer, in words.
fn problems(peer: &PeerStatus, now: Timestamp) -> Vec<String> {
    let mut problems: Vec<_> = peer.problem.iter().cloned().collect();
    let is_new = peer.latest_handshake.is_none();
    let age = peer.latest_handshake.map(|time| until_now(time, now));
    let has_sent = peer.tx_bytes > 0;
    if is_new && has_sent && peer.endpoint.is_some() && problems.is_empty() {
        problems.push(
            "it does not answer: check its endpoint and public key, and that it knows ours"
                .to_owned(),
        );
    }
    let is_waiting = peer.endpoint.is_none() && problems.is_empty();
    if is_new && is_waiting {
        problems.push("it has no endpoint: it must call first".to_owned());
    }
    let is_kept_alive = peer.persistent_keepalive > 0;
    if is_kept_alive && age.is_some_and(|age| age > SESSION_TIME) && problems.is_empty() {
        problems.push("it no longer answers".to_owned());
    }
    problems
}

/// `1 minute, 4 seconds ago`
fn ago(time: u64, now: Timestamp) -> String {
    match until_now(time, now) {
        0 => "now".to_owned(),
        seconds => format!("{} ago", span(seconds)),
    }
}

/// `1 minute, 4 seconds`
fn span(seconds: u64) -> String {
    let printer = SpanPrinter::new()
        .designator(Designator::Verbose)
        .spacing(Spacing::BetweenUnitsAndDesignators)
        .comma_after_designator(true)
        .direction(Direction::Sign);
    let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
    printer.duration_to_string(&SignedDuration::from_secs(seconds))
}

/// Seconds from now to a later time.
fn from_now(later: u64, now: Timestamp) -> u64 {
    let now = u64::try_from(now.as_second()).unwrap_or_default();
    later.saturating_sub(now)
}

/// Seconds from an earlier time to now.
fn until_now(earlier: u64, now: Timestamp) -> u64 {
    let now = u64::try_from(now.as_second()).unwrap_or_default();
    now.saturating_sub(earlier)
}

#[cfg(test)]
mod tests;
