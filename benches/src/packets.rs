//! `make packet-rate`: how many datagrams a second one machine can send.
//!
//! ```text
//!   loopback                          veth
//!   ┌──── one ────┐                   ┌── left ──┐          ┌── right ──┐
//!   │ senders     │                   │ senders ─┼─ veth0 ──┼─ sink     │
//!   │   └─ lo ─ sink                  └──────────┘          └───────────┘
//!   └─────────────┘
//! ```
//!
//! Each sender is a thread with a socket of its own that sends as fast as it can, one datagram a call
//! (`send_to`), 64 (`sendmmsg`), or as many as one call may carry cut by the kernel (`UDP_SEGMENT`).

mod place;
pub(crate) mod record;
mod send;

use std::path::PathBuf;
use std::time::Duration;

use convoy_lab::measure::Host;

use crate::origin::Origin;
use crate::{plot, results};
use place::Places;
use record::{METHODS, PORTS, Path, Point, Ports, Record, SINKS, Series, Sink};

/// The result file.
pub(crate) const FILE: &str = "packet_rate.json";

/// Sends datagrams as fast as this machine can, and writes rates, bandwidths and plots
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Four sizes, a tenth of a second each: shows that everything works
    #[arg(long)]
    quick: bool,
    /// Where the JSON and CSV files and the plots are put [default: benches/results; nowhere with --quick]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

const SIZES: [usize; 14] = [
    2, 16, 64, 128, 256, 512, 1024, 1472, 2048, 4096, 9000, 16_384, 32_768, 65_507,
];
const QUICK_SIZES: [usize; 4] = [2, 256, 1472, 65_507];
/// The size at which the number of threads varies: the cost of a call, not of its bytes.
const THREADS_SIZE: usize = 64;
/// More senders tell nothing new.
const MOST_THREADS: usize = 32;

/// Measures, prints and writes.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let (sizes, rounds, window, threads) = match args.quick {
        true => (&QUICK_SIZES[..], 1, Duration::from_millis(100), vec![1, 2]),
        false => (
            &SIZES[..],
            3,
            Duration::from_millis(180),
            threads(Host::of_this_machine().cpus),
        ),
    };
    let origin = Origin::of_this_run(Vec::new());
    let places = Places::make()?;
    let points = points(places.paths(), sizes, &threads);
    let seconds = points.len() as f64 * f64::from(rounds) * (window.as_secs_f64() + 0.03);
    eprintln!("{} points, about {seconds:.0} s", points.len());
    let mut series: Vec<Series> = points.into_iter().map(Series::of).collect();
    for round in 1..=rounds {
        for series in &mut series {
            match send::measure(&series.point, &places, window) {
                Ok(rate) => series.rates.push(rate),
                Err(error) => series.failures.push(format!("{error:#}")),
            }
        }
        eprintln!("round {round} of {rounds}");
    }
    let window_ms = window.as_millis() as u64;
    let record = Record {
        origin,
        window_ms,
        series,
    };
    println!("{}", record.table());
    if let Some(file) = results::file(
        args.out.as_ref().map(|out| out.join(FILE)).as_deref(),
        FILE,
        !args.quick,
    ) {
        results::save(&record, &file)?;
        results::save_bytes(record.csv().as_bytes(), &file.with_extension("csv"))?;
        for (name, figure) in record.figures() {
            results::save_bytes(plot::svg(&figure)?.as_bytes(), &file.with_file_name(name))?;
        }
    }
    Ok(())
}

/// Every size by one thread, and every number of threads at one size; each point once.
fn points(paths: &[Path], sizes: &[usize], threads: &[usize]) -> Vec<Point> {
    let mut points: Vec<Point> = Vec::new();
    for &path in paths {
        for method in METHODS {
            let point = |sink, ports, threads, size| Point {
                path,
                method,
                sink,
                ports,
                threads,
                size,
            };
            for sink in SINKS {
                points.extend(sizes.iter().map(|&size| point(sink, Ports::Own, 1, size)));
            }
            for ports in PORTS {
                let of_threads =
                    |&threads: &usize| point(Sink::Closed, ports, threads, THREADS_SIZE);
                points.extend(threads.iter().map(of_threads));
            }
        }
    }
    let mut kept = Vec::new();
    for point in points {
        if point.datagrams_a_call().is_some() && !kept.contains(&point) {
            kept.push(point);
        }
    }
    kept
}

/// One, two and so on to twice the processors; on large machines by powers of two.
fn threads(cpus: usize) -> Vec<usize> {
    match (2 * cpus).min(MOST_THREADS) {
        most @ ..=4 => (1..=most).collect(),
        most => (0..=most.ilog2()).map(|power| 1 << power).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::record::{Method, PATHS};
    use super::*;

    #[test]
    fn a_full_run_takes_three_minutes_at_most_and_measures_no_point_twice() {
        for cpus in [1, 2, 4, 16, 192] {
            let points = points(&PATHS, &SIZES, &threads(cpus));
            assert!(
                points.len() as f64 * 3.0 * 0.21 <= 180.0,
                "{}",
                points.len()
            );
            for (n, point) in points.iter().enumerate() {
                assert!(!points[n + 1..].contains(point), "{point:?}");
            }
        }
        assert_eq!(
            (threads(2), threads(8)),
            (vec![1, 2, 3, 4], vec![1, 2, 4, 8, 16])
        );
        let train = |point: &&Point| point.method == Method::Gso && point.path == Path::Veth;
        assert!(
            points(&PATHS, &SIZES, &[1])
                .iter()
                .filter(train)
                .all(|point| point.size <= 1472)
        );
    }
}
