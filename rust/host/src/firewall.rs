//! The interface's nftables tables, by nft(8).
//!
//! Each interface has a table `inet convoy_NAME`, and with a kill switch a table `netdev convoy_NAME`. nft(8)
//! rather than a library: the rules are one readable page, which `nft list table` shows again.
//!
//! A load lets nothing out that both the former and the new rules drop. In one transaction it replaces the rules of
//! all chains, which the kernel does atomically. The chains themselves stay: the kernel adds and removes their hooks
//! one by one, and lets a new chain's policy take effect last. Chains that are no longer needed go afterwards.
//!
//! The tables of a kill switch belong to this process where the kernel can do that ([`Owner`]): no other program can
//! change or flush them.

mod listing;
mod rules;
mod ruleset;

use std::{fs::File, sync::Arc, time::Duration};

use convoy_netlink::nftables::Owner;
use tokio::time::sleep;

use crate::{error::HostError, programs::Programs};

pub(crate) use listing::Listing;
use listing::{commands, lasting, parts};
pub(crate) use rules::{Allowed, Opening, kill_switch, ruleset};
pub(crate) use ruleset::Ruleset;

/// The program.
#[derive(Debug)]
pub(crate) struct Nft {
    pub(crate) programs: Programs,
    /// Stays locked until nft(8) has ended, even if this process is killed: rules that load late would survive their
    /// removal.
    pub(crate) lock: Option<Arc<File>>,
    owns_tables: bool,
    /// The kill switch that was loaded last.
    owner: Option<Owner>,
    /// The method that worked last, which is tried first.
    clear: Clear,
}

impl Default for Nft {
    /// For a moment, without a lock.
    fn default() -> Self {
        Self {
            programs: Programs::default(),
            lock: None,
            owns_tables: true,
            owner: None,
            clear: Clear::Flush,
        }
    }
}

/// Number of attempts, and the pause between them, to load rules while the tables still belong to a former owner.
const PATIENCE: usize = 5;
const PAUSE: Duration = Duration::from_millis(20);

/// The way in which a transaction of nft(8) comes to an empty table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Clear {
    /// A table that exists; adding it again would be refused if it can be owned.
    Flush,
    /// Adding first, because older nft(8) cannot flush a table that may not exist.
    AddAndFlush,
    /// For chains whose hook differs from ours.
    Parts,
    /// For cases in which nothing else helps.
    Delete,
    AddAndDelete,
}

const CLEARS: [Clear; 5] = [
    Clear::Flush,
    Clear::AddAndFlush,
    Clear::Parts,
    Clear::Delete,
    Clear::AddAndDelete,
];

impl Clear {
    /// The commands; `there` has what the tables hold.
    fn commands(self, family: &str, table: &str, there: &Listing) -> String {
        let add = format!("add table {family} {table}\n");
        let flush = format!("flush table {family} {table}\n");
        match self {
            Self::Flush => flush,
            Self::AddAndFlush => add + &flush,
            Self::Parts => {
                let parts = parts(&there.0);
                let parts = parts.iter().filter(|(of, ..)| *of == family);
                let deletions =
                    parts.map(|(_, kind, name)| format!("delete {kind} {family} {table} {name}\n"));
                flush + &deletions.collect::<String>()
            }
            Self::Delete => format!("delete table {family} {table}\n{add}"),
            Self::AddAndDelete => format!("{add}delete table {family} {table}\n{add}"),
        }
    }
}

impl Nft {
    pub(crate) fn new(programs: Programs, lock: Arc<File>, owns_tables: bool) -> Self {
        Self {
            programs,
            lock: Some(lock),
            owns_tables,
            owner: None,
            clear: Clear::Flush,
        }
    }

    /// Replaces the former rules by these. Loads `inet` alone where the kernel has no egress hook.
    pub(crate) async fn load(&mut self, ruleset: &Ruleset) -> Result<Listing, HostError> {
        // nft(8) can change only tables without an owner.
        self.owner = None;
        let is_owned = ruleset.is_kill_switch && self.owns_tables;
        if is_owned && self.programs.find("nft").is_some() {
            Owner::prepare(&ruleset.table, ruleset.egress.is_some());
        }
        let mut loaded = self.load_unowned(ruleset).await;
        for _ in 0..PATIENCE {
            match &loaded {
                Err(HostError::Nft { reason, .. }) if is_refused_by_owner(reason) => {}
                _ => break,
            }
            sleep(PAUSE).await;
            loaded = self.load_unowned(ruleset).await;
        }
        if is_owned {
            let there = match &loaded {
                Ok(listing) => listing.clone(),
                Err(_) => self.list(ruleset).await,
            };
            let has_table = |family: &str| there.0.contains(&format!("table {family} "));
            self.owner = Owner::adopt(&ruleset.table, has_table("inet"), has_table("netdev"));
        }
        loaded
    }

