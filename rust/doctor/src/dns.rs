//! The name servers in use.

use std::{collections::BTreeSet, fs, net::IpAddr};

use super::finding::Finding;

/// systemd-resolved itself (systemd-resolved.service(8)).
const STUBS: [&str; 2] = ["127.0.0.53", "127.0.0.54"];

/// The files that tell the name servers.
#[derive(Clone, Debug, Default)]
pub(super) struct Resolution {
    /// `/etc/resolv.conf`
    pub(super) resolv_conf: Option<String>,
    /// The servers of systemd-resolved, if it runs.
    pub(super) resolved: Option<String>,
}

/// Name servers that a tunnel brings.
#[derive(Clone, Debug, Default)]
pub(super) struct Wanted {
    pub(super) servers: Vec<IpAddr>,
    /// Whether the tunnel is up, and not paused.
    pub(super) is_in_effect: bool,
}

impl Resolution {
    pub(super) fn gather() -> Self {
        Self {
            resolv_conf: fs::read_to_string("/etc/resolv.conf").ok(),
            resolved: fs::read_to_string("/run/systemd/resolve/resolv.conf").ok(),
        }
    }

    /// The name servers in use, and who asks them.
    fn servers(&self) -> (&'static str, BTreeSet<String>) {
        let listed = servers_in(self.resolv_conf.as_deref().unwrap_or_default());
        let is_stub = |server: &String| STUBS.contains(&server.as_str());
        if !listed.iter().any(is_stub) {
            return ("/etc/resolv.conf", listed);
        }
        let upstream = servers_in(self.resolved.as_deref().unwrap_or_default());
        ("systemd-resolved", upstream)
    }

    fn names_absent_resolved(&self) -> bool {
        self.resolved.is_none() && self.servers().0 == "systemd-resolved"
    }
}

/// Judges the name servers in use, and whether those of the tunnel are among them.
pub(super) fn judge(resolution: &Resolution, wanted: &Wanted) -> Vec<Finding> {
    let (by, servers) = resolution.servers();
    let mut findings = vec![judge_servers(resolution, by, &servers)];
    let missing: Vec<_> = wanted
        .servers
        .iter()
        .filter(|wanted| !servers.iter().any(|it| it.parse() == Ok(**wanted)))
        .map(IpAddr::to_string)
        .collect();
    if !wanted.is_in_effect || wanted.servers.is_empty() {
        return findings;
    }
    findings.push(match missing.is_empty() {
        true => Finding::ok("dns-tunnel", "The tunnel's name servers are in use."),
        false => Finding::warning(
            "dns-tunnel",
            format!(
                "The tunnel's name servers are not in use ({by}): {}.",
                missing.join(", ")
            ),
            "Find out which program has replaced them; restarting the tunnel sets them again.",
        ),
    });
    findings
}

fn judge_servers(resolution: &Resolution, by: &str, servers: &BTreeSet<String>) -> Finding {
    const ID: &str = "dns";
    if resolution.names_absent_resolved() {
        return Finding::warning(
            ID,
            "/etc/resolv.conf names systemd-resolved, which does not run.",
            "`systemctl enable --now systemd-resolved`, or write a name server into /etc/resolv.conf.",
        );
    }
    if servers.is_empty() {
        return Finding::warning(
            ID,
            format!("There is no name server in use ({by})."),
            "Connect to a network that offers one, or write one into /etc/resolv.conf.",
        );
    }
    let servers: Vec<_> = servers.iter().map(String::as_str).collect();
    Finding::ok(
        ID,
        format!("Name servers in use ({by}): {}.", servers.join(", ")),
    )
}

fn servers_in(text: &str) -> BTreeSet<String> {
    let lines = text.lines().map(str::split_whitespace);
    let servers = lines.filter_map(|mut words| match words.next() {
        Some("nameserver") => words.next(),
        _ => None,
    });
    servers.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Severity;

    fn resolution(resolv_conf: &str, resolved: Option<&str>) -> Resolution {
        Resolution {
            resolv_conf: Some(resolv_conf.to_owned()),
            resolved: resolved.map(str::to_owned),
        }
    }

    fn severities(resolution: &Resolution, servers: &[&str], is_in_effect: bool) -> Vec<Severity> {
        let wanted = Wanted {
            servers: servers
                .iter()
                .map(|server| server.parse().unwrap())
                .collect(),
            is_in_effect,
        };
        let findings = judge(resolution, &wanted);
        findings
            .into_iter()
            .map(|finding| finding.severity)
            .collect()
    }

    const STUB: &str = "nameserver 127.0.0.53\noptions edns0\n";

    #[test]
    fn an_address_is_the_tunnels_however_it_is_written() {
        use Severity::Ok;
        let written = resolution("nameserver 2001:DB8:0:0::0053\n", None);
        assert_eq!(severities(&written, &["2001:db8::53"], true), [Ok, Ok]);
    }

    #[test]
    fn a_host_without_a_name_server_is_told() {
        use Severity::{Ok, Warning};
        for (resolution, expected) in [
            (resolution("nameserver 192.168.1.1\n", None), Ok),
            (resolution("# nothing\n", None), Warning),
            (Resolution::default(), Warning),
            (resolution(STUB, Some("nameserver 192.168.1.1\n")), Ok),
            (resolution(STUB, Some("search .\n")), Warning),
            (resolution(STUB, None), Warning),
        ] {
            assert_eq!(
                severities(&resolution, &[], true),
                [expected],
                "{resolution:?}"
            );
        }
    }

    #[test]
    fn the_tunnels_name_servers_are_in_use_or_it_is_told() {
        use Severity::{Ok, Warning};
        let ours = resolution(STUB, Some("nameserver 192.168.1.1\nnameserver 10.8.0.1\n"));
        assert_eq!(severities(&ours, &["10.8.0.1"], true), [Ok, Ok]);
        let theirs = resolution("nameserver 192.168.1.1\n", None);
        assert_eq!(severities(&theirs, &["10.8.0.1"], true), [Ok, Warning]);
        assert_eq!(
            severities(&theirs, &["10.8.0.1"], false),
            [Ok],
            "it is not up"
        );
        let ipv6 = resolution("nameserver fd08::1\n", None);
        assert_eq!(severities(&ipv6, &["fd08::1"], true), [Ok, Ok]);
    }
}
