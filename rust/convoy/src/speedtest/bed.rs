//! The bed of a speed test: this program's agents, and conditions on the veth.

use anyhow::Context as _;
use convoy_lab::drop_datagrams;
use convoy_lab::measure::Bed;
use convoy_lab::wireguard::{End, Implementation};

use super::args::SpeedtestArgs;
use super::inside;

/// The veth's name at both ends.
const VETH: &str = "veth0";

/// How the veth behaves.
#[derive(Debug, Clone, Copy)]
pub(super) struct Conditions {
    /// Whether it takes a GSO datagram uncut, which no wire does.
    pub(super) veth_gso: bool,
    /// Datagrams of the tunnel that it drops, in percent.
    pub(super) loss_percent: f64,
}

/// Builds the namespaces and starts `daemon` at each end.
pub(super) fn build(conditions: Conditions, daemon: &Implementation) -> anyhow::Result<Bed> {
    let program = inside::program()?;
    let agent = |namespace: &_| inside::traffic_command(namespace, &program);
    let bed = Bed::new(daemon, agent)?;
    for end in [&bed.tunnel.left, &bed.tunnel.right] {
        apply(conditions, end)?;
    }
    Ok(bed)
}

/// The daemon that `args` asks for, with `switches`.
pub(super) fn implementation(
    args: &SpeedtestArgs,
    switches: &[String],
) -> anyhow::Result<Implementation> {
    let daemon = Implementation::new(args.program()?);
    Ok(switches.iter().fold(daemon, Implementation::argument))
}

fn apply(conditions: Conditions, end: &End) -> anyhow::Result<()> {
    let namespace = &end.namespace;
    if !conditions.veth_gso {
        inside::cut_veth_datagrams(namespace, VETH)?;
    }
    if conditions.loss_percent > 0.0 {
        let port = end.config.listen_port;
        drop_datagrams(namespace, VETH, port, conditions.loss_percent).context("--loss")?;
    }
    Ok(())
}
