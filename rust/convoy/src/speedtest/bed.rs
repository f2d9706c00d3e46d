//! Where the tunnel is measured.
//!
//! ```text
//!      left                                                  right
//!  198.18.0.1 wg0 ═══════════════ tunnel ═══════════════ wg0 198.18.0.2
//!  192.0.2.1 veth0 ─────────────── veth ─────────────── veth0 192.0.2.2
//!  daemon, agent, prober                               daemon, agent with echo
//! ```

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use convoy_lab::traffic::Agent;
use convoy_lab::{Lab, Namespace};

use super::daemon::{Daemon, INTERFACE};
use super::ends::Ends;
use super::uapi::Pairing;
use super::{inside, link_loss};

/// The right end's address on the veth: the way without a tunnel.
pub(super) const BARE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));
/// The right end's address in the tunnel.
pub(super) const TUNNELLED: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 18, 0, 2));
pub(super) const VETH: &str = "veth0";
pub(super) const VETH_MTU: u32 = 1_500;
pub(super) const TUNNEL_MTU: u32 = 1_420;

const LEFT_VETH: &str = "192.0.2.1/24";
const RIGHT_VETH: &str = "192.0.2.2/24";
const LEFT_ENDPOINT: SocketAddr = endpoint(1);
const RIGHT_ENDPOINT: SocketAddr = endpoint(2);
const PORT: u16 = 51_820;
const LEFT_TUNNEL: &str = "198.18.0.1/24";
const RIGHT_TUNNEL: &str = "198.18.0.2/24";

/// Alice's and Bob's of RFC 7748, section 6.1: known to all, and good enough for a tunnel between
/// two namespaces that nothing else reaches.
const LEFT_PRIVATE: &str = "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a";
const LEFT_PUBLIC: &str = "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a";
const RIGHT_PRIVATE: &str = "5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb";
const RIGHT_PUBLIC: &str = "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f";

const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(8);
const HANDSHAKE_PROBE: Duration = Duration::from_millis(30);

/// Two namespaces with a veth between them and traffic agents inside.
pub(super) struct Bed {
    pub(super) ends: Ends,
    left: Namespace,
    right: Namespace,
    program: PathBuf,
    // Last: everything inside ends with it.
    _lab: Lab,
}

/// How the veth behaves.
#[derive(Debug, Clone, Copy)]
pub(super) struct Conditions {
    /// Whether it takes a GSO datagram uncut, which no wire does.
    pub(super) veth_gso: bool,
    /// Datagrams of the tunnel that it drops, in percent.
    pub(super) loss_percent: f64,
}

impl Bed {
    /// Builds the namespaces; the daemons will run `program`.
    pub(super) fn new(conditions: Conditions, program: PathBuf) -> anyhow::Result<Self> {
        let lab = Lab::new()?;
        let left = lab.namespace("left")?;
        let right = lab.namespace("right")?;
        let (near, far) = ([LEFT_VETH], [RIGHT_VETH]);
        lab.veth(&left, VETH, &near, &right, VETH, &far, VETH_MTU)?;
        for namespace in [&left, &right] {
            if !conditions.veth_gso {
                inside::cut_veth_datagrams(namespace, VETH)?;
            }
            if conditions.loss_percent > 0.0 {
                link_loss::drop_datagrams(namespace, VETH, PORT, conditions.loss_percent)?;
            }
        }
        let ends = Ends::new(agent(&left)?, agent(&left)?, agent(&right)?)?;
        Ok(Self {
            ends,
            left,
            right,
            program,
            _lab: lab,
        })
    }

    /// Starts a daemon at each end and waits until packets pass.
    pub(super) fn tunnel(&mut self, switches: &[String]) -> anyhow::Result<Tunnel> {
        let left = side(&self.left, &self.program, switches, LEFT_TUNNEL, &LEFT)?;
        let right = side(&self.right, &self.program, switches, RIGHT_TUNNEL, &RIGHT)?;
        let mut tunnel = Tunnel { left, right };
        let deadline = Instant::now() + HANDSHAKE_PATIENCE;
        while self.ends.ping(TUNNELLED, HANDSHAKE_PROBE)?.received == 0 {
            tunnel.check()?;
            if Instant::now() > deadline {
                bail!(
                    "no packet passed the tunnel within {HANDSHAKE_PATIENCE:?}\n{}{}",
                    tunnel.left.described(),
                    tunnel.right.described()
                );
            }
        }
        Ok(tunnel)
    }
}

/// Two daemons that carry packets for each other; dropping it ends them.
#[derive(Debug)]
pub(super) struct Tunnel {
    pub(super) left: Daemon,
    pub(super) right: Daemon,
}

impl Tunnel {
    /// Fails, with the end of its log, when a daemon has ended.
    pub(super) fn check(&mut self) -> anyhow::Result<()> {
        self.left.check()?;
        self.right.check()
    }
}

const LEFT: Pairing = Pairing {
    private_key: LEFT_PRIVATE,
    listen_port: PORT,
    peer: RIGHT_PUBLIC,
    endpoint: RIGHT_ENDPOINT,
    allowed_ip: "198.18.0.2/32",
};
const RIGHT: Pairing = Pairing {
    private_key: RIGHT_PRIVATE,
    listen_port: PORT,
    peer: LEFT_PUBLIC,
    endpoint: LEFT_ENDPOINT,
    allowed_ip: "198.18.0.1/32",
};

const fn endpoint(host: u8) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, host)), PORT)
}

fn side(
    namespace: &Namespace,
    program: &Path,
    switches: &[String],
    address: &str,
    pairing: &Pairing,
) -> anyhow::Result<Daemon> {
    let daemon = Daemon::start(namespace, program, switches)?;
    daemon.configure(pairing)?;
    let link = namespace.link();
    link.set_mtu(INTERFACE, TUNNEL_MTU)?;
    link.add_address(INTERFACE, address)?;
    link.set_up(INTERFACE)?;
    Ok(daemon)
}

fn agent(namespace: &Namespace) -> anyhow::Result<Agent> {
    let child = inside::traffic_command(namespace)?
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("start a traffic agent in {}", namespace.label()))?;
    Ok(Agent::from_child(child)?)
}
