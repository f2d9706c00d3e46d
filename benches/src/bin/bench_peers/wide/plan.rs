//! Which test gives which rows, and who takes it.

use std::time::Duration;

use clap::ValueEnum;

use super::rows::{Beside, Figure, Over, Percentile, Row, Stream};
use crate::contestants::{Contestant, Protocol};

/// What is run for one or more rows, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Test {
    /// Requests of 32 bytes with answers, one in flight, over TCP and UDP
    Requests,
    /// The same while one TCP stream runs
    RequestsLoaded,
    /// A new TCP connection for each request
    Connections,
    /// TCP from left to right, one stream: Convoy and other VPNs
    TcpUp,
    /// TCP from right to left, one stream: Convoy and other VPNs
    TcpDown,
    /// TCP from left to right, eight streams
    #[value(name = "tcp-8-up")]
    Tcp8Up,
    /// TCP from right to left, eight streams
    #[value(name = "tcp-8-down")]
    Tcp8Down,
    /// TCP from left to right, one stream, while the veth loses 1 % each way
    TcpLoss,
    /// What arrives of 64-byte UDP packets, by the rate at which they are sent
    #[value(name = "udp-64")]
    Udp64,
    /// The same of 512 bytes
    #[value(name = "udp-512")]
    Udp512,
    /// The same of 1,200 bytes
    #[value(name = "udp-1200")]
    Udp1200,
}

/// How a test is done.
pub(super) enum Method {
    Requests(Beside),
    Connections,
    Tcp(Stream),
    Udp(usize),
}

/// How long requests are sent.
pub(super) const REQUESTS: Duration = Duration::from_secs(1);

impl Test {
    pub(crate) const ALL: [Self; 11] = [
        Self::Requests,
        Self::RequestsLoaded,
        Self::Connections,
        Self::TcpUp,
        Self::TcpDown,
        Self::Tcp8Up,
        Self::Tcp8Down,
        Self::TcpLoss,
        Self::Udp64,
        Self::Udp512,
        Self::Udp1200,
    ];

    /// Those of the table of WireGuard programs.
    pub(super) fn is_for_peers(self) -> bool {
        !matches!(self, Self::TcpUp | Self::TcpDown)
    }

    /// Those of the table of other VPNs.
    pub(super) fn is_for_others(self) -> bool {
        matches!(
            self,
            Self::Requests | Self::RequestsLoaded | Self::TcpUp | Self::TcpDown | Self::Udp1200
        )
    }

    /// Whether `contestant` takes it; nobody is the veth without a tunnel.
    pub(super) fn is_for(self, contestant: Option<&Contestant>) -> bool {
        match contestant {
            Some(one) if one.protocol != Protocol::WireGuard => self.is_for_others(),
            Some(one) if !one.is_convoy() => self.is_for_peers(),
            Some(_) | None => true,
        }
    }

    pub(super) fn method(self) -> Method {
        match self {
            Self::Requests => Method::Requests(Beside::Nothing),
            Self::RequestsLoaded => Method::Requests(Beside::Tcp),
            Self::Connections => Method::Connections,
            Self::TcpUp => Method::Tcp(Stream::Up),
            Self::TcpDown => Method::Tcp(Stream::Down),
            Self::Tcp8Up => Method::Tcp(Stream::EightUp),
            Self::Tcp8Down => Method::Tcp(Stream::EightDown),
            Self::TcpLoss => Method::Tcp(Stream::Lossy),
            Self::Udp64 => Method::Udp(64),
            Self::Udp512 => Method::Udp(512),
            Self::Udp1200 => Method::Udp(1_200),
        }
    }

    /// In the order of the table.
    pub(super) fn rows(self) -> Vec<Row> {
        match self.method() {
            Method::Requests(beside) => {
                let percentiles =
                    |over| Percentile::ALL.map(|one| Row::RoundTrip(over, beside, one));
                Over::ALL.into_iter().flat_map(percentiles).collect()
            }
            Method::Connections => vec![Row::Connections],
            Method::Tcp(stream) => Figure::ALL.map(|figure| Row::Tcp(stream, figure)).into(),
            Method::Udp(payload) => vec![Row::MostUdp(payload)],
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;
    use crate::contestants;

    #[test]
    fn every_row_comes_from_one_test_and_has_a_name_of_its_own() {
        let rows: Vec<_> = Test::ALL.into_iter().flat_map(Test::rows).collect();
        let names: BTreeSet<_> = rows.iter().map(|row| row.name()).collect();
        let titles: BTreeSet<_> = rows.iter().map(|row| row.title()).collect();
        assert_eq!(rows.len(), 2 * 6 + 1 + 5 * 4 + 3);
        assert_eq!((names.len(), titles.len()), (rows.len(), rows.len()));
        assert!(names.contains("request-udp-loaded-p99.9"), "{names:?}");
        assert!(names.contains("tcp-8-down-syscalls"), "{names:?}");
    }

    #[test]
    fn who_takes_a_test_depends_on_what_it_speaks() {
        let all = contestants::wide(Path::new("convoy"), Path::new("bin"));
        let taken = |name: &str| {
            let one = all.iter().find(|one| one.name == name).unwrap();
            Test::ALL.map(|test| test.is_for(Some(one)))
        };
        let [convoy, gotatun, openvpn] = ["convoy", "gotatun", "openvpn"].map(taken);
        assert_eq!(convoy, [true; 11]);
        assert_eq!(gotatun.iter().filter(|taken| **taken).count(), 9);
        assert_eq!(openvpn.iter().filter(|taken| **taken).count(), 5);
        assert!(Test::ALL.iter().all(|test| test.is_for(None)));
    }
}
