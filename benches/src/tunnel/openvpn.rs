//! OpenVPN between the bed's namespaces: over UDP, with its default data cipher.
//!
//! Each end has its own certificate and knows the fingerprint of the other's (`--peer-fingerprint`,
//! OpenVPN 2.5 or newer). Static keys are deprecated, and a certificate authority would need one
//! more file.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use convoy_lab::measure::{Bed, Ends};
use convoy_lab::wireguard::Underlay;
use convoy_lab::{Namespace, Pid};
use tempfile::TempDir;

use super::Contender;
use crate::programs::{self, Started};

const INTERFACE: &str = "vpn0";
const PORT: &str = "1194";
const NEAR: &str = "10.7.0.1";
/// OpenVPN retries after a second, then after growing pauses.
const PATIENCE: Duration = Duration::from_secs(20);
const PROBE: Duration = Duration::from_millis(30);
const PAUSE: Duration = Duration::from_millis(20);
/// Logged once the interface has its address and the other end has answered.
const SET_UP: &str = "Initialization Sequence Completed";
/// Logged if the kernel module carries the data.
const IN_KERNEL: &str = "DCO device";
/// The kernel modules: `ovpn` is in Linux since 6.16, the other one is out of tree.
const KERNEL_MODULES: [&str; 2] = ["ovpn", "ovpn-dco-v2"];

/// A certificate for each end, removed when dropped.
pub(super) struct Certificates {
    directory: TempDir,
    left: String,
    right: String,
}

impl Certificates {
    /// Generated with openssl(1); valid for a day.
    pub(super) fn generate() -> anyhow::Result<Self> {
        let directory = tempfile::tempdir().context("make a directory for certificates")?;
        let [left, right] = ["left", "right"].map(|name| generate(directory.path(), name));
        Ok(Self {
            left: left?,
            right: right?,
            directory,
        })
    }
}

/// Generates a key and a certificate called `name`; returns the fingerprint.
fn generate(directory: &Path, name: &str) -> anyhow::Result<String> {
    let files = files(directory, name);
    programs::generate_certificate(&files, &format!("DNS:{name}"))?;
    let [_, certificate] = files;
    let mut openssl = Command::new("openssl");
    openssl.args(["x509", "-noout", "-fingerprint", "-sha256", "-in"]);
    let printed = programs::output(openssl.arg(certificate))?;
    // `sha256 Fingerprint=AB:CD…`, in upper or lower case.
    let found = printed.trim().split_once('=');
    let (_, fingerprint) = found.context("openssl prints no fingerprint")?;
    Ok(fingerprint.to_owned())
}

fn files(directory: &Path, name: &str) -> [PathBuf; 2] {
    ["key", "crt"].map(|kind| directory.join(format!("{name}.{kind}")))
}

/// Both daemons; killed when dropped.
pub(super) struct OpenVpn {
    left: Started,
    right: Started,
}

impl OpenVpn {
    /// The right end's address in the tunnel.
    pub(super) const FAR: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 7, 0, 2));

    pub(super) fn start(
        bed: &Bed,
        contender: &Contender,
        certificates: &Certificates,
    ) -> anyhow::Result<Self> {
        let directory = certificates.directory.path();
        let (left, right) = (&bed.tunnel.left, &bed.tunnel.right);
        let to = right.outer(Underlay::V4).ip().to_string();
        let waits = ["--tls-server", "--dh", "none", "--port", PORT];
        let calls = ["--tls-client", "--nobind", "--remote", &to, PORT];
        let far = Self::FAR.to_string();
        let right = start(&right.namespace, contender, directory, |command| {
            command.args(waits).args(["--ifconfig", &far, NEAR]);
            command.args(["--peer-fingerprint", &certificates.left]);
        })?;
        let left = start(&left.namespace, contender, directory, |command| {
            command.args(calls).args(["--ifconfig", NEAR, &far]);
            command.args(["--peer-fingerprint", &certificates.right]);
        })?;
        Ok(Self { left, right })
    }

    pub(super) fn wait_until_up(&mut self, ends: &mut Ends) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        // Until the daemon has set up its interface, the far end has no route.
        while !self.left.log().contains(SET_UP) || ends.ping(Self::FAR, PROBE)?.received == 0 {
            self.check()?;
            thread::sleep(PAUSE);
            if Instant::now() > deadline {
                let logs = [&self.left, &self.right]
                    .map(Started::last_lines)
                    .join("\n    ");
                bail!("no packet passed the tunnel within {PATIENCE:?}\n    {logs}");
            }
        }
        Ok(())
    }

    pub(super) fn check(&mut self) -> anyhow::Result<()> {
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

/// Starts a daemon that `role` configures.
fn start(
    namespace: &Namespace,
    contender: &Contender,
    directory: &Path,
    role: impl FnOnce(&mut Command),
) -> anyhow::Result<Started> {
    let [key, certificate] = files(directory, namespace.label());
    let mut command = namespace.command(&contender.program);
    command
        .args(["--dev", INTERFACE, "--dev-type", "tun", "--proto", "udp4"])
        .arg("--key")
        .arg(key)
        .arg("--cert")
        .arg(certificate)
        .args(contender.arguments.split_whitespace());
    role(&mut command);
    Started::new(&mut command)
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
