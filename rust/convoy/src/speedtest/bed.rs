//! The bed of a speed test: this program's agents, and conditions on the veth.

use anyhow::Context as _;
use convoy_lab::loss;
use convoy_lab::measure::Bed;
use convoy_lab::wireguard::Implementation;

use super::args::SpeedtestArgs;
use super::inside;

/// The veth's name at both ends.
const VETH: &str = "veth0";

/// How the veth behaves; at first it takes everything and loses nothing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Conditions {
    /// Whether it takes GSO datagrams and TCP super-packets uncut, which no wire does.
    pub(super) veth_gso: bool,
    /// Packets that it drops, in percent.
    pub(super) loss_percent: f64,
}

/// Builds the namespaces and the tunnel that `args` ask for, with `daemon` at each end.
pub(super) fn build(args: &SpeedtestArgs, daemon: &Implementation) -> anyhow::Result<Bed> {
    let program = inside::program()?;
    let agent = |namespace: &_| inside::traffic_command(namespace, &program);
    Ok(Bed::with(daemon, agent, &args.tunnel())?)
}

/// Makes the veth behave so from now on.
pub(super) fn impose(bed: &Bed, conditions: Conditions) -> anyhow::Result<()> {
    for end in [&bed.tunnel.left, &bed.tunnel.right] {
        if !conditions.veth_gso {
            inside::cut_veth_batches(&end.namespace, VETH)?;
        }
        if conditions.loss_percent > 0.0 {
            loss::lose_arriving(&end.namespace, VETH, conditions.loss_percent).context("--loss")?;
        }
    }
    Ok(())
}

/// The daemon that `args` asks for, with `switches`.
pub(super) fn implementation(
    args: &SpeedtestArgs,
    switches: &[String],
) -> anyhow::Result<Implementation> {
    let daemon = Implementation::new(args.program()?);
    Ok(switches.iter().fold(daemon, Implementation::argument))
}
