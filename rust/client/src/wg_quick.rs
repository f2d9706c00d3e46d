//! Adopts an interface from wg-quick(8), which alone knows everything it has changed.

use std::{path::Path, process::Stdio, time::Duration};

use anyhow::{Context, bail};
use convoy_daemon::places;
use convoy_host::owner::Signs;
use convoy_process::socket::ensure_unused;
use tokio::{process::Command, time::timeout};

/// Time limit for wg-quick, hooks included.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Returns whether wg-quick may have created an interface.
pub(crate) fn may_own(signs: Signs) -> bool {
    let is_wireguard = signs.is_kernel_wireguard || signs.has_uapi;
    is_wireguard && !signs.has_network_manager && !signs.has_networkd
}

/// Makes wg-quick take the interface of this file down, its hooks included.
pub(crate) async fn take_down(path: &Path) -> anyhow::Result<()> {
    let shown = format!("`wg-quick down {}`", path.display());
    let mut command = Command::new("wg-quick");
    command.arg("down").arg(path).kill_on_drop(true);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let ended = timeout(TIME_LIMIT, command.status()).await;
    let ended = ended.with_context(|| format!("{shown} does not end"))?;
    let status = ended.with_context(|| format!("cannot run {shown}"))?;
    if !status.success() {
        bail!("{shown} failed ({status}): run it to see why");
    }
    // A userspace WireGuard daemon ends some time after its interface is gone.
    ensure_unused(&places::uapi(&places::name_of(path)?), || true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_manage_is_not_taken_over() {
        let quick = Signs {
            has_uapi: true,
            ..Signs::default()
        };
        assert!(may_own(quick));
        assert!(!may_own(Signs::default()));
        for signs in [
            Signs {
                has_network_manager: true,
                ..quick
            },
            Signs {
                has_networkd: true,
                ..quick
            },
        ] {
            assert!(!may_own(signs));
        }
    }
}
