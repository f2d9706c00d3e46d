//! Reports on single lines.

use crate::{
    key::{Dialect, Key, Section},
    keys,
    located::Place,
    mask::is_name,
    report::{Diagnostic, Report},
    text::{Text, is_wide_space},
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

    /// The key that was probably meant; not sought, as that takes time, if nobody will see it.
    pub(super) fn nearest(&self, word: &str) -> Option<&'static Key> {
        match self.report.shows_more_errors() {
            true => keys::nearest(word),
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

    pub(super) fn wrong_dialect(&mut self, known: &Key, key: Text<'_>) {
        let diagnostic = match known.dialect {
            Dialect::Convoy => self.error(
                format!("`{}` must be in a `#convoy:` comment", known.name),
                key,
                "not a key of wg-quick",
            ),
            Dialect::WgQuick => self.error(
                format!("`{}` does not belong in a comment", known.name),
                key,
                "a key of wg-quick",
            ),
        };
        let help = format!("write `{}`", known.written());
        self.report.push(diagnostic.help(help));
    }

    pub(super) fn wrong_section(&mut self, known: &Key, key: Text<'_>, here: Section) {
        let there = known.section().name();
        let title = format!("`{}` in `{}`", known.name, here.name());
        let diagnostic = self.error(title, key, format!("belongs in `{there}`"));
        self.report.push(diagnostic);
    }
}
