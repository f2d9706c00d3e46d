//! The interface's nftables tables, by nft(8).
//!
//! Each interface has a table `inet convoy_NAME`, and with a kill switch a table `netdev convoy_NAME`. Every
//! load replaces both in one transaction. nft(8) rather than a library: the rules are one readable page,
//! which `nft list table` shows again.

mod rules;

use std::{fs::File, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{error::HostError, programs::Programs};

pub(crate) use rules::{Allowed, kill_switch, ruleset};

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

/// The tables as nft(8) lists them, to tell whether somebody has changed them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listing(String);

/// The program.
#[derive(Debug, Default)]
pub(crate) struct Nft {
    pub(crate) programs: Programs,
    /// Stays locked until nft(8) has ended, even if this process is killed: rules that load late would come after
    /// whoever removes them.
    pub(crate) lock: Option<Arc<File>>,
}

impl Nft {
    /// Replaces the tables. Loads `inet` alone where the kernel has no egress hook.
    pub(crate) async fn load(&self, ruleset: &Ruleset) -> Result<Listing, HostError> {
        let egress = ruleset.egress.as_deref();
        let clear = clear(&ruleset.table);
        let whole = [&clear, &ruleset.inet, egress.unwrap_or("")].concat();
        if let Err(reason) = self.run(&["-f", "-"], &whole).await {
            let inet = clear_inet(&ruleset.table) + &ruleset.inet;
            let loaded = self.run(&["-f", "-"], &inet).await;
            if loaded.is_err() {
                return Err(failed(&ruleset.table)(reason));
            }
            if egress.is_some() {
                tracing::warn!(
                    table = ruleset.table,
                    reason,
                    "No egress hook: packet sockets bypass the kill switch"
                );
            }
        }
        Ok(self.list(ruleset).await)
    }

    /// The tables as they are now; empty if they do not exist.
    pub(crate) async fn list(&self, ruleset: &Ruleset) -> Listing {
        let mut listing = String::new();
        for family in ["inet", "netdev"] {
            let list = ["-s", "list", "table", family, &ruleset.table];
            listing += &self.run(&list, "").await.unwrap_or_default();
        }
        Listing(listing)
    }

    /// Removes the tables, if they exist.
    pub(crate) async fn remove(&self, table: &str) -> Result<(), HostError> {
        for family in ["inet", "netdev"] {
            let Err(reason) = self.run(&["delete", "table", family, table], "").await else {
                continue;
            };
            let is_gone = ["No such file", "not supported", "not installed"];
            if !is_gone.iter().any(|gone| reason.contains(gone)) {
                return Err(failed(table)(reason));
            }
        }
        Ok(())
    }

    async fn run(&self, arguments: &[&str], input: &str) -> Result<String, String> {
        let lock = self.lock.as_ref();
        self.programs.run("nft", arguments, input, lock).await
    }
}

impl Listing {
    /// Whether the tables do not exist.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The name of the tables of an interface: nft(8) allows neither `=` nor `+` in it.
pub(crate) fn table(interface: &str) -> String {
    let mut name = "convoy_".to_owned();
    for c in interface.chars() {
        match c {
            '=' | '+' | '.' => name += &format!(".{:02x}", c as u32),
            _ => name.push(c),
        }
    }
    name
}

/// Adding before deleting, because older nft(8) cannot delete a table that may not exist.
fn clear(table: &str) -> String {
    let netdev = format!("add table netdev {table}\ndelete table netdev {table}\n");
    clear_inet(table) + &netdev
}

fn clear_inet(table: &str) -> String {
    format!("add table inet {table}\ndelete table inet {table}\n")
}

fn failed(table: &str) -> impl FnOnce(String) -> HostError {
    let table = table.to_owned();
    |reason| HostError::Nft { table, reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_tables_are_distinct_and_fit_nft() {
        let names = ["wg0", "wg-0", "wg_0", "wg.0", "wg=0", "wg+0", "wg.2b0"].map(table);
        for (at, name) in names.iter().enumerate() {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
            assert!(name.chars().all(is_plain), "{name}");
            assert!(!names[..at].contains(name), "{name}");
        }
    }
}
