//! Finds the interface, which may have been renamed or moved to another network namespace.

use std::{io, os::fd::AsFd as _};

use anyhow::{Context, bail};
use convoy_netlink::{Link, Netlink};
use convoy_tun::Device;
use nix::{libc::ino_t, sys::stat::fstat};

/// Attempts to find the interface while it is being renamed or moved.
const ATTEMPTS: usize = 5;

/// An interface, as seen from this network namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Identifier of its network namespace; `None` for our own.
    pub(super) namespace: Option<i32>,
    pub(super) index: u32,
}

pub(super) enum Located {
    At(Place, Link),
    /// It was deleted.
    Gone,
    /// It is in another network namespace, which this process has no right to look at.
    OutOfReach,
}

/// Finds the interface of `device` and its current state.
pub(super) async fn locate(
    netlink: &Netlink,
    device: &Device,
    own: Option<ino_t>,
) -> anyhow::Result<Located> {
    let mut attempts = 0..ATTEMPTS;
    while let Ok(name) = device.name() {
        if attempts.next().is_none() {
            if is_hidden(device) {
                return Ok(Located::OutOfReach);
            }
            bail!("cannot find the interface {name} in any network namespace within reach");
        }
        let namespace = namespace_of(netlink, device, own).await?;
        let link = netlink.link_by_name_in(&name, namespace).await;
        let link = link.map_err(io::Error::from);
        if let Some(link) = link.context("cannot query the interface")? {
            let index = link.index;
            return Ok(Located::At(Place { namespace, index }, link));
        }
    }
    Ok(Located::Gone)
}

/// Returns whether this process may not know the interface's network namespace.
fn is_hidden(device: &Device) -> bool {
    let namespace = device.network_namespace();
    namespace.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

/// Returns the identifier of the interface's network namespace; `None` for our own.
async fn namespace_of(
    netlink: &Netlink,
    device: &Device,
    own: Option<ino_t>,
) -> anyhow::Result<Option<i32>> {
    let Ok(theirs) = device.network_namespace() else {
        // The kernel lacks TUNGETDEVNETNS, or there is no permission: assume it is here.
        return Ok(None);
    };
    let own = own.context("cannot find this network namespace (fix: mount /proc)")?;
    if fstat(&theirs)?.st_ino == own {
        return Ok(None);
    }
    Ok(Some(netlink.namespace_id(theirs.as_fd()).await?))
}
