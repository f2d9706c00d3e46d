//! A test: its name, its load, and whether a tunnel takes its packets whole.

use std::{fmt, ops::RangeInclusive, str::FromStr};

use convoy_lab::measure::Direction;

/// MTUs of a tunnel, in bytes: from the packet that every host takes whole (RFC 791) to the one for which a
/// datagram of 65,535 bytes has room.
pub(super) const MTUS: RangeInclusive<i64> = 576..=65_455;
/// Of IPv4 and UDP, in bytes.
const HEADERS: usize = 20 + 8;
const STREAMS: RangeInclusive<u32> = 1..=64;
/// The least holds a packet's number; the most fits the largest MTU.
const PAYLOADS: RangeInclusive<usize> = 16..=*MTUS.end() as usize - HEADERS;
/// The congestion control of the tests that end in its name.
pub(super) const BBR: &str = "bbr";

/// One test, as named by `--tests`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Test {
    Tcp(Tcp),
    /// The highest rate of UDP packets with this many bytes of payload.
    Udp(usize),
}

/// TCP at full speed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tcp {
    pub(super) streams: Streams,
    /// Whether a ping every 10 ms runs beside it while it is counted.
    pub(super) ping: bool,
    /// Whether the sender asks for BBR instead of the kernel's default congestion control.
    pub(super) bbr: bool,
}

/// The streams of a TCP test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Streams {
    /// One from this end.
    Up,
    /// One to this end.
    Down,
    /// This many from this end.
    Several(u32),
}

/// Why there is no such test.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the tests are tcp-up, tcp-down and tcp-N of N = {} to {} streams, each also with -ping or -bbr behind \
     it; and udp-SIZE of SIZE = {} to {} bytes of payload",
    STREAMS.start(), STREAMS.end(), PAYLOADS.start(), PAYLOADS.end()
)]
pub(super) struct UnknownTest;

/// Why a test would measure fragments.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "udp-{payload} does not fit an MTU of {mtu}: its packets would be fragmented (fix: udp-{most} at most, \
     or a larger --mtu)"
)]
pub struct TooLarge {
    payload: usize,
    mtu: u32,
    most: usize,
}

impl Test {
    pub(super) const TCP_UP: Self = Self::Tcp(Tcp::plain(Streams::Up));

    /// The tests without `--tests`.
    pub(super) const USUAL: [Self; 7] = [
        Self::TCP_UP,
        Self::Tcp(Tcp::plain(Streams::Down)),
        Self::Tcp(Tcp::plain(Streams::Several(4))),
        Self::Tcp(Tcp {
            ping: true,
            ..Tcp::plain(Streams::Up)
        }),
        Self::Tcp(Tcp {
            bbr: true,
            ..Tcp::plain(Streams::Up)
        }),
        Self::Udp(1_200),
        Self::Udp(64),
    ];

    /// Fails unless an interface of this MTU takes its packets whole.
    pub(super) fn fits(self, mtu: u32) -> Result<(), TooLarge> {
        let most = (mtu as usize).saturating_sub(HEADERS);
        match self {
            Self::Udp(payload) if payload > most => Err(TooLarge { payload, mtu, most }),
            _ => Ok(()),
        }
    }
}

impl Tcp {
    const fn plain(streams: Streams) -> Self {
        Self {
            streams,
            ping: false,
            bbr: false,
        }
    }

    pub(super) fn direction(self) -> Direction {
        match self.streams {
            Streams::Down => Direction::Down,
            Streams::Up | Streams::Several(_) => Direction::Up,
        }
    }
}

impl Streams {
    pub(super) fn count(self) -> u32 {
        match self {
            Self::Up | Self::Down => 1,
            Self::Several(count) => count,
        }
    }
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tcp = match self {
            Self::Tcp(tcp) => tcp,
            Self::Udp(payload) => return write!(f, "udp-{payload}"),
        };
        match tcp.streams {
            Streams::Up => f.write_str("tcp-up")?,
            Streams::Down => f.write_str("tcp-down")?,
            Streams::Several(streams) => write!(f, "tcp-{streams}")?,
        }
        f.write_str(if tcp.bbr { "-bbr" } else { "" })?;
        f.write_str(if tcp.ping { "-ping" } else { "" })
    }
}

impl FromStr for Test {
    type Err = UnknownTest;

    fn from_str(name: &str) -> Result<Self, UnknownTest> {
        // A test has one name: no sign, no leading zeros.
        let test = udp(name).or_else(|| tcp(name));
        test.filter(|test| test.to_string() == name)
            .ok_or(UnknownTest)
    }
}

fn udp(name: &str) -> Option<Test> {
    let payload = name.strip_prefix("udp-")?.parse().ok()?;
    PAYLOADS.contains(&payload).then_some(Test::Udp(payload))
}

fn tcp(name: &str) -> Option<Test> {
    let name = name.strip_prefix("tcp-")?;
    let (name, ping) = name
        .strip_suffix("-ping")
        .map_or((name, false), |name| (name, true));
    let (name, bbr) = name
        .strip_suffix("-bbr")
        .map_or((name, false), |name| (name, true));
    let streams = match name {
        "up" => Streams::Up,
        "down" => Streams::Down,
        number => Streams::Several(
            number
                .parse()
                .ok()
                .filter(|number| STREAMS.contains(number))?,
        ),
    };
    Some(Test::Tcp(Tcp { streams, ping, bbr }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_test_is_read_by_the_name_that_it_prints() {
        let more = [
            "tcp-1",
            "tcp-64",
            "tcp-4-ping",
            "tcp-down-bbr-ping",
            "udp-16",
            "udp-65427",
        ];
        let usual = Test::USUAL.map(|test| test.to_string());
        for name in usual.iter().map(String::as_str).chain(more) {
            assert_eq!(name.parse::<Test>().unwrap().to_string(), name);
        }
        assert_eq!(usual[3..5], ["tcp-up-ping", "tcp-up-bbr"]);
        assert_eq!("udp-8900".parse(), Ok(Test::Udp(8_900)));
    }

    #[test]
    fn a_name_of_no_test_is_refused_with_those_that_there_are() {
        let wrong = " tcp tcp- tcp-0 tcp-65 tcp-+4 tcp-04 tcp-both tcp-ping udp-15 udp-65428 udp--64 \
                     udp-64-ping TCP-UP tcp-up-ping-bbr ping";
        for name in wrong.split(' ').chain(["udp-64 "]) {
            assert_eq!(name.parse::<Test>(), Err(UnknownTest), "{name}");
        }
        let tests = UnknownTest.to_string();
        assert!(
            tests.contains("N = 1 to 64") && tests.contains("SIZE = 16 to 65427"),
            "{tests}"
        );
    }

    #[test]
    fn packets_over_the_mtu_are_refused_with_the_greatest_size_that_fits() {
        assert_eq!(Test::Udp(1_392).fits(1_420), Ok(()));
        let refusal = Test::Udp(1_393).fits(1_420).unwrap_err().to_string();
        assert!(
            refusal.starts_with("udp-1393 does not fit an MTU of 1420"),
            "{refusal}"
        );
        assert!(refusal.contains("udp-1392 at most"), "{refusal}");
        assert_eq!(Test::TCP_UP.fits(576), Ok(()));
    }
}
