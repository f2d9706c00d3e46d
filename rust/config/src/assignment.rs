//! A line that gives a key a value.

use std::path::PathBuf;

use crate::{
    located::{Located, Place},
    report::{Diagnostic, Report},
    route_tables::RouteTables,
    text::{Text, is_space},
    values::Parsed,
};

/// A key's value, as its entry in the table takes it: parsed values go to a section, errors and warnings to the report.
pub(crate) struct Assignment<'a> {
    /// The key's name, for messages.
    pub(crate) name: &'static str,
    pub(crate) value: Text<'a>,
    /// The file's number.
    pub(crate) file: usize,
    pub(crate) tables: &'a RouteTables,
    pub(crate) report: &'a mut Report,
}

impl<'a> Assignment<'a> {
    /// Stores the value, or reports why not; the last of several prevails, as in wg-quick.
    pub(crate) fn set<T>(
        &mut self,
        slot: &mut Option<Located<T>>,
        parse: impl FnOnce(Text<'a>) -> Parsed<T>,
    ) {
        let Some(located) = self.accept(self.value, parse(self.value)) else {
            return;
        };
        if let Some(former) = slot {
            let title = format!("`{}` is set twice", self.name);
            let warning = Diagnostic::warning(title, located.at, "this value is used");
            self.report.push(warning.also(former.at, "ignored"));
        }
        *slot = Some(located);
    }

    /// Stores the value; an empty one clears the slot.
    pub(crate) fn set_or_clear<T>(
        &mut self,
        slot: &mut Option<Located<T>>,
        parse: impl FnOnce(Text<'a>) -> Parsed<T>,
    ) {
        match self.value.is_empty() {
            true => *slot = None,
            false => self.set(slot, parse),
        }
    }

    /// Stores the path of a file, which is read later.
    pub(crate) fn set_path(&mut self, slot: &mut Option<Located<PathBuf>>) {
        self.set(slot, |value| Ok(PathBuf::from(value.text)));
    }

    /// Adds each of several items to a list, or reports why not.
    pub(crate) fn push<T>(
        &mut self,
        list: &mut Vec<Located<T>>,
        items: impl IntoIterator<Item = Text<'a>>,
        parse: impl Fn(Text<'a>) -> Parsed<T>,
    ) {
        for item in items {
            list.extend(self.accept(item, parse(item)));
        }
    }

    /// Adds a shell command, if there is one.
    pub(crate) fn push_command(&mut self, list: &mut Vec<Located<String>>) {
        let command = Some(self.value).filter(|it| !it.is_empty());
        self.push(list, command, |value| Ok(value.text.to_owned()));
    }

    /// Splits the value at commas.
    pub(crate) fn items(&self) -> impl Iterator<Item = Text<'a>> + use<'a> {
        self.value.split(|c| c == ',')
    }

    /// Splits the value at commas and white space, as wg-quick does.
    pub(crate) fn words(&self) -> impl Iterator<Item = Text<'a>> + use<'a> {
        let items = self.value.split(|c| c == ',' || is_space(c));
        items.filter(|item| !item.is_empty())
    }

    /// Gives a value its place, or reports why it was refused.
    pub(crate) fn accept<T>(&mut self, text: Text<'a>, parsed: Parsed<T>) -> Option<Located<T>> {
        match parsed {
            Ok(value) => Some(Located {
                value,
                at: self.at(text),
            }),
            Err(mut bad) => {
                let strange = text.text.chars().find(|c| !c.is_ascii());
                let hint = |c| {
                    let code = u32::from(c);
                    format!("the value contains U+{code:04X}, which is not ASCII")
                };
                bad.help = bad.help.or_else(|| strange.map(hint));
                self.report.push(bad.diagnostic(self.name, self.file));
                None
            }
        }
    }

    pub(crate) fn at(&self, text: Text<'_>) -> Place {
        Place::new(self.file, text.range())
    }
}
