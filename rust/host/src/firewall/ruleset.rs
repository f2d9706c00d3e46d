//! The tables of one interface, as they are to be.

use serde::{Deserialize, Serialize};

/// The tables of one interface.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Ruleset {
    /// The name of both tables.
    pub(crate) table: String,
    /// The rules of `inet`.
    pub(crate) inet: String,
    /// The rules of `netdev`, which some kernels lack.
    pub(crate) egress: Option<String>,
    /// Whether this is a kill switch, which the user counts on.
    pub(crate) is_kill_switch: bool,
    /// Whether it outlives the interface.
    pub(crate) is_persistent: bool,
}

impl Ruleset {
    /// The tables without their rules.
    pub(crate) fn slot(self) -> Self {
        Self {
            table: self.table,
            inet: String::new(),
            egress: None,
            is_kill_switch: false,
            is_persistent: false,
        }
    }
}
