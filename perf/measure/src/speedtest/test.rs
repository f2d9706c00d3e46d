//! A test: its name, its load, and whether a tunnel carries its packets unfragmented.

use std::{ops::RangeInclusive, str::FromStr};

use anyhow::{Result, bail};
use convoy_lab::measure::Direction;

/// MTUs of a tunnel in bytes: from the packet size that every host must accept (RFC 791) up to the one whose
/// datagrams have 65,535 bytes.
pub(super) const MTUS: RangeInclusive<i64> = 576..=65_455;
/// Headers of IPv4 and UDP, in bytes.
const HEADERS: usize = 20 + 8;
const STREAMS: RangeInclusive<u32> = 1..=64;
/// The smallest payload holds a packet's number; the largest fits the largest MTU.
const PAYLOADS: RangeInclusive<usize> = 16..=*MTUS.end() as usize - HEADERS;

/// One test of `--tests`.
#[derive(Debug, Clone)]
pub(super) struct Test {
    pub(super) name: String,
    pub(super) load: Load,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Load {
    Tcp(Tcp),
    /// The highest rate of UDP packets with this many bytes of payload.
    Udp(usize),
}

/// TCP at full speed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tcp {
    pub(super) direction: Direction,
    pub(super) streams: u32,
    /// Whether a ping every 10 ms runs beside it while it is counted.
    pub(super) ping: bool,
    /// Whether the sender requests BBR instead of the kernel's default congestion control.
    pub(super) bbr: bool,
}

impl Test {
    /// Fails if an interface with this MTU would fragment its packets.
    pub(super) fn fits(&self, mtu: u32) -> Result<()> {
        let most = (mtu as usize).saturating_sub(HEADERS);
        match self.load {
            Load::Udp(payload) if payload > most => bail!(
                "udp-{payload} does not fit an MTU of {mtu}: its packets would be fragmented (fix: \
                 udp-{most} at most, or a larger --mtu)"
            ),
            _ => Ok(()),
        }
    }
}

impl Tcp {
    /// One stream from this end.
    pub(super) const UP: Self = Self {
        direction: Direction::Up,
        streams: 1,
        ping: false,
        bbr: false,
    };
}

impl FromStr for Test {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let load = udp(name).or_else(|| tcp(name)).ok_or_else(|| {
            format!(
                "the tests are tcp-up, tcp-down and tcp-N of N = {} to {} streams, each also with -ping or \
                 -bbr behind it; and udp-SIZE of SIZE = {} to {} bytes of payload",
                STREAMS.start(),
                STREAMS.end(),
                PAYLOADS.start(),
                PAYLOADS.end()
            )
        })?;
        let name = name.to_owned();
        Ok(Self { name, load })
    }
}

fn udp(name: &str) -> Option<Load> {
    let payload = name.strip_prefix("udp-")?.parse().ok()?;
    PAYLOADS.contains(&payload).then_some(Load::Udp(payload))
}

fn tcp(name: &str) -> Option<Load> {
    let mut words = name.strip_prefix("tcp-")?.split('-');
    let mut tcp = Tcp::UP;
    match words.next()? {
        "up" => {}
        "down" => tcp.direction = Direction::Down,
        number => tcp.streams = number.parse().ok().filter(|n| STREAMS.contains(n))?,
    }
    for word in words {
        match word {
            "ping" => tcp.ping = true,
            "bbr" => tcp.bbr = true,
            _ => return None,
        }
    }
    Some(Load::Tcp(tcp))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_direction_streams_ping_and_congestion_control() {
        let tcp = |name: &str| match name.parse::<Test>().unwrap().load {
            Load::Tcp(tcp) => (tcp.direction, tcp.streams, tcp.ping, tcp.bbr),
            Load::Udp(_) => panic!("{name}"),
        };
        assert_eq!(tcp("tcp-up"), (Direction::Up, 1, false, false));
        assert_eq!(tcp("tcp-16-ping"), (Direction::Up, 16, true, false));
        assert_eq!(tcp("tcp-down-bbr"), (Direction::Down, 1, false, true));
        let most = "udp-65427".parse::<Test>().unwrap().load;
        assert_eq!(most, Load::Udp(65_427));
    }

    #[test]
    fn a_name_of_no_test_is_refused_with_those_that_there_are() {
        let wrong = " tcp tcp- tcp-0 tcp-65 tcp-both tcp-ping udp-15 udp-65428 udp--64 udp-64-ping TCP-UP ping";
        for name in wrong.split(' ') {
            let refusal = name.parse::<Test>().unwrap_err();
            assert!(refusal.contains("N = 1 to 64"), "{name}: {refusal}");
            assert!(refusal.contains("SIZE = 16 to 65427"), "{name}: {refusal}");
        }
    }
}
