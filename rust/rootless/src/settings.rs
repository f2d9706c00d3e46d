//! Derives the network and the files inside from a configuration.

pub(crate) mod hidden;

use std::path::Path;

use anyhow::bail;
use convoy_config::{Config, Table};
use convoy_daemon::args::TunnelOptions;
use convoy_desired::configured_mark;
use convoy_endpoints::has_directs;
use convoy_namespace::{Files, Settings};
use nix::unistd::geteuid;

/// Fits a 1,500-byte link over IPv6.
const DEFAULT_MTU: u16 = 1420;

/// A warning about the keys of forwarding and of a gateway.
pub const FORWARDS_WITHOUT_EFFECT: &str =
    "Forward, Reverse, Socks5, HttpConnect and Nat have no effect without `convoy up --userspace`";

/// Purpose of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A command that runs inside.
    Command,
    /// Ports, or proxies.
    Ports,
    /// Peers alone, whose packets are forwarded outside.
    Gateway,
}

/// Returns the settings inside; `sockets`, the directory of the tunnel's sockets, is hidden there.
pub(super) fn settings(config: &Config, options: &TunnelOptions, sockets: &Path) -> Settings {
    let it = &config.interface;
    let allowed = config.peers.iter().flat_map(|peer| &peer.allowed_ips);
    let routes = allowed.map(|it| (it.address(), it.length()));
    let has_routes = it.table.as_ref().is_none_or(|it| it.value != Table::Off);
    Settings {
        interface: config.name.to_string(),
        offload: options.tun_offload,
        addresses: it
            .addresses
            .iter()
            .map(|a| (a.address(), a.length()))
            .collect(),
        mtu: it.mtu.as_ref().map_or(DEFAULT_MTU, |mtu| mtu.value),
        routes: routes.filter(|_| has_routes).collect(),
        is_gateway: false,
        files: Some(Files {
            resolv_conf: resolv_conf(config),
            hidden: hidden::paths(sockets),
            replaced: hidden::directories(),
        }),
    }
}

/// Refuses an inner tunnel: without root, its datagrams would leave outside the outer one.
pub(crate) fn refuse_via(config: &Config) -> anyhow::Result<()> {
    match &config.interface.via {
        Some(via) => {
            let title = "only `convoy up` as root brings up a tunnel that goes through another";
            bail!("{}", config.error_at(via.at, title, "goes through another"))
        }
        None => Ok(()),
    }
}

/// Returns the keys of the file that have no effect inside.
pub(super) fn warnings(config: &Config, purpose: Purpose) -> Vec<String> {
    let it = &config.interface;
    let is_marked = configured_mark(config).is_some();
    let is_excluding = !it.excluded_ips.is_empty() || it.exclude_local.is_some();
    let all = [
        (
            it.has_hooks(),
            "hooks do not run: they expect root, and to see the host's network",
        ),
        (
            it.dns_servers.is_empty() && purpose != Purpose::Gateway,
            "without the key DNS, no names can be looked up inside",
        ),
        (
            is_excluding,
            "ExcludedIPs has no effect: inside, there is only the tunnel",
        ),
        (
            has_directs(config),
            "Direct has no effect: only a tunnel of `convoy up` as root finds direct paths",
        ),
        (
            it.port_forward.is_some(),
            "PortForward has no effect: only a tunnel of `convoy up` as root asks for a port",
        ),
        (
            !it.turns.is_empty(),
            "Turn has no effect: only a tunnel of `convoy up` as root uses TURN servers",
        ),
        (
            is_marked && !geteuid().is_root(),
            "FwMark has no effect: only root may mark datagrams",
        ),
        (
            purpose == Purpose::Command && has_forwarding(config),
            FORWARDS_WITHOUT_EFFECT,
        ),
    ];
    let concerning = all.into_iter().filter(|(concerns, _)| *concerns);
    concerning.map(|(_, text)| text.to_owned()).collect()
}

/// Returns whether the file has listeners, or makes a gateway.
pub fn has_forwarding(config: &Config) -> bool {
    let it = &config.interface;
    let is_gateway = it.nat.is_on.as_ref().is_some_and(|it| it.value);
    is_gateway || !it.forwarding.listeners.is_empty()
}

fn resolv_conf(config: &Config) -> String {
    let it = &config.interface;
    let servers = it.dns_servers.iter();
    let servers = servers.map(|server| format!("nameserver {}\n", server.value));
    let names = it.dns_domains.iter().filter(|domain| !domain.route_only);
    let names: Vec<_> = names.map(|domain| domain.name.as_str()).collect();
    let search = (!names.is_empty()).then(|| format!("search {}\n", names.join(" ")));
    servers.chain(search).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(lines: &str) -> Config {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("wg0.conf");
        let key = convoy_config::encode_key(&[7; 32]);
        let text = format!(
            "[Interface]\nPrivateKey = {}\nAddress = 10.8.0.2/24\n{lines}\n",
            *key
        );
        std::fs::write(&path, text).unwrap();
        convoy_config::read(&path).unwrap().config
    }

    #[test]
    fn name_servers_and_search_domains_come_from_the_file_alone() {
        let both = config("DNS = 10.8.0.1, fd08::1, example.org, ~example.net");
        let expected = "nameserver 10.8.0.1\nnameserver fd08::1\nsearch example.org\n";
        assert_eq!(resolv_conf(&both), expected);
        assert_eq!(resolv_conf(&config("")), "");
    }

    #[test]
    fn what_the_file_asks_for_in_vain_is_a_warning() {
        let about = |lines| warnings(&config(lines), Purpose::Command).join("\n");
        assert!(about("DNS = 10.8.0.1").is_empty());
        assert!(about("").contains("DNS"));
        assert!(about("PostUp = true").contains("hooks"));
        assert!(about("#convoy: ExcludedIPs = local").contains("ExcludedIPs"));
        let peer = convoy_config::encode_key(&[3; 32]);
        let hub = convoy_config::encode_key(&[1; 32]);
        let direct = format!(
            "[Peer]\nPublicKey = {}\nAllowedIPs = 10.8.0.0/24\n#convoy: Direct = {} 10.8.0.3",
            *hub, *peer
        );
        assert!(about(&direct).contains("Direct has no effect"));
        assert!(about("#convoy: Forward = 8080:host:80").contains("--userspace"));
        assert!(warnings(&config(""), Purpose::Ports)[0].contains("DNS"));
        assert!(warnings(&config("#convoy: Nat = user"), Purpose::Gateway).is_empty());
    }
}
