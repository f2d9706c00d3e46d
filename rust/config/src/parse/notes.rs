//! Reports on single lines.

use crate::{
    keys::{Dialect, KeyInfo, Section},
    located::{Located, Place},
    mask::is_name,
    report::{Diagnostic, Report},
    text::{Text, is_wide_space},
    values::{Bad, Parsed},
};

/// Where a parser reports to.
pub(super) struct Notes<'a> {
    pub(super) file: usize,
    pub(super) report: &'a mut Report,
}

impl Notes<'_> {
    pub(super) fn at(&self, text: Text<'_>) -> Place {
        Place::new(self.file, text.range())
    }

    pub(super) fn error(
        &self,
        title: impl Into<String>,
        at: Text<'_>,
        label: impl Into<String>,
    ) -> Diagnostic {
        Diagnostic::error(title, self.at(at), label)
    }

    /// An error about a character that nobody can see.
    pub(super) fn invisible(&self, at: Text<'_>, found: char) -> Diagnostic {
        let name = match found {
            '\u{a0}' => "a no-break space",
            '\u{ad}' => "a soft hyphen",
            '\u{200b}' => "a zero-width space",
            '\u{feff}' => "a byte order mark",
            _ if is_wide_space(found) => "an unusual space",
            _ => "invisible",
        };
        let code = u32::from(found);
        let error = self.error(
            format!("U+{code:04X} is not allowed here: {name}"),
            at,
            "here",
        );
        error.help(match is_wide_space(found) {
            true => "write an ordinary space, or nothing",
            false => "delete it: it may have come with copied text",
        })
    }

    /// Stores a value, or reports why not; the last of several prevails, as in wg-quick.
    pub(super) fn set<T>(
        &mut self,
        name: &str,
        slot: &mut Option<Located<T>>,
        value: Text<'_>,
        parsed: Parsed<T>,
    ) {
        let Some(located) = self.accept(name, value, parsed) else {
            return;
        };
        if let Some(former) = slot {
            let title = format!("`{name}` is set twice");
            let warning = Diagnostic::warning(title, located.at, "this value is used");
            self.report.push(warning.also(former.at, "ignored"));
        }
        *slot = Some(located);
    }

    /// Adds a value to a list, or reports why not.
    pub(super) fn push<T>(
        &mut self,
        name: &str,
        list: &mut Vec<Located<T>>,
        value: Text<'_>,
        parsed: Parsed<T>,
    ) {
        list.extend(self.accept(name, value, parsed));
    }

    /// Gives a value its place, or reports why it was refused.
    pub(super) fn accept<T>(
        &mut self,
        name: &str,
        value: Text<'_>,
        parsed: Parsed<T>,
    ) -> Option<Located<T>> {
        match parsed {
            Ok(parsed) => Some(Located {
                value: parsed,
                at: self.at(value),
            }),
            Err(bad) => {
                self.bad(name, value, bad);
                None
            }
        }
    }

    fn bad(&mut self, name: &str, value: Text<'_>, bad: Bad) {
        let at = Place::new(self.file, bad.range);
        let title = format!("invalid value for `{name}`");
        let mut diagnostic = Diagnostic::error(title, at, format!("expected {}", bad.expected));
        if let Some(help) = bad.help {
            diagnostic = diagnostic.help(help);
        } else if let Some(strange) = value.text.chars().find(|c| !c.is_ascii()) {
            let code = u32::from(strange);
            diagnostic = diagnostic.help(format!(
                "the value contains U+{code:04X}, which is not ASCII"
            ));
        }
        self.report.push(diagnostic);
    }

    /// The key that was probably meant; not sought, as that takes time, if nobody will see it.
    pub(super) fn nearest(&self, word: &str) -> Option<&'static KeyInfo> {
        match self.report.shows_more_errors() {
            true => KeyInfo::nearest(word),
            false => None,
        }
    }

    /// Names the key, unless it may be the end of a secret: that has no value.
    pub(super) fn unknown_key(&mut self, dialect: Dialect, key: Text<'_>, value: Text<'_>) {
        let word = key.compact();
        let title = match is_name(&word) && !word.is_empty() && !value.is_empty() {
            true => format!("unknown key `{}`", *word),
            false => "unknown key".to_owned(),
        };
        let diagnostic = self.error(title, key, "");
        let diagnostic = match self.nearest(&word) {
            Some(near) if near.dialect == dialect => {
                diagnostic.help(format!("did you mean `{}`?", near.name))
            }
            Some(near) => diagnostic.help(format!("did you mean `{}`?", near.written())),
            None => diagnostic.help("wg-quick(8) and wg(8) list the keys"),
        };
        self.report.push(diagnostic);
    }

    pub(super) fn wrong_dialect(&mut self, info: &KeyInfo, key: Text<'_>) {
        let diagnostic = match info.dialect {
            Dialect::Convoy => self.error(
                format!("`{}` must be in a `#convoy:` comment", info.name),
                key,
                "not a key of wg-quick",
            ),
            Dialect::WgQuick => self.error(
                format!("`{}` does not belong in a comment", info.name),
                key,
                "a key of wg-quick",
            ),
        };
        let help = format!("write `{}`", info.written());
        self.report.push(diagnostic.help(help));
    }

    pub(super) fn wrong_section(&mut self, info: &KeyInfo, key: Text<'_>, here: Section) {
        let there = info.section.name();
        let title = format!("`{}` in `{}`", info.name, here.name());
        let diagnostic = self.error(title, key, format!("belongs in `{there}`"));
        self.report.push(diagnostic);
    }
}
