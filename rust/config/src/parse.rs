//! Parses the text of one file. Pure: key files are read later.

mod foreign;
mod notes;

use crate::{
    assignment::Assignment,
    config::Peer,
    draft::{Draft, PeerDraft},
    key::{Dialect, Form, Key, Section, Take},
    keys::find,
    nearest::nearest_word,
    report::{Diagnostic, Report},
    route_tables::RouteTables,
    text::{Comment, Content, Text, lines, without_controls},
};
use foreign::{Foreign, ForeignKeys};
use notes::Notes;

/// Adds a file to a draft, and its errors and warnings to a report.
pub(crate) fn parse(
    file: usize,
    text: &str,
    tables: &RouteTables,
    draft: &mut Draft,
    report: &mut Report,
) {
    let notes = Notes { file, report };
    let mut parser = Parser {
        notes,
        tables,
        draft,
        current: Current::Nothing,
        name: None,
        foreign: ForeignKeys::default(),
    };
    for line in lines(text) {
        parser.line(line);
    }
    parser.name_current_peer();
    parser.end_section();
    parser.foreign.report(parser.notes.report);
}

struct Parser<'a> {
    notes: Notes<'a>,
    tables: &'a RouteTables,
    draft: &'a mut Draft,
    current: Current,
    /// A friendly name that belongs to the next `[Peer]` if that follows at once.
    name: Option<String>,
    foreign: ForeignKeys,
}

/// The section that the current line is in.
enum Current {
    /// None yet.
    Nothing,
    Interface,
    Peer(Box<PeerDraft>),
    /// One that was refused; its keys are not examined.
    Refused,
}

