//! Finds what of this host, its kernel and its network stands in a tunnel's way, and what to do about it.
//!
//! `convoy doctor` calls `examine()` with the tunnel that it is asked about, and shows the [`Diagnosis`]; the program
//! runs `probes::run` when it is started by `probes::COMMAND`. It never changes the host, knows no command line, and
//! prints nothing. What this user may not see is a note, not a failure.
//!
//! Each check is a pure function from facts to findings, with a gatherer of the facts beside it:
//!
//! | check | facts |
//! |---|---|
//! | `kernel` | the release |
//! | `offload` | TUN offload, GSO and GRO, by trials in a namespace of their own (`probes`); the CPU |
//! | `engines`, `gateway` | the namespaces of `convoy exec` and of `Nat = user`, by trials |
//! | `buffers`, `reverse_path`, `profiling` | settings of the kernel |
//! | `dns`, `clock` | files |
//! | `others`, `firewall`, `legacy`, `ssh` | rtnetlink, nft, iptables-legacy-save, /proc/net/tcp |
//! | `nat` | this machine's addresses, and how STUN servers see its sockets; only in `examine_nat()` |
//! | `routes` | the host's routes and name servers, beside those of one tunnel |
//! | `subject`, `endpoints`, `handshake` | of one tunnel: its configuration and state, names, routes, a real handshake |

mod buffers;
mod clock;
mod dns;
mod endpoints;
mod engines;
mod finding;
mod firewall;
mod gateway;
mod handshake;
mod kernel;
mod legacy;
mod nat;
mod netlink;
mod offload;
mod others;
mod peers;
pub mod probes;
mod profiling;
mod reverse_path;
mod routes;
mod ssh;
mod subject;
mod sysctl;
mod text;

use std::process::Command;

use anyhow::Context;
use convoy_aead::Aead;
use convoy_config::Endpoint;
use nix::unistd::geteuid;
use tokio::runtime::Runtime;

pub use finding::{Diagnosis, Finding, SCHEMA, Severity};
pub use subject::{Planned, Standing, Subject};
pub use text::render;

use buffers::Buffers;
use clock::Clock;
use dns::{Resolution, Wanted};
use netlink::{Link, MAIN_TABLE, Netlink};
use others::Routing;
use profiling::{Profiling, installed};
use reverse_path::{Marking, ReversePath};

/// Kinds of interfaces that carry packets of others in UDP.
const OVERLAYS: [&str; 2] = ["vxlan", "geneve"];

/// The program that examines: abilities and tunnels that it has.
#[derive(Debug)]
pub struct Program {
    /// Makes the command that holds the namespaces of tunnels without root.
    pub holder: fn() -> Command,
    /// Interfaces of the tunnels that it knows.
    pub tunnels: Vec<String>,
    /// Whether it can profile a daemon.
    pub can_profile: bool,
}

/// Checks this host, and a tunnel if there is one.
///
/// # Errors
/// If rtnetlink fails, or the checks themselves cannot run.
pub fn examine(program: &Program, subject: Option<&Subject>) -> anyhow::Result<Diagnosis> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build()?;
    let mut findings = host(program, &runtime)?;
    findings.extend(network(program, &runtime, subject)?);
    if let Some(subject) = subject {
        findings.extend(tunnel(program, &runtime, subject)?);
    }
    if program.can_profile {
        findings.extend(profiling::judge(&Profiling::gather(geteuid().is_root())));
    }
    let name = subject.map(|subject| subject.name.to_string());
    Ok(Diagnosis::new(name, findings))
}

/// Checks the NAT in front of this machine by STUN servers: `servers`, then those of the tunnel's file.
///
/// # Errors
/// If rtnetlink fails.
pub fn examine_nat(subject: Option<&Subject>, servers: &[Endpoint]) -> anyhow::Result<Diagnosis> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build()?;
    let findings = runtime.block_on(nat::check(subject, servers))?;
    let name = subject.map(|subject| subject.name.to_string());
    Ok(Diagnosis::new(name, findings))
}

/// The kernel, the CPU and the clock.
fn host(program: &Program, runtime: &Runtime) -> anyhow::Result<Vec<Finding>> {
    let links = runtime.block_on(async { Netlink::open()?.links().await });
    let links = links.context("cannot list the network's interfaces")?;
    let has_overlay = links
        .iter()
        .any(|link| OVERLAYS.contains(&link.kind.as_str()));
    let mut findings = kernel::judge(kernel::running(), has_overlay);
    findings.extend(offload::judge(&runtime.block_on(probes::gather())));
    findings.push(offload::judge_aead(Aead::auto()));
    findings.push(engines::judge(&engines::gather((program.holder)())));
    let is_root = geteuid().is_root();
    findings.push(buffers::judge(
        runtime.block_on(async { Buffers::gather(is_root) }),
    ));
    findings.push(clock::judge(&Clock::gather()));
    Ok(findings)
}

