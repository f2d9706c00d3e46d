//! Parses a forwarder's file.

use std::{os::fd::AsFd, path::PathBuf};

use super::{model::Forwarding, source::Source, take::refuse_unguarded};
use crate::{
    key::Take,
    key_file::{KeyFiles, credentials},
    keys::{find_of_forwarder, of_forwarder},
    located::{Located, Place},
    nearest::nearest_word,
    report::{Diagnostic, Report},
    text::{Content, Text, lines},
};

/// Parses a file and checks it as a whole.
pub(super) fn parse(source: &Source, report: &mut Report) -> Forwarding {
    let mut parser = Parser {
        forwarding: Forwarding::default(),
        report,
    };
    for line in lines(&source.text) {
        parser.line(line);
    }
    parser.finish(source)
}

struct Parser<'a> {
    forwarding: Forwarding,
    report: &'a mut Report,
}

impl Parser<'_> {
    fn line(&mut self, line: Text<'_>) {
        match line.classify().content {
            Content::Nothing => {}
            Content::Pair(key, value) => self.pair(key, value),
            Content::Section(text) | Content::Other(text) => {
                let error = Diagnostic::error(
                    "not a key with a value",
                    place(text),
                    "expected `Key = value`",
                );
                self.report.push(error.help("start comments with `#`"));
            }
        }
    }

    fn pair(&mut self, key: Text<'_>, value: Text<'_>) {
        let word = key.compact();
        let Some(known) = find_of_forwarder(&word) else {
            let error = Diagnostic::error("unknown key", place(key), "");
            let near = nearest_word(&word, of_forwarder().map(|key| key.name));
            self.report.push(match near {
                Some(near) => error.help(format!("did you mean `{near}`?")),
                None => error.help("`convoy help forward` lists the keys"),
            });
            return;
        };
        if let Take::Forwarding(take) = known.take
            && let Err(bad) = self.forwarding.take(known.name, take, value, 0)
        {
            self.report.push(bad.diagnostic(&word, 0));
        }
    }

    fn finish(mut self, source: &Source) -> Forwarding {
        let report = self.report;
        let credentials = credentials();
        let files = KeyFiles {
            credentials: credentials.as_deref(),
            directory: source.directory.as_fd(),
        };
        let read = |file: &Located<PathBuf>| files.read_login(file, report);
        self.forwarding.read_logins(read);
        if self.forwarding.listeners.is_empty() && !report.has_errors() {
            let path = &source.files.0[0].path;
            let error = Diagnostic::file_error("nothing is forwarded", path);
            report.push(error.help("add a line such as `Forward = 8080:192.0.2.1:80`"));
        }
        refuse_unguarded(&self.forwarding, report);
        self.forwarding
    }
}

pub(super) fn place(text: Text<'_>) -> Place {
    Place::new(0, text.range())
}
