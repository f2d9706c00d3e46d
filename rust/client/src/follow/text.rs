//! A line of `convoy events` for people.

use convoy_process::printable;
use jiff::{Timestamp, tz::TimeZone};
use serde::Deserialize;

/// Fields of every event, whatever the version.
#[derive(Debug, Deserialize)]
pub(super) struct Line {
    pub(super) time: String,
    pub(super) interface: String,
    pub(super) message: String,
    pub(super) event: String,
}

/// `2026-01-31 23:59:59 wg0: Office is up at 192.0.2.1:51820`
pub(super) fn render(line: &Line, zone: &TimeZone) -> String {
    let time = match line.time.parse::<Timestamp>() {
        Ok(time) => {
            let time = time.to_zoned(zone.clone());
            time.strftime("%Y-%m-%d %H:%M:%S").to_string()
        }
        Err(_) => line.time.clone(),
    };
    printable(&format!("{time} {}: {}", line.interface, line.message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_has_the_time_of_this_place() {
        let line = Line {
            time: "2026-01-31T23:59:59.123Z".to_owned(),
            interface: "wg0".to_owned(),
            message: "the network has changed".to_owned(),
            event: "network_changed".to_owned(),
        };
        let zone = TimeZone::fixed(jiff::tz::offset(2));
        let expected = "2026-02-01 01:59:59 wg0: the network has changed";
        assert_eq!(render(&line, &zone), expected);
    }

    #[test]
    fn a_peers_name_does_not_control_the_terminal() {
        let line = Line {
            time: "now".to_owned(),
            interface: "wg0".to_owned(),
            message: "Of\u{202e}fice\u{9b}2J is up".to_owned(),
            event: "peer_up".to_owned(),
        };
        assert_eq!(render(&line, &TimeZone::UTC), "now wg0: Of?fice?2J is up");
    }
}
