//! A set of namespaces and the links between them.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use crate::{
    error::{Doing as _, LabError},
    holder::Holder,
    namespace::Namespace,
    privilege,
};

/// A set of anonymous namespaces; dropping it kills everyone inside and removes them.
///
/// The same happens when the program ends, however it ends. As root the namespaces are made
/// directly; otherwise all of one lab belong to one user namespace, in which this user is root.
pub struct Lab {
    user: Option<Arc<OwnedFd>>,
    holders: Mutex<Vec<Holder>>,
}

impl Lab {
    /// Decides how to make namespaces, as root or through a user namespace; makes none yet.
    ///
    /// # Errors
    /// When no TUN device can be opened, or when this is not root and the kernel refuses a user
    /// namespace. The message names the fix.
    pub fn new() -> Result<Self, LabError> {
        Ok(Self {
            user: privilege::user_namespace()?,
            holders: Mutex::default(),
        })
    }

    /// Whether this lab does without a user namespace, so that [`Namespace::run`] works.
    pub fn is_root(&self) -> bool {
        self.user.is_none()
    }

    /// Adds a namespace: a network of its own with nothing but `lo`, which is up, and an empty
    /// `/run` of its own. `label` is for messages and for `ps`.
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

    /// Joins two namespaces by a virtual cable: `a_name` in `a`, `b_name` in `b`, both with
    /// their addresses and `mtu` in bytes, both up when this returns.
    ///
    /// IPv6 addresses are usable at once: duplicate address detection is off for them.
    #[expect(
        clippy::too_many_arguments,
        reason = "three things for each end of a cable"
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
        for (namespace, name, addresses) in [(a, a_name, a_addresses), (b, b_name, b_addresses)] {
            let link = namespace.link();
            addresses
                .iter()
                .try_for_each(|address| link.add_address(name, address))?;
            link.set_up(name)?;
        }
        Ok(())
    }
}
