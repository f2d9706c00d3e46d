//! resolvconf(8): openresolv's or Debian's.

use std::{fs, path::Path};

use crate::{error::HostError, programs::Programs};

/// Returns whether it is installed and not systemd's, which needs systemd-resolved.
pub(super) fn is_installed(programs: &Programs) -> bool {
    let real = programs.find("resolvconf").map(fs::canonicalize);
    real.is_some_and(|real| real.is_ok_and(|real| !real.ends_with("resolvectl")))
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
pub(super) async fn add(programs: &Programs, record: &str, input: &str) -> Result<(), HostError> {
    resolvconf(programs, &["-a", record, "-m", "0", "-x"], input).await
}

/// Removes the record, if it exists.
pub(super) async fn remove(programs: &Programs, record: &str) -> Result<(), HostError> {
    resolvconf(programs, &["-d", record, "-f"], "").await
}

async fn resolvconf(programs: &Programs, arguments: &[&str], input: &str) -> Result<(), HostError> {
    // It may start services, which would keep a lock.
    let ran = programs.run("resolvconf", arguments, input, None).await;
    ran.map(drop).map_err(|reason| HostError::Dns {
        backend: "resolvconf",
        reason,
    })
}
