//! The file of a forwarder: `Key = value` lines without sections.
//!
//! `Allow`, `Deny`, `TargetAllow`, `TargetDeny` and `LoginFile` concern the listener above them. Above all listeners,
//! they concern each: a client must be allowed there and at the listener. Without an address, a listener is on 127.0.0.1
//! and ::1; `*` is every address. IPv6 addresses are in brackets.
//!
//! A tunnel's file has the same keys in comments of `[Interface]`, and `Reverse`, a listener inside the tunnel, which
//! what stands above all listeners does not concern.

mod command_line;
mod model;
mod parse;
mod rinetd;
mod source;
mod take;
pub(crate) mod values;

use std::path::Path;

use crate::report::Report;
use source::Source;

pub use command_line::{parse_listener, parse_prefix, read_login};
pub use model::{AccessLists, Forwarding, Listener, Offer, Side, UserPassword};
pub use rinetd::{Imported, import_rinetd};
pub(crate) use take::{add_to, refuse_unguarded};
pub(crate) use values::login;

impl Forwarding {
    /// These listeners, for whom `access` allows.
    #[must_use]
    pub fn new(listeners: Vec<Listener>, access: AccessLists) -> Self {
        Self {
            listeners,
            access,
            ..Self::default()
        }
    }

    /// A listener that other hosts could use, although nothing says who may.
    #[must_use]
    pub fn unguarded(&self) -> Option<&Listener> {
        let is_open = |listener: &&Listener| !take::is_guarded(listener, self);
        self.listeners.iter().find(is_open)
    }
}

/// Reads a forwarder's file; the report contains warnings only.
///
/// # Errors
/// All errors in the file.
pub fn read_forwarding(path: &Path) -> Result<(Forwarding, Report), Report> {
    let source = Source::read(path)?;
    let mut report = Report::default();
    let forwarding = parse::parse(&source, &mut report);
    source.finish(forwarding, report)
}

#[cfg(test)]
mod tests;
