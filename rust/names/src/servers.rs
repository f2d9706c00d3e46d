//! The choice of name servers.

use std::net::{IpAddr, Ipv4Addr};

/// Most servers that are asked.
const SERVERS: usize = 4;
/// Most search domains, as in resolv.conf(5) before glibc 2.26.
const SEARCH: usize = 6;

/// systemd-resolved itself (systemd-resolved.service(8)): it asks further servers from sockets without a mark,
/// perhaps those within the tunnel.
const STUBS: [Ipv4Addr; 2] = [Ipv4Addr::new(127, 0, 0, 53), Ipv4Addr::new(127, 0, 0, 54)];

/// The texts of files in the format of resolv.conf(5).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Texts {
    /// resolv.conf without our changes.
    pub(super) resolv_conf: String,
    /// Files in which others keep the servers that resolv.conf would have without a local resolver, or without
    /// our servers.
    pub(super) others: Vec<String>,
}

/// A name server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Server {
    pub(super) address: IpAddr,
    /// The interface that a link-local address belongs to: its name or number.
    pub(super) zone: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Chosen {
    pub(super) servers: Vec<Server>,
    pub(super) search: Vec<String>,
}

/// Chooses the servers to ask, best first:
///
/// - those of resolv.conf, or else of the first other file that names any;
/// - else a resolver on this host other than systemd-resolved, although it may ask through the tunnel;
/// - else, if queries can `leave` the tunnel by their mark, those of `within` that the internet leads to, too.
///   Both networks often use the same public server.
///
/// `within`: the tunnel's own servers.
pub(super) fn choose(texts: &Texts, within: &[IpAddr], leave: bool) -> Chosen {
    let first = std::iter::once(&texts.resolv_conf);
    let all: Vec<_> = first.chain(&texts.others).map(|text| parse(text)).collect();
    let search = all.iter().find(|it| !it.search.is_empty());
    let search = search.map(|it| it.search.clone()).unwrap_or_default();

    let is_stub = |server: &&Server| STUBS.iter().any(|stub| server.address == *stub);
    let is_ours = |server: &&Server| within.contains(&server.address);
    let is_local =
        |server: &&Server| server.address.is_loopback() || server.address.is_unspecified();
    let is_outside = |it: &&Server| !is_stub(it) && !is_ours(it) && !is_local(it);
    let is_resolver = |it: &&Server| !is_stub(it) && !is_ours(it) && is_local(it);
    let is_shared = |it: &&Server| leave && is_ours(it) && is_public(it.address);
    let pick = |suits: &dyn Fn(&&Server) -> bool| {
        let picked = all
            .iter()
            .map(|it| it.servers.iter().filter(suits).take(SERVERS));
        let mut picked = picked.map(|it| it.cloned().collect::<Vec<_>>());
        picked.find(|servers| !servers.is_empty())
    };
    let servers = pick(&is_outside)
        .or_else(|| pick(&is_resolver))
        .or_else(|| pick(&is_shared));
    Chosen {
        servers: servers.unwrap_or_default(),
        search,
    }
}

/// Reads `nameserver`, `search` and `domain` lines, of the latter two the last, as the C library does.
fn parse(text: &str) -> Chosen {
    let mut parsed = Chosen::default();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("nameserver") => {
                let server = words.next().and_then(server);
                parsed
                    .servers
                    .extend(server.filter(|it| !parsed.servers.contains(it)));
            }
            Some("search" | "domain") => {
                let domains = words.filter(|word| *word != ".").take(SEARCH);
                parsed.search = domains.map(str::to_owned).collect();
            }
            _ => {}
        }
    }
    parsed
}

fn server(word: &str) -> Option<Server> {
    let (address, zone) = match word.split_once('%') {
        Some((address, zone)) => (address, Some(zone.to_owned())),
        None => (word, None),
    };
    let address = address.parse::<IpAddr>().ok()?.to_canonical();
    Some(Server { address, zone })
}

