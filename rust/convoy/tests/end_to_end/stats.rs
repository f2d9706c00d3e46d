//! A daemon's counters.

use std::{fmt, ops::Deref};

use convoy_lab::{
    measure::{Counters, counters},
    wireguard::End,
};

/// The counters that `convoy stats` shows.
pub(crate) struct Stats(Counters);

/// Omits histograms and zeros.
impl fmt::Debug for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "outbound {:?}, inbound {:?}",
            self.outbound, self.inbound
        )?;
        for (reason, count) in self.drops.iter().filter(|(_, count)| **count > 0) {
            write!(f, ", {reason} {count}")?;
        }
        for (name, count) in self.events.iter().filter(|(_, count)| **count > 0) {
            write!(f, ", {name} {count}")?;
        }
        for (name, value) in self.state.iter().filter(|(_, value)| *value != "0") {
            write!(f, ", {name} {value}")?;
        }
        Ok(())
    }
}

impl Deref for Stats {
    type Target = Counters;

    fn deref(&self) -> &Counters {
        &self.0
    }
}

impl Stats {
    pub(crate) fn of(end: &End) -> Self {
        Self(counters(&end.daemon).unwrap().unwrap())
    }

    pub(crate) fn handshakes(&self) -> u64 {
        self.handshakes
    }

    pub(crate) fn outbound_packets(&self) -> u64 {
        self.outbound.packets
    }

    pub(crate) fn inbound_packets(&self) -> u64 {
        self.inbound.packets
    }

    pub(crate) fn dropped(&self, reason: &str) -> u64 {
        self.drops[reason]
    }

    /// Packets that were accepted and then lost on their way out.
    pub(crate) fn lost_outbound(&self) -> u64 {
        let reasons = ["send_failed", "too_big", "no_buffers", "queue_full"];
        let lost = reasons.map(|reason| self.dropped(&format!("outbound_{reason}")));
        lost.iter().sum()
    }

    pub(crate) fn state(&self, name: &str) -> &str {
        &self.state[name]
    }

    /// A numeric state.
    pub(crate) fn number(&self, name: &str) -> u64 {
        self.state(name).parse().unwrap()
    }

    pub(crate) fn event(&self, name: &str) -> u64 {
        self.events[name]
    }

    /// Sends, reads or writes that carried at least `least` packets.
    pub(crate) fn at_least(&self, least: usize, histogram: &str) -> u64 {
        self.histograms[histogram][least..].iter().sum()
    }
}
