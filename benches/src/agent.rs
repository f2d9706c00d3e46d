//! Namespaces with cables between them, and this program as the traffic agent that sends and receives inside.

use std::{fs, net::Ipv4Addr, process::Command};

use anyhow::{Context as _, Result};
use convoy_lab::measure::Ends;
use convoy_lab::traffic::Agent;
use convoy_lab::{Lab, LabError, Namespace};

/// The hidden argument that turns this program into a traffic agent.
pub(crate) const AGENT: &str = "traffic-agent";
/// The interface at both ends of a tunnel, as the lab names it.
pub(crate) const TUNNEL: &str = "wg0";
/// MTU of Ethernet.
pub(crate) const CABLE_MTU: u32 = 1_500;
/// WireGuard's usual MTU over Ethernet.
pub(crate) const TUNNEL_MTU: u32 = 1_420;

/// This program as a traffic agent inside `namespace`.
pub(crate) fn agent(namespace: &Namespace) -> Command {
    let mut command = namespace.command("/proc/self/exe");
    command.arg(AGENT);
    command
}

/// Starts the agents of both ends of a path.
pub(crate) fn ends(near: &Namespace, far: &Namespace) -> Result<Ends, LabError> {
    let start = |namespace| Agent::spawn(agent(namespace));
    Ends::new(start(near)?, start(near)?, start(far)?)
}

/// Connects two namespaces by a veth, with this interface and this address of a /24 at each end.
pub(crate) fn connect(
    lab: &Lab,
    (a, a_name, a_address): (&Namespace, &str, Ipv4Addr),
    (b, b_name, b_address): (&Namespace, &str, Ipv4Addr),
) -> Result<(), LabError> {
    let (at_a, at_b) = (format!("{a_address}/24"), format!("{b_address}/24"));
    lab.veth(a, a_name, &[&at_a], b, b_name, &[&at_b], CABLE_MTU)
}

/// Writes a setting below `/proc/sys/net`, where every thread sees those of its own namespace.
pub(crate) fn set(namespace: &Namespace, setting: &str, value: &str) -> Result<()> {
    let file = format!("/proc/sys/net/{setting}");
    let written = namespace.run(|| fs::write(&file, value))?;
    written.with_context(|| format!("write {file}"))
}
