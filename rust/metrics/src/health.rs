//! Whether packets can pass: `/healthz`, for keepalived, BIRD or Kubernetes.

use convoy_report::{Peer, Report};
use jiff::Timestamp;
use thiserror::Error;

use super::Observation;

/// How long after a handshake its session is used, in seconds (Reject-After-Time of the WireGuard paper).
const SESSION_TIME: i64 = 180;

/// Why packets cannot pass.
#[derive(Debug, Error, PartialEq, Eq)]
pub(super) enum Ill {
    /// It has died, hangs or is starting.
    #[error("the tunnel does not answer: {0}")]
    Silent(String),
    /// The link is down.
    #[error("the link {0} is down")]
    Down(String),
    /// See `convoy pause`.
    #[error("paused: packets leave outside the tunnel")]
    Paused,
    /// Nothing on this host follows the interface any more.
    #[error("the interface is in another network namespace")]
    Left,
    /// Packets were sent, and nobody answers.
    #[error("no peer has a session: there was no handshake yet")]
    NoHandshake,
    /// An idle peer without `PersistentKeepalive` is no better, as far as anybody can know.
    #[error("no peer has a session: the latest handshake was {0} s ago")]
    OldHandshake(i64),
    /// The age of the latest handshake is unknown.
    #[error("no peer has a session: the clock was set back after the latest handshake")]
    ClockSetBack,
}

/// Checks what is known at `now`.
pub(super) fn check(observation: &Observation, now: Timestamp) -> Result<(), Ill> {
    let report = match &observation.report {
        Ok(report) => report,
        Err(reason) => return Err(Ill::Silent(reason.clone())),
    };
    if observation
        .client
        .as_ref()
        .is_some_and(|client| client.has_left)
    {
        return Err(Ill::Left);
    }
    if report
        .counters
        .state
        .get("link")
        .is_none_or(|link| link != "up")
    {
        return Err(Ill::Down(observation.interface.clone()));
    }
    match &observation.client {
        // A server's peers come and go.
        None => Ok(()),
        Some(client) if client.is_paused => Err(Ill::Paused),
        Some(_) => check_sessions(report, now),
    }
}

fn check_sessions(report: &Report, now: Timestamp) -> Result<(), Ill> {
    let was_anything_sent = report.peers.iter().any(|peer| peer.tx_bytes > 0);
    let is_well = !was_anything_sent || report.peers.iter().any(|peer| is_live(peer, now));
    let latest = report
        .peers
        .iter()
        .filter_map(|peer| peer.latest_handshake)
        .max();
    match latest.map(|latest| age(latest, now)) {
        _ if is_well => Ok(()),
        Some(age) if age < 0 => Err(Ill::ClockSetBack),
        Some(age) => Err(Ill::OldHandshake(age)),
        None => Err(Ill::NoHandshake),
    }
}

/// Returns whether a peer has a session at `now`, or had one until just now. The tunnel knows, however the clock was
/// set; an earlier version tells the time of the handshake alone.
pub(super) fn is_live(peer: &Peer, now: Timestamp) -> bool {
    let is_recent = |latest| age(latest, now).unsigned_abs() < SESSION_TIME.unsigned_abs();
    peer.connected_since.is_some() || peer.latest_handshake.is_some_and(is_recent)
}

/// In seconds; below 0 if the clock was set back.
fn age(time: u64, now: Timestamp) -> i64 {
    now.as_second().saturating_sub_unsigned(time)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Client;

    const NOW: u64 = 1_800_000_000;

    #[test]
    fn a_daemon_is_well_while_its_link_is_up() {
        let mut daemon = observation(&[(5, None)]);
        daemon.client = None;
        assert_eq!(check_now(&daemon), Ok(()));
        if let Ok(report) = &mut daemon.report {
            report
                .counters
                .state
                .insert("link".to_owned(), "down".to_owned());
        }
        assert_eq!(check_now(&daemon), Err(Ill::Down("wg0".to_owned())));
        daemon.report = Err("it has died".to_owned());
        assert_eq!(
            check_now(&daemon),
            Err(Ill::Silent("it has died".to_owned()))
        );
    }

    #[test]
    fn a_client_needs_a_live_session_once_it_has_sent_anything() {
        for (peers, expected) in [
            (&[][..], Ok(())),
            (&[(0, None)], Ok(())),
            (&[(148, None)], Err(Ill::NoHandshake)),
            (&[(148, Some(179))], Ok(())),
            (&[(148, Some(180))], Err(Ill::OldHandshake(180))),
            (&[(148, None), (0, Some(3)), (7, Some(4_000))], Ok(())),
            // The clock was set back.
            (&[(148, Some(-5))], Ok(())),
        ] {
            assert_eq!(check_now(&observation(peers)), expected, "{peers:?}");
        }
    }

    #[test]
    fn a_clock_that_was_set_neither_hides_a_session_nor_feigns_one() {
        const DAY: i64 = 86_400;
        let mut client = observation(&[(148, Some(-DAY))]);
        assert_eq!(check_now(&client), Err(Ill::ClockSetBack));
        for age in [-DAY, DAY] {
            client = observation(&[(148, Some(age))]);
            if let Ok(report) = &mut client.report {
                report.peers[0].connected_since = Some(NOW.saturating_add_signed(-age));
            }
            assert_eq!(check_now(&client), Ok(()), "{age}");
        }
    }

    #[test]
    fn a_client_is_ill_while_packets_leave_beside_it() {
        let mut client = observation(&[(148, Some(1))]);
        client.client = Some(Client {
            is_paused: true,
            ..Client::default()
        });
        assert_eq!(check_now(&client), Err(Ill::Paused));
        client.client = Some(Client {
            has_left: true,
            ..Client::default()
        });
        assert_eq!(check_now(&client), Err(Ill::Left));
    }

    fn check_now(observation: &Observation) -> Result<(), Ill> {
        check(observation, Timestamp::from_second(NOW as i64).unwrap())
    }

    /// A client's. For each peer: the bytes sent to it, and the age of its latest handshake in seconds.
    fn observation(peers: &[(u64, Option<i64>)]) -> Observation {
        let mut report = Report::default();
        report
            .counters
            .state
            .insert("link".to_owned(), "up".to_owned());
        report.peers = peers
            .iter()
            .map(|(tx_bytes, age)| Peer {
                tx_bytes: *tx_bytes,
                latest_handshake: age.map(|age| NOW.saturating_add_signed(-age)),
                ..Peer::default()
            })
            .collect();
        Observation {
            interface: "wg0".to_owned(),
            report: Ok(report),
            client: Some(Client::default()),
        }
    }
}
