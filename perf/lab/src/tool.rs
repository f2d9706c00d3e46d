//! Standard programs that configure a network: `ip`, `nft`, `ethtool`.

use std::env;
use std::io::{ErrorKind, Write as _};
use std::process::Stdio;

use crate::error::{LabError, Result};
use crate::namespace::Namespace;

/// Runs `program` with `input` inside a namespace. Fails with [`LabError::Program`] if it is not installed or refuses.
pub(crate) fn run(
    namespace: &Namespace,
    program: &str,
    arguments: &[&str],
    input: &str,
) -> Result<()> {
    let failed = |problem: String| LabError::Program {
        program: namespace.step(&format!("{program} {}", arguments.join(" "))),
        problem,
    };
    let mut path = env::var_os("PATH").unwrap_or_default();
    // Root's directories, which may be missing from a user's `PATH`.
    path.push(":/usr/sbin:/sbin");
    let mut command = namespace.command(program);
    command.args(arguments).env("PATH", path);
    command.stdin(Stdio::piped());
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let output = command.spawn().and_then(|mut child| {
        let pipe = child.stdin.take();
        // A program that does not read its input reports the reason itself.
        let _ = pipe.map(|mut pipe| pipe.write_all(input.as_bytes()));
        child.wait_with_output()
    });
    let output = output.map_err(|error| match error.kind() {
        ErrorKind::NotFound => failed(format!(
            "not installed (fix: apt-get install {}, or your distribution's package of it)",
            package(program)
        )),
        _ => failed(error.to_string()),
    })?;
    if !output.status.success() {
        let reason = String::from_utf8_lossy(&output.stderr);
        let fix = match program {
            "nft" => " (fix: `sudo modprobe nf_tables nft_numgen`)",
            _ => "",
        };
        return Err(failed(format!("{}{fix}", reason.trim())));
    }
    Ok(())
}

pub(crate) fn package(program: &str) -> &str {
    match program {
        "dnsmasq" => "dnsmasq-base",
        "ip" => "iproute2",
        "miniupnpd" => "miniupnpd-nftables",
        "nft" => "nftables",
        "promtool" => "prometheus",
        "ping" => "iputils-ping",
        "turnserver" => "coturn",
        "wg" | "wg-quick" => "wireguard-tools",
        other => other,
    }
}
