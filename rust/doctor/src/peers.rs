//! The peers of a tunnel: names, routes, MTU, handshakes.

use std::net::IpAddr;

use convoy_config::Routed;
use nix::unistd::geteuid;
use tokio::runtime::Runtime;

use super::{
    endpoints::{self, Found, MAX_PEERS},
    finding::Finding,
    handshake::{self, Callee},
    netlink::Netlink,
    routes,
    subject::{self, Planned, Standing, Subject},
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
    let callees: Vec<_> = peers
        .iter()
        .map(|peer| {
            let name = subject::name_of(peer);
            let its = found.iter().filter(|it| it.peer == name);
            let addresses = its.flat_map(|it| it.addresses.iter().flatten());
            Callee {
                peer,
                addresses: addresses.copied().collect(),
            }
        })
        .collect();
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
