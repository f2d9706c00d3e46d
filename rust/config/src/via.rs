//! The tunnel through which another goes: its file, and whether the two fit each other.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use convoy_types::InterfaceName;

use crate::{
    config::{Config, Host, Interface, Via, overhead},
    loaded::Loaded,
    located::{Located, Place},
    report::{Diagnostic, Report},
};

/// Most peers of a tunnel through which another goes.
pub const MAX_OUTER_PEERS: usize = 64;
/// Most prefixes of its peers, all together.
pub const MAX_OUTER_PREFIXES: usize = 512;

/// Reads the file of the tunnel through which `loaded`, the file at `path`, goes.
pub(crate) fn complete(
    path: &Path,
    loaded: Loaded,
    read: impl FnOnce(&Path) -> Result<Loaded, Report>,
) -> Result<Loaded, Report> {
    let Loaded {
        mut config,
        warnings: mut report,
    } = loaded;
    let Some(via) = config.interface.via.clone() else {
        return Ok(Loaded {
            config,
            warnings: report,
        });
    };
    let other = path_of(&via, path);
    match InterfaceName::of_file(&other) {
        Err(error) => {
            let title = "`Via` is no name of a tunnel";
            report.push(Diagnostic::error(title, via.at, error.to_string()));
            return Err(report);
        }
        Ok(name) if name == config.name => {
            let title = "a tunnel cannot go through itself";
            report.push(Diagnostic::error(title, via.at, "names this tunnel"));
            return Err(report);
        }
        Ok(_) => {}
    }
    let shift = report.files.0.len();
    match read(&other) {
        Err(errors) => {
            let title = "the tunnel that `Via` names is not valid";
            report.push(Diagnostic::error(title, via.at, "see below"));
            report.absorb(errors);
        }
        Ok(outer) => {
            report.absorb(outer.warnings);
            let pair = Pair {
                inner: &config,
                outer: &outer.config,
                via: via.at,
                shift,
            };
            pair.check(&mut report);
            config.via = Some(Arc::new(Via {
                path: other,
                config: outer.config,
            }));
        }
    }
    match report.has_errors() {
        true => Err(report),
        false => Ok(Loaded {
            config,
            warnings: report,
        }),
    }
}

/// The file that `Via` names: `NAME.conf` beside the file, or a path that begins there.
fn path_of(via: &Path, file: &Path) -> PathBuf {
    let directory = file.parent().unwrap_or(Path::new(""));
    let text = via.to_str().unwrap_or_default();
    let is_name = text.parse::<InterfaceName>().is_ok() && !text.ends_with(".conf");
    match is_name {
        true => directory.join(format!("{text}.conf")),
        false => directory.join(via),
    }
}

/// Two tunnels, one through the other.
struct Pair<'a> {
    inner: &'a Config,
    outer: &'a Config,
    /// The key.
    via: Place,
    /// Number of the outer one's first file among those of the report.
    shift: usize,
}

