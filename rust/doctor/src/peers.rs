//! The peers of a tunnel: names, routes, MTU, handshakes.

use std::net::IpAddr;

use convoy_config::{Peer, Routed};
use nix::unistd::geteuid;
use tokio::runtime::Runtime;

use super::{
    endpoints::{self, Found, MAX_PEERS},
    finding::Finding,
    handshake::{self, Callee},
    netlink::Netlink,
    routes,
    subject::{Planned, Standing, Subject},
};

/// Checks the peers of the tunnel's configuration.
pub(super) fn check(
    runtime: &Runtime,
    subject: &Subject,
    planned: &Planned,
) -> anyhow::Result<Vec<Finding>> {
    let config = &planned.config;
    let mut findings = Vec::new();
    // Sockets can bear a mark only as root; without one, a tunnel that is up answers the questions itself.
    let mark = subject.mark().filter(|_| geteuid().is_root());
    let found = match subject.status() {
        Some(_) if mark.is_none() && subject.mark().is_some() => Vec::new(),
        _ => runtime.block_on(endpoints::look_up(config, mark)),
    };
    findings.extend(found.iter().filter_map(endpoints::judge_look_up));
    let mut hosts: Vec<IpAddr> = Vec::new();
    for address in found.iter().flat_map(|it| it.addresses.iter().flatten()) {
        if !hosts.contains(&address.ip()) {
            hosts.push(address.ip());
        }
    }
    findings.extend(runtime.block_on(paths(subject, planned, &hosts))?);
    if let Some(status) = subject.status() {
        findings.extend(handshake::judge_status(status));
        return Ok(findings);
    }
    findings.extend(handshake::judge_without_endpoint(config));
    findings.extend(call(runtime, subject, planned, &found)?);
    Ok(findings)
}

async fn paths(
    subject: &Subject,
    planned: &Planned,
    hosts: &[IpAddr],
) -> anyhow::Result<Vec<Finding>> {
    let config = &planned.config;
    let netlink = Netlink::open()?;
    let links = netlink.links().await?;
    let mtu = subject.status().and_then(|status| status.mtu);
    let mtu = mtu.or(config.interface.mtu.as_ref().map(|mtu| mtu.value.into()));
    let mark = subject.mark().or(planned.mark).unwrap_or(0);
    let mut findings = Vec::new();
    let routed = Routed::new(config);
    for host in hosts {
        let path = endpoints::path(&netlink, &links, *host, mark).await;
        findings.push(endpoints::judge_route(&path, subject.name.as_str()));
        findings.extend(endpoints::judge_mtu(&path, mtu));
        findings.extend(routes::judge_endpoint(config, &routed, *host));
    }
    Ok(findings)
}

/// Shakes hands with the peers of a tunnel that is not up.
fn call(
    runtime: &Runtime,
    subject: &Subject,
    planned: &Planned,
    found: &[Found],
) -> anyhow::Result<Vec<Finding>> {
    let config = &planned.config;
    const ID: &str = "handshake";
    let peers = config
        .peers
        .iter()
        .filter(|peer| !peer.endpoints.is_empty());
    let peers: Vec<_> = peers.take(MAX_PEERS).collect();
    let key = config.interface.private_key.as_ref();
    let (Some(key), false) = (key, peers.is_empty()) else {
        return Ok(Vec::new());
    };
    if !matches!(subject.standing, Standing::Down) {
        // The peers would send to whoever has shaken hands last.
        let what = "No handshake was tried, as that would take the peers away from what uses this interface.";
        let fix = format!("`wg show {}` tells when the last one was.", subject.name);
        return Ok(vec![Finding::note(ID, what, fix)]);
    }
    let callees = callees(&peers, found);
    // Nobody else may set one; without it, the kill switch keeps the handshake in.
    let mark = planned.probing_mark.filter(|_| geteuid().is_root());
    let answered = handshake::shake_hands(runtime, &key.value, &callees, mark);
    Ok(match answered {
        Ok(answered) => handshake::judge(&key.value, &callees, &answered),
        Err(error) => {
            let what = format!("No handshake could be tried: {error:#}.");
            vec![Finding::note(ID, what, "Run `convoy doctor` as root.")]
        }
    })
}

/// Each peer with the addresses of its own endpoints: friendly names may be the same.
fn callees<'a>(peers: &[&'a Peer], found: &[Found]) -> Vec<Callee<'a>> {
    let callee = |peer: &&'a Peer| {
        let its = found.iter().filter(|it| it.key == peer.public_key.value);
        let addresses = its.flat_map(|it| it.addresses.iter().flatten());
        Callee {
            peer,
            addresses: addresses.copied().collect(),
        }
    };
    peers.iter().map(callee).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_of_one_name_are_called_at_their_own_addresses() {
        let peer = |key: char, endpoint: &str| {
            let key = key.to_string().repeat(42);
            format!(
                "[Peer]\n# friendly_name = Office\nPublicKey = {key}A=\nEndpoint = {endpoint}\n"
            )
        };
        let text = [
            "[Interface]\n",
            &peer('B', "192.0.2.1:1"),
            &peer('C', "192.0.2.2:2"),
        ];
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("wg0.conf");
        std::fs::write(&path, text.concat()).unwrap();
        let config = convoy_config::read(&path).unwrap().config;
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().build().unwrap();
        let found = runtime.block_on(endpoints::look_up(&config, None));
        let peers: Vec<_> = config.peers.iter().collect();
        let called = callees(&peers, &found);
        let called: Vec<_> = called.iter().map(|it| it.addresses.as_slice()).collect();
        let [first, second] = ["192.0.2.1:1", "192.0.2.2:2"].map(|it| [it.parse().unwrap()]);
        assert_eq!(called, [&first[..], &second[..]]);
    }
}
