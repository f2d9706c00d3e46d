//! The kernel's release, and the bugs of some that concern a tunnel.

use std::{fmt, str::FromStr};

use super::{finding::Finding, sysctl::sysctl};

/// A release of Linux, such as 6.18.44. What distributions append is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Release(u32, u32, u32);

/// A bug of some releases.
struct Bug {
    id: &'static str,
    /// The first release that has it and the first that has not, for each series.
    ranges: &'static [(Release, Release)],
    what: &'static str,
    workaround: &'static str,
    /// Whether it concerns only hosts with VXLAN or Geneve interfaces.
    needs_overlay: bool,
}

/// Releases are those of kernel.org; distributions may have added a bug, or its fix, to others.
const BUGS: [Bug; 3] = [
    // Introduced by b10b446ce7ad (7.0-rc1), mended by 78effd896eee and 5f17ae0f595a (7.1-rc5, 7.0.11):
    // https://github.com/tailscale/tailscale/issues/19777
    Bug {
        id: "kernel-udp-gso",
        ranges: &[(Release(7, 0, 0), Release(7, 0, 11))],
        what: "loses datagrams that it sends in batches (GSO) through some network cards",
        workaround: "set CONVOY_GSO=off, or turn it off on the network card with `ethtool -K DEVICE \
                     tx-udp-segmentation off`",
        needs_overlay: false,
    },
    // Introduced by e269d79c7d35, mended by 89add40066f9: https://github.com/tailscale/tailscale/issues/13041
    Bug {
        id: "kernel-tun-gso",
        ranges: &[
            (Release(5, 15, 165), Release(5, 15, 167)),
            (Release(6, 1, 103), Release(6, 1, 107)),
            (Release(6, 6, 44), Release(6, 6, 46)),
            (Release(6, 10, 3), Release(6, 10, 5)),
        ],
        what: "refuses some super-packets, so that packets from the tunnel are written one by one",
        workaround: "set CONVOY_TUN_OFFLOAD=off, which costs speed but no refusals",
        needs_overlay: false,
    },
    // Mended by 3d010c8031e3 (6.8.5, 6.6.26); the TUN has had USO, which it takes, since 6.2:
    // https://github.com/tailscale/tailscale/issues/11026
    Bug {
        id: "kernel-overlay",
        ranges: &[
            (Release(6, 2, 0), Release(6, 6, 26)),
            (Release(6, 7, 0), Release(6, 8, 5)),
        ],
        what: "loses packets of VXLAN and Geneve that arrive through the tunnel in batches",
        workaround: "set CONVOY_TUN_OFFLOAD=off",
        needs_overlay: true,
    },
];

/// The release of the kernel that runs.
pub(super) fn running() -> Option<Release> {
    sysctl("kernel.osrelease")?.parse().ok()
}

/// `has_overlay`: whether this host has VXLAN or Geneve interfaces.
pub(super) fn judge(release: Option<Release>, has_overlay: bool) -> Vec<Finding> {
    let Some(release) = release else {
        let what = "The release of this kernel is not written as Linux writes it.";
        return vec![Finding::remark("kernel", what)];
    };
    let concerns = |bug: &&Bug| bug.is_in(release) && (has_overlay || !bug.needs_overlay);
    let found: Vec<_> = BUGS.iter().filter(concerns).collect();
    if found.is_empty() {
        let what = format!("Linux {release} has none of the bugs that are known to harm tunnels.");
        return vec![Finding::ok("kernel", what)];
    }
    let warn = |bug: &Bug| {
        let fixed = bug.fixed_in(release);
        Finding::warning(
            bug.id,
            format!("Linux {release} {}.", bug.what),
            format!(
                "Update to {fixed} or newer, or to a kernel of your distribution that has the fix; until then, {}.",
                bug.workaround
            ),
        )
    };
    found.into_iter().map(warn).collect()
}

impl Bug {
    fn is_in(&self, release: Release) -> bool {
        self.range_of(release).is_some()
    }

    fn fixed_in(&self, release: Release) -> Release {
        self.range_of(release).map_or(release, |(_, fixed)| *fixed)
    }

    fn range_of(&self, release: Release) -> Option<&(Release, Release)> {
        let mut ranges = self.ranges.iter();
        ranges.find(|(first, fixed)| (*first..*fixed).contains(&release))
    }
}

impl FromStr for Release {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_part = |c: char| c.is_ascii_digit() || c == '.';
        let numbers = text.split(|c| !is_part(c)).next().unwrap_or_default();
        let mut parts = numbers.split('.').map(str::parse);
        let mut next = || parts.next().unwrap_or(Ok(0));
        // A release candidate has no third part, and "7.0-" no second dot.
        Ok(Self(next()?, next()?, next().unwrap_or(0)))
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(version, patch_level, sublevel) = self;
        write!(f, "{version}.{patch_level}.{sublevel}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Severity;

    fn ids(release: &str, has_overlay: bool) -> Vec<String> {
        let findings = judge(release.parse().ok(), has_overlay);
        findings.into_iter().map(|finding| finding.id).collect()
    }

    #[test]
    fn what_distributions_append_to_a_release_is_left_out() {
        for (text, release) in [
            ("6.18.44-fc-v657", Release(6, 18, 44)),
            ("6.1.0-21-amd64", Release(6, 1, 0)),
            ("5.15.167.4-microsoft-standard-WSL2", Release(5, 15, 167)),
            ("7.1-rc5", Release(7, 1, 0)),
            ("7.0.11", Release(7, 0, 11)),
            ("6.12.3+", Release(6, 12, 3)),
        ] {
            assert_eq!(text.parse(), Ok(release), "{text}");
        }
        for text in ["", "-", "linux", ".5"] {
            assert!(text.parse::<Release>().is_err(), "{text}");
        }
    }

    #[test]
    fn each_bug_is_found_in_the_first_and_last_release_that_has_it_and_in_no_other() {
        for bug in &BUGS {
            for (first, fixed) in bug.ranges {
                assert!(bug.is_in(*first) && !bug.is_in(*fixed), "{}", bug.id);
                assert_eq!(bug.fixed_in(*first), *fixed);
            }
        }
        for release in ["5.15.166", "6.1.106", "6.6.45", "6.10.4"] {
            assert_eq!(ids(release, false), ["kernel-tun-gso"], "{release}");
        }
        for release in ["7.0.0", "7.0.2-6-pve", "7.0.10"] {
            assert_eq!(ids(release, false), ["kernel-udp-gso"], "{release}");
        }
        for release in [
            "5.15.164",
            "6.1.102",
            "6.6.43",
            "6.9.12",
            "6.18.44",
            "7.0.14-pve",
            "7.1.0",
            "8.0",
        ] {
            assert_eq!(ids(release, true), ["kernel"], "{release}");
        }
    }

    #[test]
    fn a_bug_of_overlays_concerns_only_hosts_that_have_one() {
        assert_eq!(ids("6.8.4", false), ["kernel"]);
        assert_eq!(ids("6.8.4", true), ["kernel-overlay"]);
        let fix = judge("6.5.0".parse().ok(), true)[0].fix.clone();
        assert!(fix.is_some_and(|fix| fix.contains("6.6.26")));
    }

    #[test]
    fn an_unknown_release_is_no_failure() {
        assert_eq!(judge(None, true)[0].severity, Severity::Note);
        assert!(running().is_some());
    }
}