/// Reports what others have set in the network, as far as it concerns a tunnel.
fn network(
    program: &Program,
    runtime: &Runtime,
    subject: Option<&Subject>,
) -> anyhow::Result<Vec<Finding>> {
    let (links, rules, routes, chains, legacy) = runtime.block_on(async {
        let netlink = Netlink::open()?;
        let (links, rules) = (netlink.links().await?, netlink::rules(&netlink).await);
        anyhow::Ok((
            links,
            rules,
            netlink::routes(&netlink).await,
            firewall::gather().await,
            legacy::gather().await,
        ))
    })?;
    let routing = subject.map_or(Routing::default(), Subject::routing);
    let mut ours = program.tunnels.clone();
    ours.extend(subject.map(|subject| subject.name.to_string()));
    let mut findings = dns::judge(&Resolution::gather(), &wanted(subject));
    findings.push(others::judge_links(&links, &ours));
    findings.extend(others::judge_rules(&rules, &routes, routing));
    let excluded = subject.map(Subject::excluded).unwrap_or_default();
    findings.extend(others::judge_tables(&rules, &routes, routing, &excluded));
    findings.extend(ssh::judge(&ssh::gather(), &routes, routing, &excluded));
    if let Some(subject) = subject {
        let closed = firewall::switches(&chains, &ours);
        let own = [subject.name.to_string()];
        let vpns: Vec<_> = others::vpns(&links, &own)
            .map(|link| link.name.clone())
            .collect();
        findings.extend(firewall::judge_beside(&own[0], &closed, &vpns));
    }
    findings.push(others::judge_routes(&routes, &links, routing));
    findings.push(firewall::judge(&chains));
    findings.extend(legacy::judge(&legacy));
    let defaults = routes
        .iter()
        .filter(|route| route.table == MAIN_TABLE && route.to.is_default() && !route.to.is_ipv6());
    let default = defaults
        .filter_map(|route| device(&links, route.device?))
        .next();
    let marking = subject.map_or(Marking::None, Subject::marking);
    findings
        .extend(default.map(|device| reverse_path::judge(&ReversePath::gather(device), marking)));
    Ok(findings)
}

fn device(links: &[Link], index: u32) -> Option<&str> {
    let link = links.iter().find(|link| link.index == index);
    link.map(|link| link.name.as_str())
}

fn wanted(subject: Option<&Subject>) -> Wanted {
    use convoy_report::Condition::Up;
    let Some(config) = subject.and_then(Subject::config) else {
        return Wanted::default();
    };
    let status = subject.and_then(Subject::status);
    Wanted {
        servers: config
            .interface
            .dns_servers
            .iter()
            .map(|it| it.value)
            .collect(),
        is_in_effect: status.is_some_and(|status| status.state == Up),
    }
}

/// One tunnel.
fn tunnel(program: &Program, runtime: &Runtime, subject: &Subject) -> anyhow::Result<Vec<Finding>> {
    let mut findings = subject::judge_config(subject);
    findings.extend(subject::judge_standing(subject));
    let forwards = sysctl::number::<u8>("net.ipv4.ip_forward") == Some(1);
    findings.extend(reverse_path::judge_forwarding(&subject.hooks(), forwards));
    if subject.has_kill_switch() {
        findings.push(firewall::judge_kill_switch(installed("nft").is_some()));
    }
    if subject.status().is_some() {
        findings.push(others::judge_owner(&subject.name, subject.signs));
        let links = runtime.block_on(async { Netlink::open()?.links().await })?;
        let own = links.iter().find(|link| link.name == subject.name.as_str());
        findings.extend(own.map(|link| buffers::judge_queue(&link.name, link.queue)));
    }
    if let Some(config) = subject.config().filter(|it| gateway::is_wanted(it)) {
        findings.extend(gateway::judge(&gateway::Trials::gather(
            (program.holder)(),
            config,
        )));
    }
    match &subject.planned {
        Some(planned) => {
            findings.extend(routes::judge_plan(planned, &subject.path));
            findings.extend(peers::check(runtime, subject, planned)?);
        }
        None => findings.extend(
            subject
                .status()
                .map(handshake::judge_status)
                .unwrap_or_default(),
        ),
    }
    Ok(findings)
}
