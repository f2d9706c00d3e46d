//! Splits a file into lines, and lines into sections, pairs and comments, as wg-quick and wg do.

use std::ops::Range;

use convoy_types::controls_terminal;
use zeroize::Zeroizing;

/// A part of a file and its offset in bytes. Has no `Debug`: it may be a key.
#[derive(Clone, Copy)]
pub(crate) struct Text<'a> {
    pub(crate) start: usize,
    pub(crate) text: &'a str,
}

/// One line, classified.
pub(crate) struct Line<'a> {
    pub(crate) content: Content<'a>,
    pub(crate) comment: Comment<'a>,
}

/// The part of a line before its first `#`, or the part of a directive behind `convoy:`.
#[derive(Clone, Copy)]
pub(crate) enum Content<'a> {
    Nothing,
    /// Begins with `[`.
    Section(Text<'a>),
    /// `key = value`; the value may be empty.
    Pair(Text<'a>, Text<'a>),
    /// None of these.
    Other(Text<'a>),
}

/// The part of a line from its first `#` on.
#[derive(Clone, Copy)]
pub(crate) enum Comment<'a> {
    /// Nothing that concerns Convoy.
    Plain,
    /// `#convoy: Key = value` on a line of its own.
    Directive(Content<'a>),
    /// `#convoy:` behind something else.
    Late(Text<'a>),
    /// `#convoy` without its colon, and a word that may be a key.
    WithoutColon(Text<'a>, &'a str),
    /// `# friendly_name = X` on a line of its own.
    FriendlyName(Text<'a>),
}

/// The lines of a file without their line feeds; a byte order mark is skipped.
pub(crate) fn lines(text: &str) -> impl Iterator<Item = Text<'_>> {
    let mut start = if text.starts_with('\u{feff}') { 3 } else { 0 };
    text[start..].split('\n').map(move |line| {
        let line = Text { start, text: line };
        start = line.end() + 1;
        line
    })
}

impl<'a> Text<'a> {
    pub(crate) fn end(self) -> usize {
        self.start + self.text.len()
    }

    pub(crate) fn range(self) -> Range<usize> {
        self.start..self.end()
    }

    pub(crate) fn is_empty(self) -> bool {
        self.text.is_empty()
    }

    /// Without white space, also invisible, at both ends.
    pub(crate) fn trim(self) -> Self {
        let is_blank = |c: char| is_space(c) || is_invisible(c);
        let text = self.text.trim_start_matches(is_blank);
        let start = self.end() - text.len();
        let text = text.trim_end_matches(is_blank);
        Self { start, text }
    }

    /// The first character that looks like a space, or like nothing.
    pub(crate) fn invisible(self) -> Option<(Self, char)> {
        let (at, found) = self.text.char_indices().find(|(_, c)| is_invisible(*c))?;
        let text = &self.text[at..at + found.len_utf8()];
        let start = self.start + at;
        Some((Self { start, text }, found))
    }

    /// The parts before and after the first `separator`.
    pub(crate) fn split_once(self, separator: char) -> Option<(Self, Self)> {
        let (before, after) = self.text.split_once(separator)?;
        let start = self.end() - after.len();
        Some((
            Self {
                text: before,
                ..self
            },
            Self { start, text: after },
        ))
    }

    /// The parts between separators, trimmed.
    pub(crate) fn split(
        self,
        is_separator: impl Fn(char) -> bool + Copy + 'a,
    ) -> impl Iterator<Item = Self> + 'a {
        let mut start = self.start;
        self.text.split(is_separator).map(move |text| {
            let part = Self { start, text };
            // INVARIANT: every separator is ASCII.
            start = part.end() + 1;
            part.trim()
        })
    }

    /// Without any white space, which wg ignores everywhere in a line, and without invisible characters.
    pub(crate) fn compact(self) -> Zeroizing<String> {
        let mut compact = Zeroizing::new(String::with_capacity(self.text.len()));
        compact.extend(
            self.text
                .chars()
                .filter(|c| !is_space(*c) && !is_invisible(*c)),
        );
        compact
    }

    /// Returns whether this is `word`, apart from case and white space.
    pub(crate) fn is(self, word: &str) -> bool {
        self.compact().eq_ignore_ascii_case(word)
    }

    /// The rest behind `word` in any case.
    fn strip_prefix(self, word: &str) -> Option<Self> {
        let (first, rest) = self.text.split_at_checked(word.len())?;
        first.eq_ignore_ascii_case(word).then_some(Self {
            start: self.start + word.len(),
            text: rest,
        })
    }

    /// Classifies this line.
    pub(crate) fn classify(self) -> Line<'a> {
        let Some((content, comment)) = self.split_once('#') else {
            let content = self.content();
            let comment = Comment::Plain;
            return Line { content, comment };
        };
        let content = content.content();
        let is_alone = matches!(content, Content::Nothing);
        let comment = comment.comment(is_alone);
        Line { content, comment }
    }

    fn content(self) -> Content<'a> {
        let content = self.trim();
        if content.is_empty() {
            return Content::Nothing;
        }
        if content.text.starts_with('[') {
            return Content::Section(content);
        }
        match content.split_once('=') {
            Some((key, value)) => Content::Pair(key.trim(), value.trim()),
            None => Content::Other(content),
        }
    }

    fn comment(self, is_alone: bool) -> Comment<'a> {
        let comment = self.trim();
        if let Some(rest) = comment.strip_prefix("friendly_name") {
            return match rest.trim().strip_prefix("=") {
                Some(name) if is_alone => Comment::FriendlyName(name.trim()),
                _ => Comment::Plain,
            };
        }
        let Some(rest) = comment.strip_prefix("convoy") else {
            return Comment::Plain;
        };
        let word = Self {
            start: comment.start,
            text: &comment.text[.."convoy".len()],
        };
        let directive = rest.text.split('#').next().unwrap_or_default();
        match rest.trim().strip_prefix(":") {
            Some(_) if !is_alone => Comment::Late(word),
            Some(_) => {
                let directive = Self {
                    text: directive,
                    ..rest
                };
                let (_, content) = directive.split_once(':').unwrap_or((rest, directive));
                Comment::Directive(content.content())
            }
            None => {
                let key = directive.split('=').next().unwrap_or_default();
                let key = key.trim_matches(|c: char| !c.is_ascii_alphabetic());
                match key.len() < directive.len() {
                    true => Comment::WithoutColon(word, key),
                    false => Comment::Plain,
                }
            }
        }
    }
}

