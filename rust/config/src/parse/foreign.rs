//! Keys that other programs add to files of wg-quick: one error for all keys of a program.

use crate::{
    located::Place,
    report::{Diagnostic, Report},
    text::Text,
};

/// Another program whose files have keys of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Foreign {
    /// AmneziaWG, a variant of WireGuard with other messages.
    Amnezia,
    /// WireGuard for Android.
    Android,
}

impl Foreign {
    /// The program that has a key, and the key as it writes it; `word` has no white space.
    pub(super) fn find(word: &str) -> Option<(Self, &'static str)> {
        const AMNEZIA: &str =
            "Jc Jmin Jmax S1 S2 S3 S4 H1 H2 H3 H4 I1 I2 I3 I4 I5 J1 J2 J3 Itime AdvancedSecurity";
        const ANDROID: &str = "IncludedApplications ExcludedApplications";
        let find = |names: &'static str| names.split(' ').find(|it| it.eq_ignore_ascii_case(word));
        let amnezia = || find(AMNEZIA).map(|name| (Self::Amnezia, name));
        find(ANDROID)
            .map(|name| (Self::Android, name))
            .or_else(amnezia)
    }
}

/// The foreign keys of a file.
#[derive(Debug, Default)]
pub(super) struct ForeignKeys {
    amnezia: Vec<Found>,
    android: Vec<Found>,
}

#[derive(Debug)]
struct Found {
    name: &'static str,
    at: Place,
    /// Whether WireGuard's own messages have this value.
    is_plain: bool,
}

/// More than these are not named.
const MOST: usize = 32;

impl ForeignKeys {
    pub(super) fn add(
        &mut self,
        (owner, name): (Foreign, &'static str),
        at: Place,
        value: Text<'_>,
    ) {
        let list = match owner {
            Foreign::Amnezia => &mut self.amnezia,
            Foreign::Android => &mut self.android,
        };
        if list.len() < MOST {
            let is_plain = is_plain(name, &value.compact());
            list.push(Found { name, at, is_plain });
        }
    }

    pub(super) fn report(&self, report: &mut Report) {
        if let Some(first) = self.amnezia.first() {
            let title = format!("keys of AmneziaWG: {}", names(&self.amnezia));
            let label = "WireGuard has no such key";
            let error = Diagnostic::error(title, first.at, label);
            report.push(match self.amnezia.iter().all(|it| it.is_plain) {
                true => error.help(
                    "with these values the messages are those of WireGuard: remove these lines, and the tunnel works",
                ),
                false => error.help(
                    "a server with these values expects other messages than WireGuard's, and answers none of Convoy's: \
                     ask its operator for a file for WireGuard",
                ),
            });
        }
        if let Some(first) = self.android.first() {
            let title = format!("keys of WireGuard for Android: {}", names(&self.android));
            let label = "apps of Android are meant";
            let help = "remove them: the tunnel is for all programs of this host; `convoy exec FILE -- COMMAND` runs \
                 a single one in it";
            report.push(Diagnostic::error(title, first.at, label).help(help));
        }
    }
}

/// Each once, in the order of the file.
fn names(found: &[Found]) -> String {
    let mut names = Vec::new();
    for it in found {
        if !names.contains(&it.name) {
            names.push(it.name);
        }
    }
    let names: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}

/// Junk before a handshake, which a server drops, is no matter; paddings and kinds of messages are.
fn is_plain(name: &str, value: &str) -> bool {
    match (name.as_bytes().first(), name.as_bytes().get(1)) {
        (Some(b'S'), _) => value == "0",
        (Some(b'H'), Some(kind)) => value.as_bytes() == [*kind],
        _ => name != "AdvancedSecurity" || value.eq_ignore_ascii_case("off"),
    }
}
