//! All tests of one contestant in one repetition.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use convoy_lab::measure::{Direction, TcpLoad};
use convoy_lab::traffic::{Exchange, RoundTripReport};
use serde::Serialize;

use super::curve::{self, Curve};
use super::plan::{Method, REQUESTS, Test};
use super::rows::{Beside, Figure, Over, Percentile, Row, Stream};
use super::tcp::{self, Run};
use super::way::Way;
use crate::outcome;

/// Before the first request beside a TCP stream.
const WARMUP: Duration = Duration::from_millis(300);
/// Of that stream beyond the requests: what asking for them takes.
const MARGIN: Duration = Duration::from_millis(300);

/// What a turn measured.
pub(super) type Outcome = outcome::Outcome<Row, Details>;

/// Beside the figures.
#[derive(Debug, Default, Serialize)]
pub(super) struct Details {
    /// By the row of their rates.
    pub(super) tcp: BTreeMap<Row, Run>,
    /// By the row of their medians; of connections by theirs.
    pub(super) requests: BTreeMap<Row, RoundTripReport>,
    pub(super) curves: Vec<Curve>,
}

/// Tests on a way.
pub(super) struct Turn<'a> {
    way: Way<'a>,
    /// Of a TCP run.
    window: Duration,
    outcome: Outcome,
}

impl<'a> Turn<'a> {
    pub(super) fn new(way: Way<'a>, window: Duration) -> Self {
        Self {
            way,
            window,
            outcome: Outcome::default(),
        }
    }

    /// Runs `tests` one after the other; one that fails leaves its rows empty, and the next begins
    /// with new daemons.
    pub(super) fn run(mut self, tests: impl IntoIterator<Item = Test>) -> Outcome {
        let mut is_up = self.way.start().map_err(|error| self.note(&error));
        for test in tests {
            if is_up.is_err() {
                break;
            }
            let done = self.perform(test).and_then(|()| self.way.check());
            if let Err(error) = done.with_context(|| format!("{test:?}")) {
                self.note(&error);
                is_up = self.way.start().map_err(|error| self.note(&error));
            }
        }
        self.outcome
    }

    fn note(&mut self, error: &anyhow::Error) {
        self.outcome.failures.push(format!("{error:#}"));
    }

    fn perform(&mut self, test: Test) -> anyhow::Result<()> {
        match test.method() {
            Method::Requests(Beside::Nothing) => self.requests(Beside::Nothing),
            Method::Requests(Beside::Tcp) => self.requests_beside_tcp(),
            Method::Connections => self.connections(),
            Method::Tcp(stream) => self.tcp(stream),
            Method::Udp(payload) => self.curve(payload),
        }
    }

    fn requests_beside_tcp(&mut self) -> anyhow::Result<()> {
        let load = TcpLoad {
            direction: Direction::Up,
            streams: 1,
            warmup: WARMUP,
            window: REQUESTS * Over::ALL.len() as u32 + MARGIN,
        };
        self.way.bed.ends.answer_round_trips()?;
        let via = self.way.via();
        self.way.bed.ends.begin_tcp(via, load)?;
        let outcome = self.requests(Beside::Tcp);
        self.way.bed.ends.finish_tcp(load)?;
        outcome
    }

    fn requests(&mut self, beside: Beside) -> anyhow::Result<()> {
        for over in Over::ALL {
            let exchange = match over {
                Over::Tcp => Exchange::Tcp,
                Over::Udp => Exchange::Udp,
            };
            let report = self.round_trips(exchange)?;
            for percentile in Percentile::ALL {
                let row = Row::RoundTrip(over, beside, percentile);
                let found = match percentile {
                    Percentile::P50 => report.p50_us,
                    Percentile::P99 => report.p99_us,
                    Percentile::P999 => report.p999_us,
                };
                self.figure(row, found);
            }
            let median = Row::RoundTrip(over, beside, Percentile::P50);
            self.outcome.details.requests.insert(median, report);
        }
        Ok(())
    }

    fn connections(&mut self) -> anyhow::Result<()> {
        let report = self.round_trips(Exchange::TcpConnect)?;
        let rate = report.answered as f64 / report.seconds;
        self.figure(Row::Connections, Some(rate));
        self.outcome
            .details
            .requests
            .insert(Row::Connections, report);
        Ok(())
    }

    fn round_trips(&mut self, exchange: Exchange) -> anyhow::Result<RoundTripReport> {
        let via = self.way.via();
        let ends = &mut self.way.bed.ends;
        ends.answer_round_trips()?;
        let report = ends.round_trips(via, exchange, REQUESTS)?;
        ensure!(report.answered > 0, "no request was answered");
        Ok(report)
    }

    fn tcp(&mut self, stream: Stream) -> anyhow::Result<()> {
        let mut uncounted = None;
        let run = tcp::run(&mut self.way, stream, self.window, |error| {
            uncounted = Some(error);
        })?;
        for figure in Figure::ALL {
            self.figure(Row::Tcp(stream, figure), run.figure(figure));
        }
        let rate = Row::Tcp(stream, Figure::Rate);
        self.outcome.details.tcp.insert(rate, run);
        if let Some(error) = uncounted {
            self.note(&error.context(format!("{stream:?}, system calls")));
        }
        Ok(())
    }

    fn curve(&mut self, payload: usize) -> anyhow::Result<()> {
        let via = self.way.via();
        let curve = curve::measure(&mut self.way.bed.ends, via, payload)?;
        let row = Row::MostUdp(payload);
        if let Some(most) = curve.most().copied() {
            self.figure(row, Some(most.arrived_kpps));
            if !most.held_rate {
                self.outcome.generator_limited.push(row);
            }
        }
        self.outcome.details.curves.push(curve);
        Ok(())
    }

    fn figure(&mut self, row: Row, value: Option<f64>) {
        if let Some(value) = value {
            self.outcome.figures.insert(row, value);
        }
    }
}
