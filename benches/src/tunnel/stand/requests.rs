//! Requests and answers on a stand, one in flight or over new connections.

use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use convoy_lab::measure::Direction;
use convoy_lab::traffic::{Exchange, RoundTripReport};

use super::{Found, MARGIN, Stand};
use crate::tunnel::contender::Kind;
use crate::tunnel::scenes::Figure;

const REQUESTS: Duration = Duration::from_secs(1);

impl Stand {
    pub(super) fn connections(&mut self, at_once: u32) -> Result<Found> {
        let report = self.exchange(Exchange::TcpConnect { at_once })?;
        Ok(Found::of([(Figure::Main, rate(&report))]))
    }

    pub(super) fn requests(&mut self, beside_tcp: bool) -> Result<Found> {
        use Figure::{P50, P99, P999, Rate, UdpP50, UdpP99, UdpP999};
        // Before the load, which would delay it.
        self.ends().answer_round_trips()?;
        let mut load = None;
        if beside_tcp {
            load = Some(self.begin(Direction::Up, REQUESTS * 2 + 2 * MARGIN)?);
            thread::sleep(MARGIN);
        }
        let tcp = self.exchange(Exchange::Tcp);
        let has_udp = self.contender.kind != Kind::Socks;
        let udp = has_udp.then(|| self.exchange(Exchange::Udp));
        if let Some(load) = load {
            self.ends().finish_tcp(load)?;
        }
        let tcp = tcp?;
        let mut found = Found::of([(Rate, Some(rate(&tcp)))]);
        found.add([(P50, tcp.p50_us), (P99, tcp.p99_us), (P999, tcp.p999_us)]);
        match udp {
            Some(Ok(udp)) => {
                found.add([
                    (UdpP50, udp.p50_us),
                    (UdpP99, udp.p99_us),
                    (UdpP999, udp.p999_us),
                ]);
            }
            // Some programs forward no UDP, which must not cost them what they answer over TCP.
            Some(Err(error)) => found.failure = Some(format!("over UDP: {error:#}")),
            None => {}
        }
        Ok(found)
    }

    fn exchange(&mut self, exchange: Exchange) -> Result<RoundTripReport> {
        let via = self.via();
        let report = self.ends().round_trips(via, exchange, REQUESTS)?;
        ensure!(report.answered > 0, "no request was answered");
        Ok(report)
    }
}

/// Answers per second.
fn rate(report: &RoundTripReport) -> f64 {
    report.answered as f64 / report.seconds
}
