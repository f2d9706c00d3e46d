//! Characters that do more to a terminal than be shown.

/// Returns whether a character would control a terminal, or turn the direction of its text around.
#[must_use]
pub fn controls_terminal(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}')
        || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
