//! When sessions began, as `wg show` tells it.

use serde::{Deserialize, Serialize};

/// A handshake of the hub with a spoke.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Handshake {
    pub(crate) spoke: u8,
    /// In seconds since 1970-01-01 UTC.
    pub(crate) unix_s: u64,
}

/// All handshakes that were seen, each once.
#[derive(Default)]
pub(crate) struct Handshakes(pub(crate) Vec<Handshake>);

impl Handshakes {
    /// Takes what `wg show IFACE latest-handshakes` prints; `spokes` are numbers and public keys.
    pub(crate) fn take(&mut self, shown: &str, spokes: &[(u8, String)]) {
        for (key, time) in shown.lines().filter_map(|line| line.split_once('\t')) {
            let spoke = spokes.iter().find(|(_, known)| known == key);
            // A peer that has had no handshake shows 0.
            let (Some((spoke, _)), Ok(unix_s @ 1..)) = (spoke, time.trim().parse()) else {
                continue;
            };
            let seen = Handshake {
                spoke: *spoke,
                unix_s,
            };
            if !self.0.contains(&seen) {
                self.0.push(seen);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_handshake_is_taken_once_and_none_from_a_peer_without() {
        let spokes = [(2, "aa=".to_owned()), (3, "bb=".to_owned())];
        let mut handshakes = Handshakes::default();
        handshakes.take("aa=\t1700000000\nbb=\t0\ncc=\t1700000009\n", &spokes);
        handshakes.take("aa=\t1700000000\nbb=\t1700000001\n", &spokes);
        handshakes.take("aa=\t1700000120\n", &spokes);
        let seen: Vec<_> = handshakes.0.iter().map(|h| (h.spoke, h.unix_s)).collect();
        assert_eq!(
            seen,
            [(2, 1_700_000_000), (3, 1_700_000_001), (2, 1_700_000_120)]
        );
    }
}
