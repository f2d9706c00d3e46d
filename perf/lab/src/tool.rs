//! Standard programs that set a network up: `ip`, `nft`, `ethtool`.

use std::env;
use std::io::{ErrorKind, Write as _};
use std::process::{Command, Stdio};

use crate::{error::LabError, namespace::Namespace};

/// The kernel's name of UDP segmentation offload (`ethtool -k`).
pub const UDP_SEGMENTATION: &str = "tx-udp-segmentation";

pub(crate) const IP: Tool = Tool {
    name: "ip",
    package: "iproute2",
    fix: "",
};
pub(crate) const NFT: Tool = Tool {
    name: "nft",
    package: "nftables",
    fix: " (fix: `sudo modprobe nf_tables nft_numgen`)",
};
const ETHTOOL: Tool = Tool {
    name: "ethtool",
    package: "ethtool",
    fix: "",
};

/// Turns the feature `feature` of `interface` on or off, in the network namespace of the calling
/// thread.
///
/// # Errors
/// [`LabError::Tool`] when there is no such interface or feature, when it cannot be changed, or when
/// ethtool(8) is not installed.
pub fn set_feature(interface: &str, feature: &str, on: bool) -> Result<(), LabError> {
    let state = if on { "on" } else { "off" };
    let change = ["-K", interface, feature, state];
    ETHTOOL.run(None, &change, "").map(drop)
}

/// A program, and the help in the messages when it is missing or refuses.
pub(crate) struct Tool {
    name: &'static str,
    package: &'static str,
    fix: &'static str,
}

impl Tool {
    /// Runs the program with `input`, and returns its output.
    pub(crate) fn run(
        &self,
        inside: Option<&Namespace>,
        arguments: &[&str],
        input: &str,
    ) -> Result<Vec<u8>, LabError> {
        let failed = |problem: String| LabError::Tool {
            label: inside.map_or("of the caller", Namespace::label).to_owned(),
            command: format!("{} {}", self.name, arguments.join(" ")),
            problem,
        };
        let command = inside.map_or_else(
            || Command::new(self.name),
            |namespace| namespace.command(self.name),
        );
        let mut child = spawn(command, arguments).map_err(|error| {
            failed(match error.kind() {
                ErrorKind::NotFound => format!(
                    "not installed (fix: apt-get install {}, or your distribution's package of it)",
                    self.package
                ),
                _ => error.to_string(),
            })
        })?;
        if let Some(mut stdin) = child.stdin.take() {
            // A program that does not read it reports the reason itself.
            let _ = stdin.write_all(input.as_bytes());
        }
        let output = child
            .wait_with_output()
            .map_err(|e| failed(e.to_string()))?;
        if !output.status.success() {
            let reason = String::from_utf8_lossy(&output.stderr);
            return Err(failed(format!("{}{}", reason.trim(), self.fix)));
        }
        Ok(output.stdout)
    }
}

fn spawn(mut command: Command, arguments: &[&str]) -> std::io::Result<std::process::Child> {
    let mut path = env::var_os("PATH").unwrap_or_default();
    // Directories of root, where a user's shell does not look.
    path.push(":/usr/sbin:/sbin");
    command
        .args(arguments)
        .env("PATH", path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
}
