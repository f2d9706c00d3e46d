//! The result file, its lines as CSV, and what is printed of it.

use std::fmt::Write as _;

use convoy_benches::origin::Origin;
use convoy_lab::measure::Sample;
use serde::{Deserialize, Serialize};

use crate::{
    point::{Point, Ports, SinkKind},
    sender::Sent,
};

/// A whole run.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) origin: Origin,
    /// How long a point was measured in each round.
    pub(crate) window_ms: u64,
    pub(crate) series: Vec<Series>,
}

/// One point, measured once a round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Series {
    #[serde(flatten)]
    pub(crate) point: Point,
    pub(crate) rates: Vec<Rate>,
    /// What the kernel said where a round failed.
    pub(crate) failures: Vec<String>,
}

/// Datagrams a second of all senders together.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Rate {
    /// That the kernel has taken.
    pub(crate) sent_pps: f64,
    /// That have arrived, where they are counted.
    pub(crate) received_pps: Option<f64>,
}

impl Series {
    /// A point that is not measured yet.
    pub(crate) fn of(point: Point) -> Self {
        Self {
            point,
            rates: Vec::new(),
            failures: Vec::new(),
        }
    }

    /// Thousands of datagrams sent a second: the median of the rounds.
    pub(crate) fn kpps(&self) -> Option<f64> {
        let sent = self.rates.iter().map(|rate| rate.sent_pps / 1e3);
        Some(Sample::of(sent.collect())?.median)
    }

    /// The same in payload: Gbit/s.
    pub(crate) fn gbps(&self) -> Option<f64> {
        Some(self.kpps()? * self.point.size as f64 * 8.0 / 1e6)
    }

    fn received_kpps(&self) -> Option<f64> {
        let received = self.rates.iter().filter_map(|rate| rate.received_pps);
        Some(Sample::of(received.map(|pps| pps / 1e3).collect())?.median)
    }
}

impl Rate {
    /// `received` datagrams have come within the time of the senders, or shortly after.
    pub(crate) fn of(sent: &[Sent], received: Option<u64>) -> Self {
        let rate = |sent: &Sent| sent.datagrams as f64 / sent.time.as_secs_f64().max(1e-9);
        let longest = sent.iter().map(|sent| sent.time.as_secs_f64());
        let longest = longest.fold(1e-9, f64::max);
        Self {
            sent_pps: sent.iter().map(rate).sum(),
            received_pps: received.map(|datagrams| datagrams as f64 / longest),
        }
    }
}

impl Record {
    /// A line for each point.
    pub(crate) fn csv(&self) -> String {
        let mut text =
            "path,method,sink,ports,threads,size,sent_kpps,received_kpps,gbps\n".to_owned();
        for series in &self.series {
            let Point {
                path,
                method,
                sink,
                ports,
                threads,
                size,
            } = series.point;
            let number = |value: Option<f64>| value.map_or(String::new(), |v| format!("{v:.3}"));
            // INVARIANT: writing to a String does not fail.
            let _ = writeln!(
                text,
                "{path},{method},{sink},{ports},{threads},{size},{},{},{}",
                number(series.kpps()),
                number(series.received_kpps()),
                number(series.gbps())
            );
        }
        text
    }

    /// A table of what one thread sends, and what failed.
    pub(crate) fn summary(&self) -> String {
        let mut text = format!(
            "  {:<9} {:<9} {:<14} {:>6} {:>9} {:>9} {:>9}\n",
            "path", "method", "sink", "bytes", "kpps sent", "received", "Gbit/s"
        );
        let by_one = |series: &&Series| {
            series.point.threads == 1
                && (series.point.ports, series.point.sink) != (Ports::Shared, SinkKind::Closed)
        };
        let figure = |value: Option<f64>| value.map_or("–".to_owned(), |v| format!("{v:.1}"));
        for series in self.series.iter().filter(by_one) {
            let Point {
                path,
                method,
                sink,
                size,
                ..
            } = series.point;
            let (sent, received) = (figure(series.kpps()), figure(series.received_kpps()));
            let gbps = series.gbps().map_or("–".to_owned(), |v| format!("{v:.2}"));
            let _ = writeln!(
                text,
                "  {path:<9} {method:<9} {sink:<14} {size:>6} {sent:>9} {received:>9} {gbps:>9}"
            );
        }
        for series in &self.series {
            for failure in &series.failures {
                let _ = writeln!(text, "failed: {:?}: {failure}", series.point);
            }
        }
        text
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{plan::Plan, point::PathKind};

    /// Every point of a quick run, with the rate that its size has.
    pub(crate) fn record() -> Record {
        let points = Plan::quick().points(&PathKind::ALL);
        let series = points.into_iter().map(|point| Series {
            rates: vec![Rate {
                sent_pps: 1e6 / point.size as f64,
                received_pps: (point.sink == SinkKind::Counting).then_some(5e5),
            }],
            ..Series::of(point)
        });
        Record {
            origin: Origin::of_this_run(Vec::new()),
            window_ms: 100,
            series: series.collect(),
        }
    }

    #[test]
    fn what_is_written_can_be_read() {
        let written = serde_json::to_string(&record()).unwrap();
        let read: Record = serde_json::from_str(&written).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), written);
    }

    #[test]
    fn rates_of_threads_are_added_and_medians_taken_over_the_rounds() {
        let sent = |datagrams, millis| Sent {
            datagrams,
            time: Duration::from_millis(millis),
        };
        let rate = Rate::of(&[sent(100, 100), sent(300, 200)], Some(400));
        assert_eq!((rate.sent_pps, rate.received_pps), (2_500.0, Some(2_000.0)));
        let mut series = record().series[0].clone();
        series.point.size = 1_000;
        series.rates = [1e6, 3e6, 2e6]
            .map(|sent_pps| Rate { sent_pps, ..rate })
            .into();
        assert_eq!((series.kpps(), series.gbps()), (Some(2_000.0), Some(16.0)));
    }

    #[test]
    fn the_csv_has_a_line_for_each_point_and_nothing_where_nothing_was_counted() {
        let record = record();
        let csv = record.csv();
        assert_eq!(csv.lines().count(), record.series.len() + 1);
        let columns = csv.lines().map(|line| line.split(',').count());
        assert!(columns.into_iter().all(|count| count == 9));
        assert!(csv.contains("loopback,send_to,counting sink,a port each,1,2,500.000,500.000,"));
        assert!(csv.contains("loopback,send_to,closed port,a port each,1,2,500.000,,"));
    }
}
