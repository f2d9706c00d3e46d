//! resolvconf(8): openresolv's or Debian's.

use std::{env, fs, io, path::Path, process::Stdio};

use tokio::{io::AsyncWriteExt as _, process::Command};

use crate::error::HostError;

/// Whether it is installed, and is not systemd's, which needs systemd-resolved.
pub(super) fn is_installed() -> bool {
    let path = crate::program_path();
    env::split_paths(&path).any(|place| {
        let program = place.join("resolvconf");
        let real = fs::canonicalize(program);
        real.is_ok_and(|real| !real.ends_with("resolvectl"))
    })
}

/// The interface's record. Debian's resolvconf orders records by prefixes; wg-quick(8) takes the first one.
pub(super) fn record(interface: &str) -> String {
    let order = fs::read_to_string(Path::new("/etc/resolvconf/interface-order"));
    let prefix = order.ok().and_then(|order| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
        let mut prefixes = order.lines().filter_map(|line| line.strip_suffix('*'));
        prefixes
            .find(|prefix| !prefix.is_empty() && prefix.chars().all(is_plain))
            .map(|prefix| format!("{prefix}."))
    });
    prefix.unwrap_or_default() + interface
}

/// Adds the record as the only one in use.
pub(super) async fn add(record: &str, input: &str) -> Result<(), HostError> {
    resolvconf(&["-a", record, "-m", "0", "-x"], input).await
}

/// Removes the record, if it exists.
pub(super) async fn remove(record: &str) -> Result<(), HostError> {
    resolvconf(&["-d", record, "-f"], "").await
}

async fn resolvconf(arguments: &[&str], input: &str) -> Result<(), HostError> {
    let failed = |reason: String| HostError::Dns {
        backend: "resolvconf",
        reason,
    };
    let run = async || -> io::Result<std::process::Output> {
        let mut child = Command::new("resolvconf")
            .args(arguments)
            .env("PATH", crate::program_path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            let _ = stdin.write_all(input.as_bytes()).await;
        }
        child.wait_with_output().await
    };
    let output = run().await.map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    Err(failed(
        String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    ))
}
