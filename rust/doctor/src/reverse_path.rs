//! Whether the kernel drops what arrives by another way than the answer would leave: the reverse path filter.

use super::{finding::Finding, sysctl};

const ID: &str = "rp-filter";

/// The filter's settings for the device by which datagrams to the endpoints leave
/// (Documentation/networking/ip-sysctl.rst).
#[derive(Clone, Debug)]
pub(super) struct ReversePath {
    pub(super) device: String,
    /// Whether the answer must leave by this very device.
    pub(super) is_strict: bool,
    /// Whether the filter looks up the answer's route with the datagram's mark.
    pub(super) heeds_mark: bool,
}

/// The program that leads packets into the tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Marking {
    /// Nobody does by a mark.
    None,
    /// Convoy will, when the tunnel comes up.
    Planned,
    /// Convoy does.
    InPlace,
    /// The user's own rules do: `FwMark` is set, and `Table` is not `auto`.
    ByHand,
}

impl ReversePath {
    pub(super) fn gather(device: &str) -> Self {
        let setting = |device: &str, name: &str| -> u8 {
            let value = sysctl::of_path(&format!("net/ipv4/conf/{device}/{name}"));
            value.and_then(|value| value.parse().ok()).unwrap_or(0)
        };
        // The kernel takes the greater of both.
        let greater = |name| setting("all", name).max(setting(device, name));
        Self {
            device: device.to_owned(),
            is_strict: greater("rp_filter") == 1,
            heeds_mark: greater("src_valid_mark") != 0,
        }
    }
}

/// Judges the filter.
pub(super) fn judge(path: &ReversePath, marking: Marking) -> Finding {
    let ReversePath { device, .. } = path;
    let drops = path.is_strict && !path.heeds_mark;
    let fix = "`sysctl -w net.ipv4.conf.all.src_valid_mark=1`";
    match (drops, marking) {
        (false, _) | (true, Marking::None) => {
            let strictness = if path.is_strict {
                "strict"
            } else {
                "loose or off"
            };
            let what = format!(
                "The reverse path filter of {device} is {strictness}, which suits the tunnel."
            );
            Finding::ok(ID, what)
        }
        (true, Marking::Planned) => Finding::ok(
            ID,
            format!(
                "The reverse path filter of {device} is strict; `convoy up` makes it heed marks."
            ),
        ),
        (true, Marking::InPlace) => Finding::error(
            ID,
            format!(
                "The strict reverse path filter of {device} drops the peers' datagrams: it does not heed marks."
            ),
            format!("{fix}; find out what has reset it, as `convoy up` sets it."),
        ),
        (true, Marking::ByHand) => Finding::warning(
            ID,
            format!(
                "The strict reverse path filter of {device} may drop the peers' datagrams: it does not heed marks, \
                     and Convoy sets no routes here."
            ),
            fix,
        ),
    }
}

/// Judges forwarding, if hooks of the configuration translate the addresses of other hosts.
pub(super) fn judge_forwarding(hooks: &[&str], forwards: bool) -> Option<Finding> {
    const ID: &str = "forwarding";
    let translates = |hook: &&&str| {
        let hook = hook.to_lowercase();
        hook.contains("masquerade") || hook.contains("snat")
    };
    hooks.iter().find(translates)?;
    Some(match forwards {
        true => Finding::ok(
            ID,
            "Hooks translate addresses, and the kernel forwards packets.",
        ),
        false => Finding::warning(
            ID,
            "Hooks translate the addresses of other hosts, but the kernel does not forward packets.",
            "`sysctl -w net.ipv4.ip_forward=1`",
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Severity;

    #[test]
    fn a_strict_filter_that_does_not_heed_marks_drops_datagrams_if_a_mark_decides() {
        let severity = |is_strict, heeds_mark, marking| {
            let device = "eth0".to_owned();
            judge(
                &ReversePath {
                    device,
                    is_strict,
                    heeds_mark,
                },
                marking,
            )
            .severity
        };
        for (marking, expected) in [
            (Marking::None, Severity::Ok),
            (Marking::Planned, Severity::Ok),
            (Marking::InPlace, Severity::Error),
            (Marking::ByHand, Severity::Warning),
        ] {
            assert_eq!(severity(true, false, marking), expected, "{marking:?}");
            assert_eq!(severity(true, true, marking), Severity::Ok);
            assert_eq!(severity(false, false, marking), Severity::Ok);
        }
    }

    #[test]
    fn forwarding_matters_to_hooks_that_translate_addresses() {
        let nat = "iptables -t nat -A POSTROUTING -o eth0 -j MASQUERADE";
        assert_eq!(
            judge_forwarding(&["ip route add 192.0.2.0/24"], false),
            None
        );
        let severity = |forwards| judge_forwarding(&["true", nat], forwards).unwrap().severity;
        assert_eq!(
            (severity(false), severity(true)),
            (Severity::Warning, Severity::Ok)
        );
    }

    #[test]
    fn settings_are_those_of_all_or_of_the_device() {
        let path = ReversePath::gather("no-such-device");
        let all = sysctl::number::<u8>("net.ipv4.conf.all.rp_filter");
        assert_eq!(path.is_strict, all == Some(1));
    }
}