    async fn load_unowned(&mut self, ruleset: &Ruleset) -> Result<Listing, HostError> {
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

    /// Replaces the rules, or else the tables.
    async fn put(&mut self, ruleset: &Ruleset, egress: Option<&str>) -> Result<Listing, String> {
        let mut refused: Option<String> = None;
        let others = CLEARS.into_iter().filter(|it| *it != self.clear);
        let ways: Vec<_> = [self.clear].into_iter().chain(others).collect();
        for clear in ways {
            let reason = match self.put_after(clear, ruleset, egress).await {
                Ok(listing) => {
                    // The others are for tables that another program has changed.
                    if matches!(clear, Clear::Flush | Clear::AddAndFlush) {
                        self.clear = clear;
                    }
                    return Ok(listing);
                }
                Err(reason) => reason,
            };
            let is_of_another_way = ["No such file", "not supported"]
                .iter()
                .any(|it| reason.contains(it));
            if refused.is_none() || !is_of_another_way {
                refused = Some(reason);
            }
        }
        Err(refused.unwrap_or_default())
    }

    async fn put_after(
        &self,
        clear: Clear,
        ruleset: &Ruleset,
        egress: Option<&str>,
    ) -> Result<Listing, String> {
        let table = &ruleset.table;
        let rules = [("inet", Some(&*ruleset.inet)), ("netdev", egress)];
        let there = match clear {
            Clear::Parts => self.list(ruleset).await,
            _ => Listing(String::new()),
        };
        let rules = rules.into_iter().filter_map(|(family, rules)| {
            let rules = commands(rules?);
            Some(clear.commands(family, table, &there) + &rules)
        });
        self.run(&["-f", "-"], &rules.collect::<String>()).await?;
        let listing = self.list(ruleset).await;
        if listing.is_dormant() {
            return Err("somebody has put the table to sleep".to_owned());
        }
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
            listing += &lasting(&self.run(&list, "").await.unwrap_or_default());
        }
        Listing(listing)
    }

    /// Returns whether the interface's tables exist and drop what leaves, except in a pause.
    pub(crate) async fn has_kill_switch(&self, interface: &str) -> bool {
        self.output(interface).await.contains("policy drop")
    }

    /// Returns whether they do so now.
    pub(crate) async fn is_closed(&self, interface: &str) -> bool {
        let output = self.output(interface).await;
        output.contains("policy drop")
            && !(output.contains("@paused") && self.is_paused(interface).await)
    }

    async fn is_paused(&self, interface: &str) -> bool {
        let list = ["list", "set", "inet", &table(interface), "paused"];
        let set = self.run(&list, "").await;
        set.is_ok_and(|set| set.contains("elements = "))
    }

    async fn output(&self, interface: &str) -> String {
        let list = ["-s", "list", "chain", "inet", &table(interface), "output"];
        self.run(&list, "").await.unwrap_or_default()
    }

    /// Removes the tables, if they exist.
    pub(crate) async fn remove(&mut self, table: &str) -> Result<(), HostError> {
        self.owner = None;
        for family in ["inet", "netdev"] {
            let delete = ["delete", "table", family, table];
            self.clear_away(table, &delete).await?;
        }
        Ok(())
    }

    /// Ends a pause, if there is one: the rules drop again.
    pub(crate) async fn end_pause(&mut self, table: &str) -> Result<(), HostError> {
        self.owner = None;
        for family in ["inet", "netdev"] {
            let flush = ["flush", "set", family, table, "paused"];
            self.clear_away(table, &flush).await?;
        }
        Ok(())
    }

    /// Runs a command on tables that may still belong to a former owner; succeeds if there is nothing to clear away.
    async fn clear_away(&self, table: &str, command: &[&str]) -> Result<(), HostError> {
        let mut cleared = self.run(command, "").await;
        for _ in 0..PATIENCE {
            match &cleared {
                Err(reason) if is_refused_by_owner(reason) => {}
                _ => break,
            }
            sleep(PAUSE).await;
            cleared = self.run(command, "").await;
        }
        let is_gone = ["No such file", "not supported", "not installed"];
        match cleared {
            Err(reason) if !is_gone.iter().any(|gone| reason.contains(gone)) => {
                Err(failed(table)(reason))
            }
            _ => Ok(()),
        }
    }

    async fn run(&self, arguments: &[&str], input: &str) -> Result<String, String> {
        let lock = self.lock.as_ref();
        self.programs.run("nft", arguments, input, lock).await
    }
}

/// The name of the nftables tables of an interface.
pub fn table(interface: &str) -> String {
    format!("convoy_{}", identifier(interface))
}

/// Encodes a device's name for an identifier of nft(8), which allows few punctuation marks.
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

/// Returns whether the tables still belong to another socket. That may be a closed one of this process: a child that
/// has not executed its program yet has a copy.
fn is_refused_by_owner(reason: &str) -> bool {
    reason.contains("not permitted")
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
