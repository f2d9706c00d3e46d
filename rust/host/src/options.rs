//! Locations on this host, and what may be used there.

use std::{ffi::OsString, path::PathBuf};

use crate::programs::Programs;

/// Locations on this host.
#[derive(Clone, Debug)]
pub struct Options {
    /// The directory of the journals.
    pub journals: PathBuf,
    /// The directory of records that must survive a power cut.
    pub lasting_journals: PathBuf,
    /// The file that resolvers read.
    pub resolv_conf: PathBuf,
    /// The file that tells the C library what looks names up.
    pub name_services: PathBuf,
    /// The D-Bus address of the system bus, instead of the default.
    pub system_bus: Option<String>,
    /// The directories of programs, as in `PATH`.
    pub programs: OsString,
    /// Whether a kill switch's tables belong to this process alone, where the kernel can do that.
    pub owns_tables: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            journals: "/run/convoy".into(),
            lasting_journals: "/var/lib/convoy".into(),
            resolv_conf: "/etc/resolv.conf".into(),
            name_services: "/etc/nsswitch.conf".into(),
            system_bus: None,
            programs: Programs::default().0,
            owns_tables: true,
        }
    }
}