/// White space as wg and the C locale have it.
pub(crate) fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t'..='\r')
}

/// Returns whether a character beyond ASCII looks like a space, or like nothing. Such characters come with text that is
/// copied from a web page or a chat.
pub(crate) fn is_invisible(c: char) -> bool {
    is_wide_space(c)
        || matches!(
            c,
            '\u{85}' | '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{180e}'
        )
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
        || matches!(
            c,
            '\u{2800}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
        )
}

/// Returns whether a character beyond ASCII is a space.
pub(crate) fn is_wide_space(c: char) -> bool {
    matches!(
        c,
        '\u{a0}' | '\u{1680}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}'
    )
}

/// Replaces characters that control a terminal by `?`, line feeds included.
pub(crate) fn without_controls(text: &str) -> String {
    let replaced = |c| if controls_terminal(c) { '?' } else { c };
    text.chars().map(replaced).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::find;

    #[test]
    fn lines_know_their_offsets() {
        let text = "\u{feff}a\r\n\n b";
        let found: Vec<_> = lines(text).map(|line| (line.start, line.text)).collect();
        assert_eq!(found, [(3, "a\r"), (6, ""), (7, " b")]);
        assert!(lines(text).all(|line| &text[line.range()] == line.text));
    }

    #[test]
    fn a_pair_is_trimmed_and_ends_at_a_comment() {
        let Content::Pair(key, value) = shown("\t Key\x0b = a = b \r # c = d") else {
            panic!()
        };
        assert_eq!((key.text, value.text), ("Key", "a = b"));
        assert_eq!((key.start, value.start), (2, 9));
    }

    #[test]
    fn a_directive_stands_alone_and_has_a_colon() {
        let comment = |text| Text { start: 0, text }.classify().comment;
        for text in ["#convoy: A = b # c", " # CONVOY :A=b", "#convoy:A =b"] {
            let Comment::Directive(Content::Pair(key, value)) = comment(text) else {
                panic!("{text}")
            };
            assert_eq!((key.text, value.text), ("A", "b"));
        }
        assert!(matches!(comment("a=b #convoy: A = b"), Comment::Late(_)));
        let is_key = |word| find(word).is_some();
        assert!(matches!(
            comment("#convoy MTU = 1"),
            Comment::WithoutColon(_, key) if is_key(key)
        ));
        for plain in [
            "# convoy is fast",
            "# convoy's port = 1",
            "#convoys: a = b",
            "# a = b",
            "##convoy: A = b",
        ] {
            let is_plain = match comment(plain) {
                Comment::WithoutColon(_, word) => !is_key(word),
                comment => matches!(comment, Comment::Plain),
            };
            assert!(is_plain, "{plain}");
        }
    }

    #[test]
    fn a_friendly_name_may_contain_anything() {
        let line = Text {
            start: 0,
            text: "#friendly_name= Böb # 1 ",
        };
        let Comment::FriendlyName(name) = line.classify().comment else {
            panic!()
        };
        assert_eq!(name.text, "Böb # 1");
    }

    fn shown(text: &str) -> Content<'_> {
        Text { start: 0, text }.classify().content
    }
}
