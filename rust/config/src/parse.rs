//! Parses the text of one file. Pure: key files are read later.

mod foreign;
mod interface;
mod notes;
mod peer;

pub(crate) use interface::clamped;

use convoy_types::PublicKey;

use crate::{
    config::{Endpoint, Interface, Peer},
    keys::{Dialect, Foreign, KeyInfo, KeyName, Section, nearest_word},
    located::{Located, Place},
    report::{Diagnostic, Report},
    route_tables::RouteTables,
    text::{Comment, Content, Text, lines},
};
use foreign::ForeignKeys;
use notes::Notes;

/// The files parsed so far; not checked as a whole.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    /// The first `[Interface]`.
    pub(crate) header: Option<Place>,
    pub(crate) interface: Interface,
    pub(crate) peers: Vec<Peer>,
}

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

/// A peer whose section has not ended.
struct PeerDraft {
    header: Place,
    /// Whether there is a `PublicKey`, valid or not.
    has_public_key: bool,
    public_key: Option<Located<PublicKey>>,
    endpoint: Option<Located<Endpoint>>,
    peer: Peer,
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
            Comment::FriendlyName(name) => self.name = Some(printable(name.text)),
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
            Comment::WithoutColon(word) => {
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
            let mut peer = Peer::new(Located::nowhere(PublicKey([0; 32])));
            peer.friendly_name = self.name.take();
            self.current = Current::Peer(Box::new(PeerDraft {
                header: at,
                has_public_key: false,
                public_key: None,
                endpoint: None,
                peer,
            }));
            return;
        }
        self.current = Current::Refused;
        if !section.is("[Interface]") {
            let label = "expected `[Interface]` or `[Peer]`";
            let mut diagnostic = self.notes.error("unknown section", section, label);
            let word = section.compact();
            if self.notes.report.shows_more_errors()
                && let Some(meant) = nearest_word(&word, &["[Interface]", "[Peer]"])
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
        let Some(info) = KeyInfo::find(&key.compact()) else {
            return match Foreign::find(&key.compact()) {
                Some(foreign) if dialect == Dialect::WgQuick => {
                    self.foreign.add(foreign, self.notes.at(key), value);
                }
                _ => self.notes.unknown_key(dialect, key, value),
            };
        };
        if matches!(self.current, Current::Peer(_)) && info.key == KeyName::PublicKey {
            self.mark_public_key();
        }
        if info.dialect != dialect {
            return self.notes.wrong_dialect(info, key);
        }
        if info.section != here {
            return self.notes.wrong_section(info, key, here);
        }
        if value.is_empty() && !may_be_empty(info.key) {
            let title = format!("`{}` has no value", info.name);
            let diagnostic = self.notes.error(title, key, "expected a value");
            let help = "to leave the key unset, remove the line";
            return self.notes.report.push(diagnostic.help(help));
        }
        if value.invisible().is_some() && !is_hook(info.key) {
            // It was reported with its line.
            return;
        }
        let Self {
            notes,
            tables,
            draft,
            current,
            ..
        } = self;
        match current {
            Current::Peer(peer) => peer.value(notes, info, value),
            _ => interface::value(&mut draft.interface, notes, tables, info, value),
        }
    }

    fn mark_public_key(&mut self) {
        if let Current::Peer(peer) = &mut self.current {
            peer.has_public_key = true;
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
        let info = key.and_then(|key| KeyInfo::find(&key.compact()));
        let checked = match (content, key) {
            (_, Some(key)) if info.is_some_and(|info| is_hook(info.key)) => Some(key),
            (content, _) => content,
        };
        if let Some((at, found)) = checked.and_then(Text::invisible) {
            let error = self.notes.invisible(at, found);
            self.notes.report.push(error);
        }
    }

    /// Warns if a comment begins inside of a hook's quotation marks.
    fn check_hook(&mut self, line: Text<'_>, key: Text<'_>, value: Text<'_>) {
        let info = KeyInfo::find(&key.compact());
        let is_hook = info.is_some_and(|info| is_hook(info.key));
        let is_open = |mark| value.text.matches(mark).count() % 2 == 1;
        if is_hook && line.text.contains('#') && (is_open('"') || is_open('\'')) {
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

/// wg-quick takes an empty value of its own keys for none.
fn may_be_empty(key: KeyName) -> bool {
    matches!(
        key,
        KeyName::Address | KeyName::Dns | KeyName::Mtu | KeyName::Table
    ) || is_hook(key)
}

fn is_hook(key: KeyName) -> bool {
    matches!(
        key,
        KeyName::PreUp | KeyName::PostUp | KeyName::PreDown | KeyName::PostDown
    )
}

/// The text with control characters replaced: it is shown on terminals.
fn printable(text: &str) -> String {
    let replaced = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    text.chars().map(replaced).collect()
}

#[cfg(test)]
mod tests;
