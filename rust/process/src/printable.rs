//! Words of others, fit for a terminal.

use convoy_types::controls_terminal;

/// Replaces what would control a terminal, or turn the direction of the text, by `?`; lines and tabs stay.
///
/// Error texts quote files, name servers, peers and other programs.
#[must_use]
pub fn printable(text: &str) -> String {
    let replaced = |c: char| match c {
        '\n' | '\t' => c,
        _ if controls_terminal(c) => '?',
        _ => c,
    };
    text.chars().map(replaced).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_others_neither_control_a_terminal_nor_turn_its_text_around() {
        for (text, shown) in [
            ("plain: ü €\n\tand more", "plain: ü €\n\tand more"),
            ("\u{1b}]0;title\u{7}\u{1b}[2J", "?]0;title??[2J"),
            ("back\rover", "back?over"),
            ("\u{9b}31m", "?31m"),
            ("a\u{202e}b\u{2066}c\u{61c}", "a?b?c?"),
        ] {
            assert_eq!(printable(text), shown);
        }
    }
}