impl Parser<'_> {
    fn line(&mut self, line: Text<'_>) {
        let parts = line.classify();
        let is_comment = matches!(parts.content, Content::Nothing) && line.text.contains('#');
        let is_peer = matches!(parts.content, Content::Section(it) if it.is("[Peer]"));
        if !is_comment && !is_peer {
            self.name_current_peer();
        }
        self.check_characters(line);
        match parts.content {
            Content::Nothing => {}
            Content::Section(section) => self.section(section),
            Content::Pair(key, value) => {
                self.pair(Dialect::WgQuick, key, value);
                self.check_hook(line, key, value);
            }
            Content::Other(text) => self.other(text),
        }
        match parts.comment {
            Comment::Plain => {}
            Comment::FriendlyName(name) => self.name = Some(without_controls(name.text)),
            Comment::Directive(Content::Pair(key, value)) => {
                self.pair(Dialect::Convoy, key, value);
            }
            Comment::Directive(Content::Nothing) => {}
            Comment::Directive(Content::Other(text) | Content::Section(text)) => self.other(text),
            Comment::Late(word) => {
                let title = "`#convoy:` must be on a line of its own";
                let diagnostic = self
                    .notes
                    .error(title, word, "expected at the start of a line");
                self.notes.report.push(diagnostic);
            }
            Comment::WithoutColon(_, key) if find(key).is_none() => {}
            Comment::WithoutColon(word, _) => {
                let title = "`#convoy` without a colon is ignored";
                let at = self.notes.at(word);
                let diagnostic = Diagnostic::warning(title, at, "expected `#convoy:`");
                let diagnostic = diagnostic.help("write `#convoy: Key = value`");
                self.notes.report.push(diagnostic);
            }
        }
    }

    fn section(&mut self, section: Text<'_>) {
        self.end_section();
        let at = self.notes.at(section);
        if section.is("[Peer]") {
            let mut draft = PeerDraft::new(at);
            draft.peer.friendly_name = self.name.take();
            self.current = Current::Peer(Box::new(draft));
            return;
        }
        self.current = Current::Refused;
        if !section.is("[Interface]") {
            let label = "expected `[Interface]` or `[Peer]`";
            let mut diagnostic = self.notes.error("unknown section", section, label);
            let word = section.compact();
            if self.notes.report.shows_more_errors()
                && let Some(meant) = nearest_word(&word, ["[Interface]", "[Peer]"])
            {
                diagnostic = diagnostic.help(format!("did you mean `{meant}`?"));
            }
            self.notes.report.push(diagnostic);
        } else if at.is_drop_in() {
            let title = "`[Interface]` is not allowed here";
            let diagnostic = self.notes.error(title, section, "expected `[Peer]`");
            let help = "files in NAME.d contain peers only; move this section to NAME.conf";
            self.notes.report.push(diagnostic.help(help));
        } else {
            self.current = Current::Interface;
            match self.draft.header {
                None => self.draft.header = Some(at),
                Some(first) => self.notes.report.push(
                    Diagnostic::warning(
                        "a second `[Interface]` section",
                        at,
                        "merged with the first",
                    )
                    .also(first, "the first section"),
                ),
            }
        }
    }

    fn pair(&mut self, dialect: Dialect, key: Text<'_>, value: Text<'_>) {
        let here = match &self.current {
            Current::Refused => return,
            Current::Nothing => {
                let label = "expected a section first";
                let diagnostic = self.notes.error("a key outside of any section", key, label);
                let help = "start the file with `[Interface]`";
                return self.notes.report.push(diagnostic.help(help));
            }
            Current::Interface => Section::Interface,
            Current::Peer(_) => Section::Peer,
        };
        let Some(known) = find(&key.compact()) else {
            return match Foreign::find(&key.compact()) {
                Some(foreign) if dialect == Dialect::WgQuick => {
                    self.foreign.add(foreign, self.notes.at(key), value);
                }
                _ => self.notes.unknown_key(dialect, key, value),
            };
        };
        if let Current::Peer(peer) = &mut self.current {
            peer.has_public_key |= known.form == Form::PublicKey;
        }
        if known.dialect != dialect {
            return self.notes.wrong_dialect(known, key);
        }
        if known.section() != here {
            return self.notes.wrong_section(known, key, here);
        }
        if value.is_empty() && !matches!(known.form, Form::MayBeEmpty | Form::Command) {
            let title = format!("`{}` has no value", known.name);
            let diagnostic = self.notes.error(title, key, "expected a value");
            let help = "to leave the key unset, remove the line";
            return self.notes.report.push(diagnostic.help(help));
        }
        if value.invisible().is_some() && known.form != Form::Command {
            // It was reported with its line.
            return;
        }
        self.take(known, value);
    }

    fn take(&mut self, key: &Key, value: Text<'_>) {
        let mut line = Assignment {
            name: key.name,
            value,
            file: self.notes.file,
            tables: self.tables,
            report: self.notes.report,
        };
        let interface = &mut self.draft.interface;
        match (&key.take, &mut self.current) {
            (Take::Peer(take), Current::Peer(peer)) => take(peer, &mut line),
            (Take::Interface(take), _) => take(interface, &mut line),
            (Take::Forwarding(take), _) => {
                let taken = interface.forwarding.take(key.name, *take, value, line.file);
                line.accept(value, taken);
            }
            (Take::Peer(_), _) => unreachable!("INVARIANT: the caller checks the section"),
        }
    }

    fn other(&mut self, text: Text<'_>) {
        if matches!(self.current, Current::Refused) {
            return;
        }
        let label = "expected `Key = value`";
        let diagnostic = self
            .notes
            .error("neither a section nor a key with a value", text, label);
        let word = text.compact();
        let diagnostic = match self.notes.nearest(&word) {
            Some(key) => diagnostic.help(format!("did you mean `{}`?", key.written())),
            None => diagnostic.help("start comments with `#`"),
        };
        self.notes.report.push(diagnostic);
    }

    /// Reports the first invisible character of a line, outside of commands and comments.
    fn check_characters(&mut self, line: Text<'_>) {
        let content = match line.split_once('#') {
            None => Some(line),
            Some((before, _)) if !before.trim().is_empty() => Some(before),
            Some((before, comment)) => match line.classify().comment {
                Comment::Directive(_) => Some(comment),
                _ => Some(before),
            },
        };
        let key = content
            .and_then(|content| content.split_once('='))
            .map(|(key, _)| key);
        let checked = match (content, key) {
            (_, Some(key)) if is_hook(key) => Some(key),
            (content, _) => content,
        };
        if let Some((at, found)) = checked.and_then(Text::invisible) {
            let error = self.notes.invisible(at, found);
            self.notes.report.push(error);
        }
    }

    /// Warns if a comment begins inside of a hook's quotation marks.
    fn check_hook(&mut self, line: Text<'_>, key: Text<'_>, value: Text<'_>) {
        let is_open = |mark| value.text.matches(mark).count() % 2 == 1;
        if is_hook(key) && line.text.contains('#') && (is_open('"') || is_open('\'')) {
            let diagnostic = Diagnostic::warning(
                "`#` starts a comment even inside quotes",
                self.notes.at(value),
                "the command ends here",
            );
            let help = "put the command in a script and call that";
            self.notes.report.push(diagnostic.help(help));
        }
    }

    fn name_current_peer(&mut self) {
        if let (Some(name), Current::Peer(peer)) = (self.name.take(), &mut self.current) {
            peer.peer.friendly_name = Some(name);
        }
    }

    fn end_section(&mut self) {
        let Current::Peer(peer) = std::mem::replace(&mut self.current, Current::Nothing) else {
            return;
        };
        if let Some(peer) = peer.finish(&mut self.notes) {
            self.draft.peers.push(peer);
        }
    }
}

impl PeerDraft {
    /// The peer, if its section has a valid public key; reports its absence.
    fn finish(self, notes: &mut Notes<'_>) -> Option<Peer> {
        let mut peer = self.peer;
        peer.endpoints.splice(..0, self.endpoint);
        if !self.has_public_key {
            let title = "missing `PublicKey`";
            let error = Diagnostic::error(title, self.header, "in this section");
            notes.report.push(error.help("the file may be cut off"));
            return None;
        }
        peer.public_key = self.public_key?;
        Some(peer)
    }
}

fn is_hook(key: Text<'_>) -> bool {
    find(&key.compact()).is_some_and(|key| key.form == Form::Command)
}

#[cfg(test)]
mod tests;
