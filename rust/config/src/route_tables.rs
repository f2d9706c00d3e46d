//! The names of routing tables, as iproute2 has them.

use std::{collections::HashMap, fs, ops::RangeInclusive, path::Path};

use crate::number::{decimal, hexadecimal};

/// The numbers of the tables `default`, `main` and `local` (ip-route(8)). A mark is also the number of the tunnel's
/// table, and must be none of these.
pub const SYSTEM_TABLES: RangeInclusive<u32> = 253..=255;

/// Names of routing tables.
#[derive(Clone, Debug)]
pub(crate) struct RouteTables(HashMap<String, u32>);

/// iproute2's files; later ones prevail.
const FILES: [&str; 2] = ["/usr/share/iproute2/rt_tables", "/etc/iproute2/rt_tables"];
/// Names that need no file.
const FIXED: [(&str, u32); 3] = [("default", 253), ("main", 254), ("local", 255)];

impl RouteTables {
    /// Reads iproute2's files. One that cannot be read names nothing: the kernel knows numbers only.
    pub(crate) fn of_this_machine() -> Self {
        let text = |path: &&str| fs::read_to_string(Path::new(path)).unwrap_or_default();
        let texts: Vec<_> = FILES.iter().map(text).collect();
        Self::parse(&texts.join("\n"))
    }

    pub(crate) fn parse(text: &str) -> Self {
        let fixed = FIXED.map(|(name, number)| (name.to_owned(), number));
        let named = text.lines().filter_map(|line| {
            let mut words = line.split('#').next()?.split_whitespace();
            let number = words.next()?;
            let number = match number.strip_prefix("0x") {
                Some(digits) => hexadecimal(digits)?,
                None => decimal(number)?,
            };
            Some((words.next()?.to_owned(), number))
        });
        Self(fixed.into_iter().chain(named).collect())
    }

    pub(crate) fn number(&self, name: &str) -> Option<u32> {
        self.0.get(name).copied()
    }
}
