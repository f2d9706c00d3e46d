//! A set of namespaces and the links between them.

use std::{
    ffi::CString,
    fs,
    sync::{Arc, Mutex, PoisonError},
};

use crate::{
    error::LabError,
    holder::{self, Holder, Plan},
    namespace::Namespace,
    privilege::Privilege,
};

/// A set of anonymous namespaces; dropping it kills everything inside and removes them.
///
/// The same happens when the program ends, however it ends. As root the namespaces are made
/// directly; otherwise all of one lab belong to one user namespace, in which this user is root.
pub struct Lab {
    privilege: Arc<Privilege>,
    private_directories: Vec<CString>,
    holders: Mutex<Vec<Holder>>,
}

impl Lab {
    /// Finds out how namespaces can be had; makes none yet.
    ///
    /// # Errors
    ///
    /// When no TUN device can be opened, or when this is not root and no user namespace can be
    /// had. The message names the fix.
    pub fn new() -> Result<Self, LabError> {
        Ok(Self {
            privilege: Arc::new(Privilege::find()?),
            private_directories: run_directories(),
            holders: Mutex::default(),
        })
    }

    /// Whether this lab does without a user namespace, so that
    /// [`Namespace::run`](crate::Namespace::run) works.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.privilege.user_namespace().is_none()
    }

    /// Adds a namespace: a network of its own with nothing but `lo`, which is up, and an empty
    /// `/run` of its own. `label` is for messages and for `ps`.
    ///
    /// # Errors
    ///
    /// When the kernel refuses it, with the step that failed.
    pub fn namespace(&self, label: &str) -> Result<Namespace, LabError> {
        let name = CString::new(format!("lab:{label}").replace('\0', "")).unwrap_or_default();
        let plan = Plan {
            user: self.privilege.user_namespace(),
            private_directories: &self.private_directories,
            name: &name,
        };
        let (holder, inside) =
            holder::network_namespace(&plan).map_err(|(step, source)| LabError::Namespace {
                label: label.to_owned(),
                step: step.what(),
                source,
            })?;
        let namespace = Namespace::new(
            label.to_owned(),
            holder.pid(),
            inside,
            Arc::clone(&self.privilege),
        );
        self.holders
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(holder);
        namespace.link().set_up("lo")?;
        Ok(namespace)
    }

    /// Joins two namespaces by a virtual cable: `a_name` in `a`, `b_name` in `b`, both with
    /// their addresses and `mtu` in bytes, both up when this returns.
    ///
    /// IPv6 addresses are usable at once: duplicate address detection is off for them.
    ///
    /// # Errors
    ///
    /// When an address is none, or when the kernel refuses a link or an address.
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
            for address in addresses {
                namespace.link().add_address(name, address)?;
            }
            namespace.link().set_up(name)?;
        }
        Ok(())
    }
}

/// `/run`, and `/var/run` where it is a directory of its own.
fn run_directories() -> Vec<CString> {
    use std::os::unix::ffi::OsStringExt;
    let mut directories: Vec<_> = ["/run", "/var/run"]
        .iter()
        .filter_map(|path| fs::canonicalize(path).ok())
        .collect();
    directories.dedup();
    directories
        .into_iter()
        .filter_map(|path| CString::new(path.into_os_string().into_vec()).ok())
        .collect()
}
