//! A set of namespaces and the links between them.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use crate::{
    error::{Doing as _, LabError},
    holder::Holder,
    namespace::Namespace,
    privilege,
};

/// A set of anonymous namespaces; dropping it kills every process inside and removes them.
///
/// The same happens when the program ends, for any reason. As root, namespaces are created directly;
/// otherwise all namespaces of a lab belong to one user namespace, in which this user is root.
pub struct Lab {
    user: Option<Arc<OwnedFd>>,
    holders: Mutex<Vec<Holder>>,
}

impl Lab {
    /// Decides whether to use root or a user namespace; creates no namespace yet.
    ///
    /// # Errors
    /// If no TUN device can be opened, or if this is not root and the kernel refuses a user namespace. The
    /// message names the fix.
    pub fn new() -> Result<Self, LabError> {
        Ok(Self {
            user: privilege::user_namespace()?,
            holders: Mutex::default(),
        })
    }

    /// Whether this lab needs no user namespace, so that [`Namespace::run`] works.
    pub fn is_root(&self) -> bool {
        self.user.is_none()
    }

    /// Adds a namespace with its own network, in which only `lo` exists and is up, and with its own empty
    /// `/run`. `label` appears in messages and in `ps`.
    pub fn namespace(&self, label: &str) -> Result<Namespace, LabError> {
        let opened = Holder::start(format!("lab:{label}"), self.user.clone()).and_then(|holder| {
            let namespace = Namespace::open(label, holder.pid(), self.user.clone())?;
            Ok((holder, namespace))
        });
        let (holder, namespace) = opened.doing(format_args!("namespace {label}: make it"))?;
        let holders = self.holders.lock();
        holders.unwrap_or_else(PoisonError::into_inner).push(holder);
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
    ) -> Result<(), LabError> {
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
        holders.iter_mut().for_each(Holder::release);
    }
}
