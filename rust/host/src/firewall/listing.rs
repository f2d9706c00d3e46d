//! The text of tables: ours as commands, and what nft(8) lists.

use std::collections::BTreeSet;

use super::ruleset::Ruleset;

/// The tables as nft(8) lists them, to detect changes by other programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listing(pub(super) String);

impl Listing {
    /// Returns whether the tables do not exist.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether the kernel ignores a table.
    pub(super) fn is_dormant(&self) -> bool {
        let mut lines = self.0.lines().map(str::trim_start);
        lines.any(|line| line.starts_with("flags") && line.contains("dormant"))
    }

    /// The commands that delete what these tables hold beyond the ruleset.
    pub(super) fn surplus(&self, ruleset: &Ruleset) -> String {
        let (table, egress) = (&ruleset.table, ruleset.egress.as_deref());
        let wanted = [&*ruleset.inet, egress.unwrap_or("")].concat();
        let surplus = &parts(&self.0) - &parts(&wanted);
        let mut commands = String::new();
        // Emptied first, because they may jump to each other.
        for verb in ["flush", "delete"] {
            for (family, kind, name) in &surplus {
                commands += &format!("{verb} {kind} {family} {table} {name}\n");
            }
        }
        if egress.is_none() && self.0.contains("table netdev ") {
            commands += &format!("delete table netdev {table}\n");
        }
        commands
    }
}

/// The families, kinds and names of all chains and sets in a text of nft(8)'s.
pub(super) fn parts(text: &str) -> BTreeSet<(&str, &str, &str)> {
    let mut family = "";
    let mut parts = BTreeSet::new();
    for line in text.lines() {
        match *line.split_whitespace().collect::<Vec<_>>() {
            ["table", of, _, "{"] => family = of,
            [kind @ ("chain" | "set"), name, "{", ..] => drop(parts.insert((family, kind, name))),
            _ => {}
        }
    }
    parts
}

/// Words for the flags of tables that can be owned; older versions of nft(8) do not know all of them.
const OF_OWNERS: [&str; 3] = ["flags", "owner", "persist"];

/// Strips a listing of parts that change by themselves: the table's owner and flags, and elements that time out.
pub(super) fn lasting(listing: &str) -> String {
    let mut is_elements = false;
    let mut lasting = String::new();
    for line in listing.lines() {
        let words = line.trim_start();
        is_elements |= words.starts_with("elements = ");
        let mut flags = words.split([' ', ',']).filter(|it| !it.is_empty());
        let is_flags = words.starts_with("flags") && flags.all(|it| OF_OWNERS.contains(&it));
        if !is_elements && !is_flags && !words.is_empty() {
            lasting += line.split(" # progname ").next().unwrap_or(line);
            lasting.push('\n');
        }
        is_elements &= !line.contains('}');
    }
    lasting
}

/// The rules of one table as single commands: a block with the table would add that, which the kernel refuses for one
/// that is to be adopted.
pub(super) fn commands(rules: &str) -> String {
    let (mut table, mut chain) = ("", "");
    let (mut parts, mut contents) = (String::new(), String::new());
    for line in rules.lines().map(str::trim) {
        match *line.split_whitespace().collect::<Vec<_>>() {
            ["table", ..] => table = line.trim_start_matches("table ").trim_end_matches(" {"),
            ["set", ..] => {
                parts += &format!("add set {table} {}\n", line.trim_start_matches("set "));
            }
            ["chain", name, "{"] => {
                chain = name;
                parts += &format!("add chain {table} {chain}\n");
            }
            ["type", ..] => {
                parts.truncate(parts.len() - 1);
                parts += &format!(" {{ {line} }}\n");
            }
            ["}"] | [] => {}
            _ => contents += &format!("add rule {table} {chain} {line}\n"),
        }
    }
    parts + &contents
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
    fn a_block_becomes_commands_that_never_name_the_table_alone() {
        let block = "table inet t {\n  set s { type ether_type; flags timeout; }\n  chain a {\n    \
             type filter hook output priority 0; policy drop;\n    goto b\n  }\n  chain b {\n    drop\n  }\n}\n";
        let expected = "add set inet t s { type ether_type; flags timeout; }\n\
             add chain inet t a { type filter hook output priority 0; policy drop; }\n\
             add chain inet t b\nadd rule inet t a goto b\nadd rule inet t b drop\n";
        assert_eq!(commands(block), expected);
    }

    #[test]
    fn a_listing_is_the_same_whoever_owns_the_table_and_whatever_has_timed_out() {
        let owned = "table inet t { # progname convoy\n\tflags owner\n\n\tset s {\n\t\ttype ether_type\n\t\t\
             flags timeout\n\t\telements = { ip timeout 5s,\n\t\t\t     ip6 timeout 5s }\n\t}\n\n\t\
             chain a {\n\t\tdrop\n\t}\n}\n";
        let orphan = "table inet t {\n\tflags \n\n\tset s {\n\t\ttype ether_type\n\t\tflags timeout\n\t}\n\n\t\
             chain a {\n\t\tdrop\n\t}\n}\n";
        assert_eq!(lasting(owned), lasting(orphan));
        assert!(lasting(owned).contains("drop"));
    }
}
