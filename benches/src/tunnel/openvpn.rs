//! OpenVPN between the bed's namespaces: over UDP, with its default data cipher.
//!
//! Each end has its own certificate and knows the fingerprint of the other's (`--peer-fingerprint`,
//! OpenVPN 2.5 or newer). Static keys are deprecated, and a certificate authority would need one
//! more file.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use convoy_lab::Pid;
use convoy_lab::measure::Bed;
use convoy_lab::wireguard::{End, Underlay};
use tempfile::TempDir;

use super::Contender;
use crate::programs::{self, Started};

const INTERFACE: &str = "vpn0";
const PORT: &str = "1194";
const NEAR: &str = "10.7.0.1";
/// OpenVPN retries after a second, then after growing pauses.
const PATIENCE: Duration = Duration::from_secs(20);
const PROBE: Duration = Duration::from_millis(30);
/// Logged once the interface has its address and the other end has answered.
const SET_UP: &str = "Initialization Sequence Completed";
/// Logged if the kernel module carries the data.
const IN_KERNEL: &str = "DCO device";
/// The kernel modules: `ovpn` is in Linux since 6.16, the other one is out of tree.
const KERNEL_MODULES: [&str; 2] = ["ovpn", "ovpn-dco-v2"];

/// Both daemons, killed when dropped, and their certificates.
pub(super) struct OpenVpn {
    left: Started,
    right: Started,
    _certificates: TempDir,
}

impl OpenVpn {
    /// The right end's address in the tunnel.
    pub(super) const FAR: Ipv4Addr = Ipv4Addr::new(10, 7, 0, 2);

    /// Starts both ends and waits until packets pass.
    pub(super) fn start(bed: &mut Bed, contender: &Contender) -> Result<Self> {
        let certificates = tempfile::tempdir().context("make a directory for certificates")?;
        let directory = certificates.path();
        let (left, right) = (&bed.tunnel.left, &bed.tunnel.right);
        let (at_left, at_right) = (generate(directory, "left")?, generate(directory, "right")?);
        let (to, far) = (
            right.outer(Underlay::V4).ip().to_string(),
            Self::FAR.to_string(),
        );
        let [near, far] = [NEAR, &far];
        let waits = [
            "--tls-server",
            "--dh",
            "none",
            "--port",
            PORT,
            "--peer-fingerprint",
        ];
        let calls = [
            "--tls-client",
            "--nobind",
            "--remote",
            &to,
            PORT,
            "--peer-fingerprint",
        ];
        let start = |end: &End, role: &[&str], other: &str, addresses: [&str; 2]| {
            let [key, certificate] = files(directory, end.namespace.label());
            let mut command = end.namespace.command(&contender.program);
            command.args(["--dev", INTERFACE, "--dev-type", "tun", "--proto", "udp4"]);
            command.arg("--key").arg(key).arg("--cert").arg(certificate);
            command.args(contender.arguments.split_whitespace());
            command.args(role).arg(other).arg("--ifconfig");
            Started::new(command.args(addresses))
        };
        let mut openvpn = Self {
            right: start(right, &waits, &at_left, [far, near])?,
            left: start(left, &calls, &at_right, [near, far])?,
            _certificates: certificates,
        };
        // Until the daemon has set up its interface, the far end has no route.
        let passes = |left: &Started| {
            let mut ping = || bed.ends.ping(Self::FAR.into(), PROBE);
            left.log().contains(SET_UP) && ping().is_ok_and(|report| report.received > 0)
        };
        let up = openvpn.left.wait_until(PATIENCE, passes);
        up.with_context(|| format!("the other end: {}", openvpn.right.last_lines()))?;
        Ok(openvpn)
    }

    pub(super) fn check(&mut self) -> Result<()> {
        self.left.check()?;
        self.right.check()
    }

    pub(super) fn pids(&self) -> [Pid; 2] {
        [&self.left, &self.right].map(Started::pid)
    }

    /// Whether the kernel carries the data, and the processes only the keys.
    pub(super) fn is_in_kernel(&self) -> bool {
        self.left.log().contains(IN_KERNEL)
    }
}

/// Generates a key and a certificate called `name`; returns the fingerprint.
fn generate(directory: &Path, name: &str) -> Result<String> {
    let files = files(directory, name);
    programs::generate_certificate(&files, &format!("DNS:{name}"), None)?;
    let mut openssl = Command::new("openssl");
    openssl.args(["x509", "-noout", "-fingerprint", "-sha256", "-in"]);
    let printed = programs::output(openssl.arg(&files[1]))?;
    // `sha256 Fingerprint=AB:CD…`, in upper or lower case.
    let found = printed.trim().split_once('=');
    let (_, fingerprint) = found.context("openssl prints no fingerprint")?;
    Ok(fingerprint.to_owned())
}

fn files(directory: &Path, name: &str) -> [PathBuf; 2] {
    ["key", "crt"].map(|kind| directory.join(format!("{name}.{kind}")))
}

/// Loads the kernel module; returns modprobe(8)'s errors. It may also be built in.
pub(super) fn load_kernel_part() -> String {
    let refusals = KERNEL_MODULES.into_iter().filter_map(|module| {
        let mut modprobe = Command::new("/sbin/modprobe");
        match modprobe.arg(module).stdin(Stdio::null()).output() {
            Ok(output) if output.status.success() => None,
            Ok(output) => Some(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
            Err(error) => Some(format!("modprobe {module}: {error}")),
        }
    });
    refusals.collect::<Vec<_>>().join("; ")
}
