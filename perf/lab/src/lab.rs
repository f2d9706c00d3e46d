//! A set of namespaces and the links between them.

use std::fs::OpenOptions;
use std::os::fd::OwnedFd;
use std::process::Child;
use std::sync::{Arc, Mutex, PoisonError};

use convoy_process::user_namespace_fix;
use procfs::process::Process;

use crate::child::process_id;
use crate::error::{Doing as _, LabError, Result};
use crate::holder;
use crate::namespace::Namespace;

/// Capabilities without which namespaces and links need a user namespace (capabilities(7)): `CAP_NET_ADMIN` and
/// `CAP_SYS_ADMIN`.
const NEEDED: u64 = 1 << 12 | 1 << 21;

/// A set of anonymous namespaces; dropping it kills every process inside and removes them.
///
/// The same happens when the program ends, for any reason. As root, namespaces are created directly;
/// otherwise all namespaces of a lab belong to one user namespace, in which this user is root.
pub struct Lab {
    user: Option<Arc<OwnedFd>>,
    holders: Mutex<Vec<Child>>,
}

impl Lab {
    /// Decides whether to use root or a user namespace; creates no namespace yet.
    ///
    /// # Errors
    /// If no TUN device can be opened, or if this is not root and the kernel refuses a user namespace. The
    /// message names the fix.
    pub fn new() -> Result<Self> {
        let mut tun = OpenOptions::new();
        let tun = tun.read(true).write(true).open("/dev/net/tun");
        tun.map_err(LabError::Tun)?;
        // Root in a container may lack the capabilities.
        let status = Process::myself().and_then(|process| process.status());
        let user = match status.is_ok_and(|status| status.capeff & NEEDED == NEEDED) {
            true => None,
            false => Some(Arc::new(holder::user_namespace().map_err(|source| {
                let fix = format!("{}, or run as root", user_namespace_fix(&source));
                LabError::UserNamespace { fix, source }
            })?)),
        };
        let holders = Mutex::default();
        Ok(Self { user, holders })
    }

    /// Returns whether this lab needs no user namespace, so that [`Namespace::run`] works.
    pub fn is_root(&self) -> bool {
        self.user.is_none()
    }

    /// Adds a namespace with its own network, in which only `lo` exists and is up, and with its own empty
    /// `/run`. `label` appears in messages and in `ps`.
    pub fn namespace(&self, label: &str) -> Result<Namespace> {
        let step = || format!("namespace {label}: make it");
        let holder = holder::start(format!("lab:{label}"), self.user.clone()).doing(step())?;
        let pid = process_id(&holder);
        let holders = self.holders.lock();
        holders.unwrap_or_else(PoisonError::into_inner).push(holder);
        let namespace = Namespace::open(label, pid, self.user.clone()).doing(step())?;
        namespace.link().set_up("lo")?;
        Ok(namespace)
    }

    /// Joins two namespaces by a virtual cable: `a_name` in `a`, `b_name` in `b`. Both have their
    /// addresses and `mtu` in bytes, and are up when this returns.
    ///
    /// IPv6 addresses are usable at once: duplicate address detection is off for them.
    #[expect(
        clippy::too_many_arguments,
        reason = "a namespace, name and addresses for each end"
    )]
    pub fn veth(
        &self,
        a: &Namespace,
        a_name: &str,
        a_addresses: &[&str],
        b: &Namespace,
        b_name: &str,
        b_addresses: &[&str],
        mtu: u32,
    ) -> Result<()> {
        a.link().add_veth(a_name, b, b_name, mtu)?;
        a.link().bring_up(a_name, mtu, a_addresses)?;
        b.link().bring_up(b_name, mtu, b_addresses)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let holders = self.holders.get_mut();
        let holders = holders.unwrap_or_else(PoisonError::into_inner);
        // All end at the same time; then each is waited for.
        for holder in &mut *holders {
            drop(holder.stdin.take());
        }
        for holder in holders {
            // An error means that it is already gone.
            let _ = holder.wait();
        }
    }
}
