//! What happens to the tunnels, when, and that it was done.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    bed::{Bed, PORT, SPOKES},
    changes,
    flow::Load,
};

/// Each minute every kind happens once, at these seconds of it.
const SECONDS: [(u64, Kind); 3] = [(10, Kind::Port), (30, Kind::Flap), (50, Kind::Syncconf)];
/// No event begins so shortly before the end, in seconds.
const LAST: u64 = 8;
/// Ports that the hub takes in turn, from [`PORT`] on.
const PORTS: u16 = 100;

/// What can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// The hub listens on another port.
    Port,
    /// The cable of a spoke is out.
    Flap,
    /// `wg syncconf` takes a peer from the hub and gives it back.
    Syncconf,
}

/// Something that is to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Planned {
    at_s: u64,
    kind: Kind,
    /// Counted from 0; whom it concerns, but for [`Kind::Port`].
    spoke: usize,
}

/// Something that happened.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Event {
    pub(crate) from_s: f64,
    pub(crate) until_s: f64,
    pub(crate) kind: Kind,
    /// None where all are concerned.
    pub(crate) spoke: Option<u8>,
    /// Why it could not be done.
    pub(crate) error: Option<String>,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Port => "port change",
            Self::Flap => "flap",
            Self::Syncconf => "syncconf",
        })
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:7.1} s  {}", self.from_s, self.kind)?;
        if let Some(spoke) = self.spoke {
            write!(f, ", spoke {spoke}")?;
        }
        match &self.error {
            Some(error) => write!(f, " failed: {error}"),
            None => Ok(()),
        }
    }
}

/// The events of a run of `secs` seconds; from minute to minute other spokes are concerned.
pub(crate) fn schedule(secs: u64) -> Vec<Planned> {
    let minutes = 0..=secs / 60;
    let events = minutes.flat_map(|minute| {
        SECONDS.iter().map(move |&(second, kind)| {
            // A spoke does not lose its cable and its sessions in the same minute.
            let shift = u64::from(kind == Kind::Syncconf) * SPOKES.len() as u64 / 2;
            Planned {
                at_s: minute * 60 + second,
                kind,
                spoke: ((minute + shift) % SPOKES.len() as u64) as usize,
            }
        })
    });
    events.filter(|event| event.at_s + LAST < secs).collect()
}

/// Lets everything happen in its time, or until the load ends.
pub(crate) fn carry_out(bed: &Bed, load: &Load, schedule: &[Planned]) -> Vec<Event> {
    let mut events = Vec::new();
    let mut port = PORT;
    for planned in schedule {
        let at = planned.at_s as f64;
        while load.clock.now() < at {
            load.clock.sleep_until(at.min(load.clock.now() + 0.25));
            if load.has_ended() {
                return events;
            }
        }
        let from_s = load.clock.now();
        let outcome = match planned.kind {
            Kind::Port => {
                port = PORT + (port + 1 - PORT) % PORTS;
                changes::change_port(bed, port)
            }
            Kind::Flap => changes::flap(&bed.spokes[planned.spoke]),
            Kind::Syncconf => {
                let keepalive = 25 + (planned.at_s / 60 % 2) as u16;
                changes::syncconf(bed, port, planned.spoke, keepalive)
            }
        };
        let event = Event {
            from_s,
            until_s: load.clock.now(),
            kind: planned.kind,
            spoke: (planned.kind != Kind::Port).then_some(SPOKES[planned.spoke]),
            error: outcome.err().map(|error| format!("{error:#}")),
        };
        println!("{event}");
        events.push(event);
    }
    events
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_each_minute_everything_happens_once_and_every_spoke_is_concerned() {
        let schedule = schedule(600);
        assert_eq!(schedule.len(), 30);
        for (_, kind) in SECONDS {
            let minutes = schedule.iter().filter(|event| event.kind == kind);
            assert!(minutes.map(|event| event.at_s / 60).eq(0..10), "{kind}");
        }
        for spoke in 0..SPOKES.len() {
            for kind in [Kind::Flap, Kind::Syncconf] {
                let concerned = |event: &&Planned| event.kind == kind && event.spoke == spoke;
                assert!(
                    schedule.iter().any(|event| concerned(&event)),
                    "{kind} {spoke}"
                );
            }
        }
    }

    #[test]
    fn nothing_happens_shortly_before_the_end() {
        let kinds = |secs| schedule(secs).iter().map(|e| e.kind).collect::<Vec<_>>();
        assert_eq!(kinds(38), [Kind::Port]);
        assert_eq!(kinds(39), [Kind::Port, Kind::Flap]);
        assert_eq!(schedule(71).last().map(|e| e.at_s), Some(50));
    }
}
