//! The NAT in front of this machine, by how STUN servers see its UDP sockets (RFC 4787, RFC 8489).
//!
//! 1. [`servers`] lists the servers to ask: those of the command line, then those of the tunnel's file.
//! 2. [`gather`] looks them up, and `ask` asks all of them over one fresh socket of each family; the router is asked
//!    whether it forwards ports.
//! 3. `judge` turns the answers into findings.

mod ask;
mod facts;
mod judge;

use std::net::SocketAddr;

use convoy_config::Endpoint;
use convoy_stun::MAX_SERVERS;
use futures_util::future::{join, join_all};
use nix::unistd::geteuid;

use crate::{
    endpoints::{addresses_of, names_outside, path},
    finding::Finding,
    netlink::Netlink,
    others::VPN_KINDS,
    subject::{Standing, Subject, judge_config},
};
use facts::{Asked, Facts};

/// Checks the NAT in front of this machine.
pub(super) async fn check(
    subject: Option<&Subject>,
    more: &[Endpoint],
) -> anyhow::Result<Vec<Finding>> {
    let mut findings = Vec::new();
    if let Some(subject) = subject.filter(|it| it.planned.is_none()) {
        findings.extend(judge_config(subject));
    }
    let is_root = geteuid().is_root();
    let mark = subject.and_then(mark).filter(|_| is_root);
    let servers = servers(subject, more);
    let mut facts = Facts {
        own: convoy_host::own_addresses(&Netlink::open()?).await?,
        ..Facts::default()
    };
    // Without the mark, it would be the tunnel's other end that the servers see.
    let kept_in = subject.filter(|it| it.mark().is_some() && !is_root);
    if let Some(tunnel) = kept_in {
        findings.push(judge::own(&facts));
        findings.push(judge::kept_in(tunnel.name.as_str()));
        return Ok(findings);
    }
    let probe = convoy_portmap::probe(mark);
    let gathered = gather(&mut facts, subject, &servers, mark);
    let (gathered, router) = join(gathered, probe).await;
    gathered?;
    facts.router = Some(router);
    findings.extend(judge::judge(&facts));
    Ok(findings)
}

/// Returns the mark that keeps datagrams out of the tunnel, or lets them pass its kill switch while it is down.
fn mark(subject: &Subject) -> Option<u32> {
    let planned = subject.planned.as_ref();
    match subject.standing {
        Standing::Up(_) => subject.mark(),
        _ => planned.and_then(|planned| planned.probing_mark),
    }
}

/// Lists the servers, each one once.
fn servers(subject: Option<&Subject>, more: &[Endpoint]) -> Vec<Endpoint> {
    let config = subject.and_then(Subject::config);
    let of_file = config.into_iter().flat_map(|it| &it.interface.stun);
    let mut servers: Vec<Endpoint> = Vec::new();
    for server in more.iter().chain(of_file.map(|it| &it.value)) {
        if !servers.contains(server) && servers.len() < MAX_SERVERS {
            servers.push(server.clone());
        }
    }
    servers
}

/// Asks the servers: of each one, the first address of each family.
async fn gather(
    facts: &mut Facts,
    subject: Option<&Subject>,
    servers: &[Endpoint],
    mark: Option<u32>,
) -> anyhow::Result<()> {
    let names = names_outside(subject.and_then(Subject::config), mark);
    let found = servers.iter().map(|server| addresses_of(&names, server));
    let mut targets: Vec<(String, SocketAddr)> = Vec::new();
    for (server, found) in servers.iter().zip(join_all(found).await) {
        match found {
            Err(reason) => facts.unresolved.push((server.to_string(), reason)),
            Ok(found) => {
                let first = |ipv6| found.iter().find(|it| it.is_ipv6() == ipv6);
                let first = [false, true].into_iter().filter_map(first);
                targets.extend(first.map(|address| (server.to_string(), *address)));
            }
        }
    }
    let mut seen = Vec::with_capacity(targets.len());
    targets.retain(|(_, address)| {
        let is_new = !seen.contains(address);
        seen.push(*address);
        is_new
    });
    facts.tunnels = tunnels(&seen, mark.unwrap_or(0)).await?;
    let addresses: Vec<_> = targets.iter().map(|(_, address)| *address).collect();
    let answers = ask::ask(&addresses, mark).await;
    facts.asked = targets
        .into_iter()
        .zip(answers)
        .map(|((server, address), answer)| Asked {
            server,
            address,
            answer,
        })
        .collect();
    Ok(())
}

/// Lists the tunnel interfaces on the routes to these addresses.
async fn tunnels(to: &[SocketAddr], mark: u32) -> anyhow::Result<Vec<String>> {
    let netlink = Netlink::open()?;
    let links = netlink.links().await?;
    let mut found: Vec<String> = Vec::new();
    for address in to {
        let Some((link, _)) = path(&netlink, &links, address.ip(), mark).await.by else {
            continue;
        };
        if VPN_KINDS.contains(&link.kind.as_str()) && !found.contains(&link.name) {
            found.push(link.name.clone());
        }
    }
    Ok(found)
}
