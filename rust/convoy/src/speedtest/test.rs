//! A test: its name, what it sends, and whether a tunnel takes that whole.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use convoy_lab::measure::Direction;
use thiserror::Error;

/// MTUs of a tunnel, in bytes: from what every host takes whole (RFC 791) to what a datagram of 65,535
/// bytes has room for.
pub(super) const MTUS: RangeInclusive<i64> = 576..=65_455;
/// Of IPv4 and UDP, in bytes.
const HEADERS: usize = 20 + 8;
const STREAMS: RangeInclusive<u32> = 1..=64;
/// The least holds a packet's number; the most fits the largest MTU.
const PAYLOADS: RangeInclusive<usize> = 16..=*MTUS.end() as usize - HEADERS;

/// One test, as named by `--tests`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Test {
    /// TCP from this end.
    TcpUp,
    /// TCP to this end.
    TcpDown,
    /// So many TCP streams from this end.
    TcpStreams(u32),
    /// The highest rate of UDP packets with so many bytes of payload.
    Udp(usize),
}

/// What a test sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Load {
    Tcp {
        direction: Direction,
        streams: u32,
    },
    /// Bytes of UDP payload.
    Udp {
        payload: usize,
    },
}

/// Why there is no such test.
#[derive(Debug, PartialEq, Eq, Error)]
#[error(
    "the tests are tcp-up, tcp-down, tcp-N of N = {} to {} streams, and udp-SIZE of SIZE = {} to {} bytes \
     of payload",
    STREAMS.start(), STREAMS.end(), PAYLOADS.start(), PAYLOADS.end()
)]
pub(super) struct UnknownTest;

/// Why a test would measure fragments.
#[derive(Debug, PartialEq, Eq, Error)]
#[error(
    "{test} does not fit an MTU of {mtu}: its packets would be fragmented (fix: udp-{most} at most, or \
     a larger --mtu)"
)]
pub(super) struct TooLarge {
    test: Test,
    mtu: u32,
    most: usize,
}

impl Test {
    /// What runs unless told otherwise.
    pub(super) const USUAL: [Self; 5] = [
        Self::TcpUp,
        Self::TcpDown,
        Self::TcpStreams(4),
        Self::Udp(1_200),
        Self::Udp(64),
    ];

    pub(super) fn load(self) -> Load {
        let tcp = |direction, streams| Load::Tcp { direction, streams };
        match self {
            Self::TcpUp => tcp(Direction::Up, 1),
            Self::TcpDown => tcp(Direction::Down, 1),
            Self::TcpStreams(streams) => tcp(Direction::Up, streams),
            Self::Udp(payload) => Load::Udp { payload },
        }
    }

    /// Whether an interface of this MTU takes its packets whole.
    ///
    /// # Errors
    /// [`TooLarge`] names what would fit.
    pub(super) fn fits(self, mtu: u32) -> Result<(), TooLarge> {
        let most = (mtu as usize).saturating_sub(HEADERS);
        match self {
            Self::Udp(payload) if payload > most => Err(TooLarge {
                test: self,
                mtu,
                most,
            }),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TcpUp => f.write_str("tcp-up"),
            Self::TcpDown => f.write_str("tcp-down"),
            Self::TcpStreams(streams) => write!(f, "tcp-{streams}"),
            Self::Udp(payload) => write!(f, "udp-{payload}"),
        }
    }
}

impl FromStr for Test {
    type Err = UnknownTest;

    fn from_str(name: &str) -> Result<Self, UnknownTest> {
        let streams = || Some(Self::TcpStreams(number(name, "tcp-", STREAMS)?));
        let payload = || Some(Self::Udp(number(name, "udp-", PAYLOADS)?));
        let test = match name {
            "tcp-up" => Some(Self::TcpUp),
            "tcp-down" => Some(Self::TcpDown),
            _ => streams().or_else(payload),
        };
        // Each test has one name: no sign, no leading zeros.
        test.filter(|test| test.to_string() == name)
            .ok_or(UnknownTest)
    }
}

/// What follows `prefix`, if it is in `range`.
fn number<T: FromStr + PartialOrd>(
    name: &str,
    prefix: &str,
    range: RangeInclusive<T>,
) -> Option<T> {
    let number = name.strip_prefix(prefix)?.parse().ok()?;
    range.contains(&number).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_test_is_read_by_the_name_that_it_prints() {
        let more = ["tcp-1", "tcp-64", "udp-16", "udp-65427"];
        let usual = Test::USUAL.map(|test| test.to_string());
        for name in usual.iter().map(String::as_str).chain(more) {
            assert_eq!(name.parse::<Test>().unwrap().to_string(), name);
        }
        assert_eq!("tcp-17".parse(), Ok(Test::TcpStreams(17)));
        assert_eq!("udp-8900".parse(), Ok(Test::Udp(8_900)));
    }

    #[test]
    fn a_name_of_no_test_is_refused_with_those_that_there_are() {
        let wrong = [
            "",
            "tcp",
            "tcp-",
            "tcp-0",
            "tcp-65",
            "tcp-+4",
            "tcp-04",
            "tcp-both",
            "udp-15",
            "udp-65428",
            "udp--64",
            "udp-64 ",
            "TCP-UP",
            "ping",
        ];
        for name in wrong {
            assert_eq!(name.parse::<Test>(), Err(UnknownTest), "{name}");
        }
        assert_eq!(
            UnknownTest.to_string(),
            "the tests are tcp-up, tcp-down, tcp-N of N = 1 to 64 streams, and udp-SIZE of SIZE = 16 to \
             65427 bytes of payload"
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
        assert_eq!(Test::TcpStreams(64).fits(576), Ok(()));
    }

    #[test]
    fn a_load_is_what_the_name_says() {
        let streams = |test: Test| match test.load() {
            Load::Tcp { direction, streams } => (direction, streams),
            Load::Udp { .. } => panic!("{test} is TCP"),
        };
        assert_eq!(streams(Test::TcpUp), (Direction::Up, 1));
        assert_eq!(streams(Test::TcpDown), (Direction::Down, 1));
        assert_eq!(streams(Test::TcpStreams(16)), (Direction::Up, 16));
        assert_eq!(Test::Udp(512).load(), Load::Udp { payload: 512 });
    }
}
