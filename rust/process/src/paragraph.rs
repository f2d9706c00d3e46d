//! Text for a terminal, broken into lines.

use textwrap::{Options, WordSeparator, WordSplitter, WrapAlgorithm, core::Word};

/// The columns of a terminal, at least.
const COLUMNS: usize = 80;

/// Breaks a text into lines that begin with `first` and `further`. Longer words stay whole, as do commands in
/// backquotes, which people copy.
pub fn fill(text: &str, first: &str, further: &str) -> String {
    let options = Options::new(COLUMNS)
        .initial_indent(first)
        .subsequent_indent(further)
        .break_words(false)
        .word_separator(WordSeparator::Custom(words))
        .word_splitter(WordSplitter::NoHyphenation)
        .wrap_algorithm(WrapAlgorithm::FirstFit);
    textwrap::fill(text, options)
}

/// Splits a line into what ends with spaces, except for those between backquotes.
fn words(line: &str) -> Box<dyn Iterator<Item = Word<'_>> + '_> {
    let (mut is_quoted, mut is_after_space) = (false, false);
    let starts_word = line.char_indices().filter_map(move |(at, c)| {
        let is_start = is_after_space && c != ' ' && !is_quoted;
        is_quoted ^= c == '`';
        is_after_space = c == ' ';
        is_start.then_some(at)
    });
    let mut from = 0;
    let ends = starts_word.chain([line.len()]);
    Box::new(ends.map(move |to| Word::from(&line[std::mem::replace(&mut from, to)..to])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_filled_word_by_word() {
        let word = "x".repeat(39);
        let text = fill(&format!("{word} {word} é z"), " ", "   ");
        assert_eq!(text, format!(" {word} {word}\n   é z"));
        let long = "x".repeat(COLUMNS + 1);
        assert_eq!(
            fill(&format!("a {long} b"), "", ""),
            format!("a\n{long}\nb")
        );
    }

    #[test]
    fn commands_are_not_broken() {
        let text = format!("{} run `convoy up wg0`, `ip link`.", "x".repeat(65));
        let (first, second) = text.split_at(70);
        assert_eq!(
            fill(&text, "", "  "),
            format!("{}\n  {second}", first.trim_end())
        );
    }
}
