//! State of the screen: what is known, and what of it is shown.

use std::{collections::VecDeque, time::Instant};

use convoy_report::{Counters, Status};

use crate::rates;

/// The most looks that are kept: those of a minute, and where it began.
const LOOKS: usize = 61;

/// The tunnels, and why the status of others cannot be read.
pub type Looked = (Vec<Status>, Vec<anyhow::Error>);

/// The latest looks, and what is chosen of them.
#[derive(Default)]
pub(super) struct Screen {
    /// Oldest first.
    looks: VecDeque<Look>,
    /// The interface that is shown; the first one if it is not there.
    chosen: Option<String>,
    /// The first peer that is shown.
    pub(super) top: usize,
    /// Why the status of some tunnels cannot be read.
    pub(super) problems: Vec<String>,
}

/// All tunnels at one time.
struct Look {
    interfaces: Vec<Status>,
    at: Instant,
}

impl Screen {
    pub(super) fn look(&mut self, (mut interfaces, problems): Looked, at: Instant) {
        if let Some(latest) = self.looks.back() {
            let time = at.saturating_duration_since(latest.at);
            rates::add(&mut interfaces, &latest.interfaces, time);
        }
        if self.looks.len() == LOOKS {
            self.looks.pop_front();
        }
        self.looks.push_back(Look { interfaces, at });
        self.problems = problems.iter().map(|error| format!("{error:#}")).collect();
    }

    /// The tunnel that is shown, its number from 1 and the number of tunnels.
    pub(super) fn shown(&self) -> Option<(&Status, usize, usize)> {
        let interfaces = &self.looks.back()?.interfaces;
        let at = self.chosen_at(interfaces);
        Some((interfaces.get(at)?, at + 1, interfaces.len()))
    }

    /// The rates of a tunnel, oldest first: received and sent bytes per second.
    pub(super) fn rates(&self, name: &str) -> Vec<(u64, u64)> {
        // The first look's rate is of another time.
        let looks = self.looks.iter().skip(1);
        let rates = looks.map(|look| {
            let status = find(&look.interfaces, name);
            let rate = status.and_then(|it| it.rate).unwrap_or_default();
            (rate.rx, rate.tx)
        });
        rates.collect()
    }

    /// Returns what a tunnel has counted in the last minute, and since the look before; `None` if it has just come up.
    pub(super) fn recent(&self, name: &str) -> Option<(Counters, Counters)> {
        let stats = |look: &Look| counters_of(find(&look.interfaces, name)?);
        let now = stats(self.looks.back()?)?;
        let mut looks = self.looks.iter();
        let first = looks.find_map(stats)?;
        let before = self.looks.iter().rev().nth(1).and_then(stats);
        let before = before.unwrap_or_else(|| first.clone());
        Some((now.since(&first), now.since(&before)))
    }

    pub(super) fn next_tunnel(&mut self) {
        self.choose(1);
    }

    pub(super) fn previous_tunnel(&mut self) {
        self.choose(-1);
    }

    /// Moves the list of peers; drawing keeps it within its bounds.
    pub(super) fn scroll(&mut self, by: isize) {
        self.top = self.top.saturating_add_signed(by);
    }

    fn choose(&mut self, by: isize) {
        let Some(latest) = self.looks.back() else {
            return;
        };
        let interfaces = &latest.interfaces;
        let at = self.chosen_at(interfaces) as isize + by;
        let at = at.rem_euclid(interfaces.len().max(1) as isize) as usize;
        self.chosen = interfaces.get(at).map(|it| it.name.clone());
        self.top = 0;
    }

    fn chosen_at(&self, interfaces: &[Status]) -> usize {
        let is_chosen = |it: &Status| Some(&it.name) == self.chosen.as_ref();
        interfaces.iter().position(is_chosen).unwrap_or(0)
    }
}

/// The counters of a tunnel, with the drops of the one through which it goes by its name.
fn counters_of(status: &Status) -> Option<Counters> {
    let mut counters = status.stats.clone()?;
    if let Some(via) = &status.via
        && let Some(stats) = &via.stats
    {
        let drops = stats.drops.iter();
        let drops = drops.map(|(reason, count)| (format!("{}: {reason}", via.name), *count));
        counters.drops.extend(drops);
    }
    Some(counters)
}

fn find<'a>(interfaces: &'a [Status], name: &str) -> Option<&'a Status> {
    interfaces.iter().find(|it| it.name == name)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use convoy_report::Traffic;

    use super::*;

    #[test]
    fn a_minute_is_kept() {
        let mut screen = Screen::default();
        let begin = Instant::now();
        for second in 0..100 {
            let at = begin + Duration::from_secs(second);
            screen.look((vec![status("wg0", second * 1_000)], Vec::new()), at);
        }
        assert_eq!(screen.rates("wg0"), vec![(1_000, 0); 60]);
        let (minute, second) = screen.recent("wg0").unwrap();
        assert_eq!(
            (minute.inbound.bytes, second.inbound.bytes),
            (60_000, 1_000)
        );
        assert!(screen.recent("wg1").is_none());
    }

    #[test]
    fn the_chosen_tunnel_stays_chosen_and_the_first_is_shown_once_it_is_gone() {
        let mut screen = Screen::default();
        let now = Instant::now();
        screen.next_tunnel();
        assert!(screen.shown().is_none());
        let all = ["wg0", "wg1", "wg2"].map(|name| status(name, 0));
        let look =
            |screen: &mut Screen, all: &[Status]| screen.look((all.to_vec(), Vec::new()), now);
        look(&mut screen, &all[1..]);
        screen.next_tunnel();
        screen.scroll(5);
        look(&mut screen, &all);
        let shown = |screen: &Screen| screen.shown().map(|it| (it.0.name.clone(), it.1, it.2));
        assert_eq!(shown(&screen), Some(("wg2".to_owned(), 3, 3)));
        assert_eq!(screen.top, 5);
        screen.next_tunnel();
        assert_eq!(shown(&screen), Some(("wg0".to_owned(), 1, 3)));
        assert_eq!(screen.top, 0);
        screen.previous_tunnel();
        look(&mut screen, &all[..2]);
        assert_eq!(shown(&screen), Some(("wg0".to_owned(), 1, 2)));
    }

    fn status(name: &str, bytes: u64) -> Status {
        Status {
            name: name.to_owned(),
            stats: Some(Counters {
                inbound: Traffic { packets: 1, bytes },
                ..Counters::default()
            }),
            ..Status::default()
        }
    }
}
