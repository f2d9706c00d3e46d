//! The interface's nftables tables, by nft(8).
//!
//! Each interface has a table `inet convoy_NAME`, and with a kill switch a table `netdev convoy_NAME`. nft(8)
//! rather than a library: the rules are one readable page, which `nft list table` shows again.
//!
//! A load lets nothing out that both the former and the new rules drop. In one transaction it replaces the rules of
//! all chains, which the kernel does atomically. The chains themselves stay: the kernel adds and removes their hooks
//! one by one, and lets a new chain's policy take effect last. Chains that are no longer needed go afterwards.

mod rules;

use std::{collections::BTreeSet, fs::File, sync::Arc};

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
    /// Puts these rules in the place of the former ones. Loads `inet` alone where the kernel has no egress hook.
    pub(crate) async fn load(&self, ruleset: &Ruleset) -> Result<Listing, HostError> {
        let reason = match self.put(ruleset, ruleset.egress.as_deref()).await {
            Ok(listing) => return Ok(listing),
            Err(reason) => reason,
        };
        let Ok(listing) = self.put(ruleset, None).await else {
            return Err(failed(&ruleset.table)(reason));
        };
        if ruleset.egress.is_some() {
            tracing::warn!(
                table = ruleset.table,
                reason,
                "No egress hook: packet sockets bypass the kill switch"
            );
        }
        Ok(listing)
    }

    /// Replaces the rules, or else, as when a chain's hook is another than ours, the tables.
    async fn put(&self, ruleset: &Ruleset, egress: Option<&str>) -> Result<Listing, String> {
        match self.put_after("flush", ruleset, egress).await {
            Err(_) => self.put_after("delete", ruleset, egress).await,
            put => put,
        }
    }

    /// `clear` empties a table or deletes it.
    async fn put_after(
        &self,
        clear: &str,
        ruleset: &Ruleset,
        egress: Option<&str>,
    ) -> Result<Listing, String> {
        let table = &ruleset.table;
        let rules = [("inet", Some(&*ruleset.inet)), ("netdev", egress)];
        let rules = rules.into_iter().filter_map(|(family, rules)| {
            // Adding first, because older nft(8) cannot clear a table that may not exist.
            rules.map(|rules| {
                format!("add table {family} {table}\n{clear} table {family} {table}\n{rules}")
            })
        });
        self.run(&["-f", "-"], &rules.collect::<String>()).await?;
        let listing = self.list(ruleset).await;
        let surplus = listing.surplus(ruleset);
        if surplus.is_empty() {
            return Ok(listing);
        }
        self.run(&["-f", "-"], &surplus).await?;
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

    /// Whether the interface's tables exist and drop what leaves.
    pub(crate) async fn is_closed(&self, interface: &str) -> bool {
        let list = ["-s", "list", "chain", "inet", &table(interface), "output"];
        let chain = self.run(&list, "").await;
        chain.is_ok_and(|chain| chain.contains("policy drop"))
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

    /// The commands that delete what these tables hold beyond the ruleset.
    fn surplus(&self, ruleset: &Ruleset) -> String {
        let (table, egress) = (&ruleset.table, ruleset.egress.as_deref());
        let wanted = [&*ruleset.inet, egress.unwrap_or("")].concat();
        let surplus = &chains(&self.0) - &chains(&wanted);
        let mut commands = String::new();
        // Emptied first, because they may jump to each other.
        for verb in ["flush", "delete"] {
            for (family, chain) in &surplus {
                commands += &format!("{verb} chain {family} {table} {chain}\n");
            }
        }
        if egress.is_none() && self.0.contains("table netdev ") {
            commands += &format!("delete table netdev {table}\n");
        }
        commands
    }
}

/// The name of the tables of an interface.
pub(crate) fn table(interface: &str) -> String {
    format!("convoy_{}", identifier(interface))
}

/// A device's name as a part of an identifier of nft(8), which knows few punctuation marks.
fn identifier(device: &str) -> String {
    let mut name = String::new();
    for byte in device.bytes() {
        match byte {
            b'_' | b'-' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => name.push(byte.into()),
            _ => name += &format!(".{byte:02x}"),
        }
    }
    name
}

/// The families and names of all chains in a text of nft(8)'s.
fn chains(text: &str) -> BTreeSet<(&str, &str)> {
    let mut family = "";
    let mut chains = BTreeSet::new();
    for line in text.lines() {
        match *line.split_whitespace().collect::<Vec<_>>() {
            ["table", of, _, "{"] => family = of,
            ["chain", name, "{"] => drop(chains.insert((family, name))),
            _ => {}
        }
    }
    chains
}

fn failed(table: &str) -> impl FnOnce(String) -> HostError {
    let table = table.to_owned();
    |reason| HostError::Nft { table, reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_ruleset_lacks_is_surplus() {
        let mut ruleset = Ruleset {
            inet: "table inet t {\n  chain a {\n    accept\n  }\n}\n".to_owned(),
            egress: Some("table netdev t {\n  chain a {\n  }\n  chain b {\n  }\n}\n".to_owned()),
            table: "t".to_owned(),
            is_kill_switch: true,
            is_persistent: false,
        };
        let whole = [&*ruleset.inet, ruleset.egress.as_deref().unwrap()].concat();
        assert_eq!(Listing(whole.clone()).surplus(&ruleset), "");
        let more = "table inet t {\n\tchain b {\n\t}\n\n\tchain c {\n\t\tjump b\n\t}\n}\n";
        let expected = "flush chain inet t b\nflush chain inet t c\n\
             delete chain inet t b\ndelete chain inet t c\n";
        assert_eq!(Listing(whole.clone() + more).surplus(&ruleset), expected);
        ruleset.egress = None;
        let commands = Listing(whole).surplus(&ruleset);
        assert!(commands.ends_with("delete table netdev t\n"), "{commands}");
    }

    #[test]
    fn names_of_tables_are_distinct_and_fit_nft() {
        let names = [
            "wg0",
            "wg-0",
            "wg_0",
            "wg.0",
            "wg=0",
            "wg+0",
            "wg.2b0",
            "wg\u{2b0}",
            "*",
        ]
        .map(table);
        for (at, name) in names.iter().enumerate() {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
            assert!(name.chars().all(is_plain), "{name}");
            assert!(!names[..at].contains(name), "{name}");
        }
    }
}
