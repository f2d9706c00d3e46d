//! The traffic of the last seconds, from samples that ticks take.
//!
//! Nothing runs for it while the tunnel is idle, and a tick costs one comparison.

use std::time::Duration;

use convoy_proto::{config::RecentTraffic, counters::Counters};

/// The least time between two samples.
const PERIOD: Duration = Duration::from_secs(5);

/// The last two samples, older first.
#[derive(Debug, Default)]
pub(crate) struct Recent([Sample; 2]);

/// The counters at a time since boot. Samples that have not been taken yet count as taken at boot.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    at: Duration,
    outbound_packets: u64,
    outbound_bytes: u64,
    inbound_packets: u64,
    inbound_bytes: u64,
}

impl Recent {
    /// Takes a sample if one is due. Call it at the start of each tick.
    pub(crate) fn tick(&mut self, now: Duration, counters: &Counters) {
        let newer = self.0[1];
        if now.saturating_sub(newer.at) >= PERIOD {
            self.0 = [newer, Sample::new(now, counters)];
        }
    }

    /// The traffic of the last five to ten seconds, or a little more if there were few ticks.
    pub(crate) fn traffic(&self, now: Duration, counters: &Counters) -> RecentTraffic {
        let [older, newer] = self.0;
        // If there were ticks all the time, the next one after a period took the sample.
        let was_idle = newer.at.saturating_sub(older.at) > 2 * PERIOD;
        let from = match was_idle {
            true => Sample {
                at: newer.at.saturating_sub(PERIOD),
                ..newer
            },
            false => older,
        };
        let to = Sample::new(now, counters);
        RecentTraffic {
            time: to.at.saturating_sub(from.at),
            outbound_packets: to.outbound_packets - from.outbound_packets,
            outbound_bytes: to.outbound_bytes - from.outbound_bytes,
            inbound_packets: to.inbound_packets - from.inbound_packets,
            inbound_bytes: to.inbound_bytes - from.inbound_bytes,
        }
    }
}

impl Sample {
    fn new(at: Duration, counters: &Counters) -> Self {
        Self {
            at,
            outbound_packets: counters.outbound_packets,
            outbound_bytes: counters.outbound_bytes,
            inbound_packets: counters.inbound_packets,
            inbound_bytes: counters.inbound_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Each tick moves a packet of 100 bytes either way, after the sample.
    struct Scene {
        recent: Recent,
        counters: Counters,
        now: Duration,
    }

    impl Scene {
        fn new() -> Self {
            Self {
                recent: Recent::default(),
                counters: Counters::default(),
                now: 1000 * SECOND,
            }
        }

        fn tick_every(&mut self, pause: Duration, times: usize) {
            for _ in 0..times {
                self.now += pause;
                self.recent.tick(self.now, &self.counters);
                self.counters.outbound_packets += 1;
                self.counters.outbound_bytes += 100;
                self.counters.inbound_packets += 1;
                self.counters.inbound_bytes += 100;
            }
        }

        /// Seconds and outbound bytes.
        fn shown(&mut self) -> (u64, u64) {
            self.recent.tick(self.now, &self.counters);
            let traffic = self.recent.traffic(self.now, &self.counters);
            assert_eq!(traffic.outbound_bytes, traffic.inbound_bytes);
            assert_eq!(traffic.outbound_bytes, traffic.outbound_packets * 100);
            (traffic.time.as_secs(), traffic.outbound_bytes)
        }
    }

    #[test]
    fn the_traffic_is_that_of_five_to_ten_seconds() {
        let mut scene = Scene::new();
        scene.tick_every(SECOND / 10, 1000);
        for _ in 0..20 {
            scene.tick_every(SECOND, 1);
            let (seconds, bytes) = scene.shown();
            assert!((5..=10).contains(&seconds), "{seconds}");
            assert!(bytes >= seconds * 100, "{bytes} bytes in {seconds} s");
        }
        let (seconds, bytes) = scene.shown();
        assert!(bytes <= (seconds + 1) * 100, "{bytes} bytes in {seconds} s");
    }

    #[test]
    fn what_was_before_an_idle_time_is_over() {
        let mut scene = Scene::new();
        scene.tick_every(SECOND / 10, 100);
        scene.now += 60 * SECOND;
        assert_eq!(scene.shown(), (5, 0));
        scene.tick_every(SECOND, 3);
        assert_eq!(scene.shown(), (8, 300));
    }

    #[test]
    fn a_tunnel_that_has_just_been_started_has_little() {
        let mut scene = Scene::new();
        assert_eq!(scene.shown(), (5, 0));
        scene.tick_every(SECOND, 2);
        assert_eq!(scene.shown(), (7, 200));
    }
}