/// Returns whether the address is not one of a private network.
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            let [a, b, ..] = v4.octets();
            // 100.64.0.0/10 (RFC 6598).
            let is_shared = a == 100 && (64..128).contains(&b);
            !(v4.is_private() || v4.is_link_local() || v4.is_loopback() || is_shared)
        }
        IpAddr::V6(v6) => !(v6.is_unique_local() || v6.is_unicast_link_local() || v6.is_loopback()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STUB: &str = "nameserver 127.0.0.53\noptions edns0 trust-ad\nsearch .\n";

    #[test]
    fn the_servers_of_resolv_conf_come_first() {
        let text = "# comment\nnameserver 192.0.2.1\nnameserver  2001:db8::1 # x\n\
            nameserver 192.0.2.1\nnameserver nonsense\nnameserver\noptions timeout:1\n";
        assert_eq!(
            chosen(text, &["nameserver 192.0.2.9"], &[], false),
            ["192.0.2.1", "2001:db8::1"]
        );
    }

    #[test]
    fn in_place_of_systemd_resolveds_stub_its_servers_are_asked_but_not_those_of_the_tunnel() {
        let upstream = "nameserver 10.8.0.1\nnameserver 192.168.1.1\nsearch .\n";
        assert_eq!(
            chosen(STUB, &[upstream], &["10.8.0.1"], true),
            ["192.168.1.1"]
        );
        assert_eq!(
            chosen(STUB, &["", "nameserver 192.0.2.3"], &[], true),
            ["192.0.2.3"]
        );
    }

    #[test]
    fn without_a_server_outside_of_the_tunnel_none_is_chosen() {
        let own = "nameserver 10.8.0.1\n";
        for (text, others) in [("", ""), (STUB, ""), (STUB, own), (own, own)] {
            assert_eq!(
                chosen(text, &[others], &["10.8.0.1"], true),
                [""; 0],
                "{text} {others}"
            );
        }
    }

    #[test]
    fn a_public_server_that_both_networks_use_is_asked_outside_of_the_tunnel_if_a_mark_allows_it() {
        for public in ["9.9.9.9", "2620:fe::fe"] {
            let text = format!("nameserver {public}");
            assert_eq!(chosen(&text, &[], &[public], true), [public]);
            assert_eq!(chosen(&text, &[], &[public], false), [""; 0]);
        }
        for private in [
            "10.0.0.1",
            "100.64.0.1",
            "169.254.0.1",
            "fd00::1",
            "fe80::1",
        ] {
            let text = format!("nameserver {private}");
            assert_eq!(chosen(&text, &[], &[private], true), [""; 0]);
        }
    }

    #[test]
    fn a_resolver_on_this_host_is_asked_only_if_nobody_names_its_servers() {
        let local = "nameserver 127.0.0.1\nnameserver ::1\n";
        assert_eq!(
            chosen(local, &["nameserver 192.0.2.1"], &[], true),
            ["192.0.2.1"]
        );
        assert_eq!(chosen(local, &[], &["9.9.9.9"], true), ["127.0.0.1", "::1"]);
    }

    #[test]
    fn a_few_servers_are_asked_and_link_local_ones_by_their_interface() {
        let many: String = (1..9)
            .map(|n| format!("nameserver 192.0.2.{n}\n"))
            .collect();
        assert_eq!(chosen(&many, &[], &[], true).len(), SERVERS);
        let texts = Texts {
            resolv_conf: "nameserver fe80::1%eth0\n".to_owned(),
            ..Texts::default()
        };
        let server = Server {
            address: "fe80::1".parse().unwrap(),
            zone: Some("eth0".to_owned()),
        };
        assert_eq!(choose(&texts, &[], true).servers, [server]);
    }

    #[test]
    fn the_last_search_line_counts_and_the_root_is_none() {
        let text = "domain a.example\nsearch b.example c.example\nnameserver 192.0.2.1\n";
        assert_eq!(search(text, ""), ["b.example", "c.example"]);
        assert_eq!(search(STUB, "search d.example\n"), ["d.example"]);
    }

    fn search(text: &str, other: &str) -> Vec<String> {
        choose(&texts(text, &[other]), &[], true).search
    }

    fn chosen(text: &str, others: &[&str], within: &[&str], leave: bool) -> Vec<String> {
        let within: Vec<_> = within.iter().map(|it| it.parse().unwrap()).collect();
        let chosen = choose(&texts(text, others), &within, leave)
            .servers
            .into_iter();
        chosen.map(|server| server.address.to_string()).collect()
    }

    fn texts(text: &str, others: &[&str]) -> Texts {
        Texts {
            resolv_conf: text.to_owned(),
            others: others.iter().map(|&it| it.to_owned()).collect(),
        }
    }
}
