//! Which points are measured, for how long: bounded in time on any machine.

use std::time::Duration;

use crate::point::{BATCH, Method, PathKind, Point, Ports, SinkKind};

/// From the smallest that a study of packet rates asks for to the largest that there is.
const SIZES: [usize; 14] = [
    2, 16, 64, 128, 256, 512, 1024, 1472, 2048, 4096, 9000, 16_384, 32_768, 65_507,
];
const QUICK_SIZES: [usize; 4] = [2, 256, 1472, 65_507];
/// The size at which threads are varied: the cost of a call, not of its bytes.
const THREADS_SIZE: usize = 64;
/// More senders than that say nothing new, and would take too long.
const MOST_THREADS: usize = 32;
/// Opening sockets, starting threads and ending them, for one point.
const BETWEEN: Duration = Duration::from_millis(30);

/// How much is measured.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    sizes: Vec<usize>,
    threads: Vec<usize>,
    /// Every point is measured once a round.
    pub(crate) rounds: u32,
    /// Of one point in one round.
    pub(crate) window: Duration,
}

impl Plan {
    /// Everything, in at most three minutes.
    pub(crate) fn full(cpus: usize) -> Self {
        Self {
            sizes: SIZES.to_vec(),
            threads: threads(cpus),
            rounds: 3,
            window: Duration::from_millis(180),
        }
    }

    /// A few sizes, once.
    pub(crate) fn quick() -> Self {
        Self {
            sizes: QUICK_SIZES.to_vec(),
            threads: vec![1, 2],
            rounds: 1,
            window: Duration::from_millis(100),
        }
    }

    /// The points on `paths`: every size by one thread, and every number of threads at one size.
    pub(crate) fn points(&self, paths: &[PathKind]) -> Vec<Point> {
        let mut points = Vec::new();
        for &path in paths {
            for method in Method::ALL {
                for sink in SinkKind::ALL {
                    points.extend(self.sizes.iter().map(|&size| Point {
                        path,
                        method,
                        sink,
                        ports: Ports::Own,
                        threads: 1,
                        size,
                    }));
                }
                for ports in Ports::ALL {
                    points.extend(self.threads.iter().map(|&threads| Point {
                        path,
                        method,
                        sink: SinkKind::Closed,
                        ports,
                        threads,
                        size: THREADS_SIZE,
                    }));
                }
            }
        }
        points.retain(|point| point.datagrams_a_call().is_some());
        let mut kept: Vec<Point> = Vec::new();
        for point in points {
            if !kept.contains(&point) {
                kept.push(point);
            }
        }
        kept
    }

    /// About how long `points` take.
    pub(crate) fn seconds(&self, points: usize) -> f64 {
        (self.window + BETWEEN).as_secs_f64() * points as f64 * f64::from(self.rounds)
    }
}

/// One, two and so on to twice the processors; on large machines by powers of two.
fn threads(cpus: usize) -> Vec<usize> {
    let most = (2 * cpus).min(MOST_THREADS);
    if most <= 4 {
        return (1..=most).collect();
    }
    (0..=most.ilog2()).map(|power| 1 << power).collect()
}

const _: () = assert!(THREADS_SIZE * BATCH <= 65_507, "a full batch at this size");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_run_takes_three_minutes_at_most_on_any_machine() {
        for cpus in [1, 2, 4, 16, 192] {
            let plan = Plan::full(cpus);
            let points = plan.points(&PathKind::ALL);
            let seconds = plan.seconds(points.len());
            assert!(seconds <= 180.0, "{} points: {seconds} s", points.len());
        }
    }

    #[test]
    fn no_point_is_measured_twice_in_a_round() {
        let points = Plan::full(2).points(&PathKind::ALL);
        for (n, point) in points.iter().enumerate() {
            assert!(!points[n + 1..].contains(point), "{point:?}");
        }
    }

    #[test]
    fn threads_reach_twice_the_processors() {
        assert_eq!(threads(1), [1, 2]);
        assert_eq!(threads(2), [1, 2, 3, 4]);
        assert_eq!(threads(8), [1, 2, 4, 8, 16]);
        assert_eq!(threads(192).last(), Some(&32));
    }
}