impl Pair<'_> {
    fn check(&self, report: &mut Report) {
        if let Some(third) = &self.outer.interface.via {
            let title = "`Via` names a tunnel that goes through another itself";
            let error = Diagnostic::error(title, self.via, "this one");
            let error = error.also(self.there(third.at), "goes through another");
            report.push(error.help("a tunnel goes through one other at most"));
            return;
        }
        self.check_usable(report);
        self.check_keys(report);
        self.check_endpoints(report);
        self.refuse_direct_paths(report);
        self.check_mtu(report);
        self.warn_of_idle_keys(report);
    }

    /// Refuses an outer tunnel that could carry nothing.
    fn check_usable(&self, report: &mut Report) {
        let it = &self.outer.interface;
        let has_endpoint = self.outer.peers.iter().any(|it| !it.endpoints.is_empty());
        let prefixes = self.outer.peers.iter().map(|it| it.allowed_ips.len());
        let missing = match () {
            () if it.private_key.is_none() => "it has no `PrivateKey` in the file or in a key file",
            () if it.addresses.is_empty() => "it has no `Address`",
            () if !has_endpoint => "none of its peers has an `Endpoint`",
            () if self.outer.peers.len() > MAX_OUTER_PEERS => {
                &format!("it has more than {MAX_OUTER_PEERS} peers")
            }
            () if prefixes.sum::<usize>() > MAX_OUTER_PREFIXES => {
                &format!("it has more than {MAX_OUTER_PREFIXES} `AllowedIPs`")
            }
            () => return,
        };
        let title = "no tunnel can go through the one that `Via` names";
        report.push(Diagnostic::error(title, self.via, missing));
    }

    /// Refuses a peer of both: its handshakes would be told of the wrong tunnel.
    fn check_keys(&self, report: &mut Report) {
        for peer in &self.inner.peers {
            let mut others = self.outer.peers.iter();
            let key = &peer.public_key;
            if let Some(same) = others.find(|it| it.public_key.value == key.value) {
                let title = "both tunnels have a peer with the same public key";
                let error = Diagnostic::error(title, key.at, "here");
                report.push(error.also(self.there(same.public_key.at), "and here"));
            }
        }
    }

    /// Refuses endpoints that the outer tunnel does not reach.
    fn check_endpoints(&self, report: &mut Report) {
        for endpoint in self.inner.peers.iter().flat_map(|it| &it.endpoints) {
            let address = match &endpoint.value.host {
                Host::Ip(address) => *address,
                // Known only once it is looked up.
                Host::Name(_) => continue,
                Host::Zoned(..) => {
                    let title = "an endpoint on a local link is not reached through another tunnel";
                    let error = Diagnostic::error(title, endpoint.at, "this endpoint");
                    report.push(error.also(self.via, "goes through another"));
                    continue;
                }
            };
            let own = &self.outer.interface.addresses;
            let mut same_family = own.iter().filter(|it| it.is_ipv6() == address.is_ipv6());
            if let (None, Some(other)) = (same_family.next(), own.first()) {
                let family = if address.is_ipv6() { "IPv6" } else { "IPv4" };
                let title =
                    format!("the outer tunnel has no {family} `Address` to reach {address}");
                let error = Diagnostic::error(title, endpoint.at, "this endpoint");
                report.push(error.also(self.there(other.at), "its addresses"));
                continue;
            }
            let allowed = || self.outer.peers.iter().flat_map(|it| &it.allowed_ips);
            if !allowed().any(|it| it.value.holds(address)) {
                let title =
                    format!("`AllowedIPs` of the outer tunnel do not hold the endpoint {address}");
                let error = Diagnostic::error(title, endpoint.at, "this endpoint");
                let error = match allowed().next() {
                    Some(first) => error.also(self.there(first.at), "its first prefix"),
                    None => error.also(self.via, "has none"),
                };
                report.push(error.help(format!("add {address} to them")));
            }
        }
    }

    /// Refuses direct paths: they would lead past the outer tunnel.
    fn refuse_direct_paths(&self, report: &mut Report) {
        let it = &self.inner.interface;
        let directs = self.inner.peers.iter().flat_map(|peer| &peer.directs);
        let directs = directs.map(|direct| ("Direct", direct.at));
        let servers = it.stun.iter().map(|server| ("Stun", server.at));
        let mapped = it.port_map.iter().filter(|it| it.value);
        let mapped = mapped.map(|it| ("PortMap", it.at));
        for (key, at) in directs.chain(servers).chain(mapped) {
            let title = format!("`{key}` cannot be combined with `Via`");
            let error = Diagnostic::error(title, at, "it would lead past the outer tunnel");
            report.push(error.also(self.via, "goes through another"));
        }
        for turn in &it.turns {
            let title = "`Turn` belongs in the outer tunnel's file";
            let error = Diagnostic::error(title, turn.at, "only the first hop is on the network");
            report.push(error.also(self.via, "goes through another"));
        }
    }

    fn check_mtu(&self, report: &mut Report) {
        let mtu = |it: &Interface| it.mtu.clone();
        let (Some(inner), Some(outer)) = (mtu(&self.inner.interface), mtu(&self.outer.interface))
        else {
            return;
        };
        let most = outer.value.saturating_sub(overhead(&self.inner.peers));
        if inner.value > most {
            let title = "the MTU is larger than what the outer tunnel carries";
            let warning = Diagnostic::warning(title, inner.at, format!("at most {most} fits"));
            let warning = warning.also(self.there(outer.at), "into this one");
            report.push(warning.help("leave `MTU` out: it is chosen to fit"));
        }
    }

    /// Tells once which keys of the outer tunnel have no effect here.
    fn warn_of_idle_keys(&self, report: &mut Report) {
        fn at<T>(key: &'static str, it: &Option<Located<T>>) -> Option<(&'static str, Place)> {
            it.as_ref().map(|it| (key, it.at))
        }
        fn first<T>(key: &'static str, all: &[Located<T>]) -> Option<(&'static str, Place)> {
            all.first().map(|it| (key, it.at))
        }
        let it = &self.outer.interface;
        let directs = self.outer.peers.iter().flat_map(|peer| &peer.directs);
        let idle = [
            at("ListenPort", &it.listen_port),
            at("FwMark", &it.fwmark),
            first("DNS", &it.dns_servers).or(first("DNS", &it.dns_domains)),
            at("Table", &it.table),
            first("PreUp", &it.pre_up),
            first("PostUp", &it.post_up),
            first("PreDown", &it.pre_down),
            first("PostDown", &it.post_down),
            at("SaveConfig", &it.save_config),
            at("KillSwitch", &it.kill_switch),
            at("AllowLAN", &it.allow_lan),
            first("ExcludedIPs", &it.excluded_ips).or(at("ExcludedIPs", &it.exclude_local)),
            at("Nat", &it.nat.is_on),
            first("Stun", &it.stun),
            at("PortMap", &it.port_map),
            at("PortForward", &it.port_forward),
            first("PostPortForward", &it.post_port_forward),
            directs.map(|it| ("Direct", it.at)).next(),
        ];
        let idle: Vec<_> = idle.into_iter().flatten().collect();
        let Some((_, place)) = idle.first() else {
            return;
        };
        let names: Vec<_> = idle.iter().map(|(key, _)| format!("`{key}`")).collect();
        let verb = if idle.len() == 1 { "has" } else { "have" };
        let title = format!("{} {verb} no effect in an outer tunnel", names.join(", "));
        let warning = Diagnostic::warning(title, self.there(*place), "");
        let warning = warning.also(self.via, "goes through it");
        report.push(warning.help("what is to apply belongs into this file"));
    }

    /// A place in the outer tunnel's files, among those of the report.
    fn there(&self, at: Place) -> Place {
        at.shifted(self.shift)
    }
}

#[cfg(test)]
mod tests;
