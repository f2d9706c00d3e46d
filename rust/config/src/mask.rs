//! The text of a file as diagnostics may show it: of the same length, but without its secrets.
//!
//! Diagnostics see only this text, so none can show a key by mistake. It contains only text that is known
//! to be public: the value of an unknown key may be a secret under a misspelt name, and a line without a
//! key may be the second half of a secret.

use std::ops::Range;

use convoy_types::controls_terminal;

use crate::{
    base64::{decode_key, is_base64, may_be_a_key},
    key::Form,
    keys::{find, may_have_password},
    text::{Comment, Content, Text, lines},
};

/// `text` with its secrets replaced by `*`, its comments by spaces and control characters by `?`.
pub(crate) fn masked(text: &str) -> String {
    let mut shown = text.as_bytes().to_vec();
    for line in lines(text) {
        mask_line(line, &mut shown);
    }
    replace_controls(text, &mut shown);
    String::from_utf8(shown).unwrap_or_default()
}

/// `text` with its control characters replaced by `?`, for a file that has no secrets.
pub(crate) fn unmasked(text: &str) -> String {
    let mut shown = text.as_bytes().to_vec();
    replace_controls(text, &mut shown);
    String::from_utf8(shown).unwrap_or_default()
}

fn mask_line(line: Text<'_>, shown: &mut [u8]) {
    let parts = line.classify();
    mask_content(parts.content, shown);
    let Some((_, comment)) = line.split_once('#') else {
        return;
    };
    let kept = match parts.comment {
        Comment::WithoutColon(word, key) if find(key).is_some() => word.range(),
        Comment::Plain | Comment::WithoutColon(..) => comment.start - 1..comment.start - 1,
        Comment::FriendlyName(name) => {
            mask_keys(name, shown);
            comment.range()
        }
        Comment::Late(word) => word.range(),
        Comment::Directive(content) => {
            mask_content(content, shown);
            let end = comment
                .text
                .find('#')
                .map_or(comment.end(), |at| comment.start + at);
            comment.start..end
        }
    };
    shown[kept.end.max(comment.start)..comment.end()].fill(b' ');
    if kept.is_empty() {
        shown[comment.start - 1] = b' ';
    }
}

fn mask_content(content: Content<'_>, shown: &mut [u8]) {
    match content {
        Content::Nothing => {}
        Content::Section(section) => {
            if section.text.len() > LONGEST_SECTION {
                shown[section.range()].fill(b'*');
            }
        }
        Content::Pair(key, value) => mask_pair(key, value, shown),
        Content::Other(other) => {
            if find(&other.compact()).is_none() {
                shown[other.range()].fill(b'*');
            }
        }
    }
}

fn mask_pair(key: Text<'_>, value: Text<'_>, shown: &mut [u8]) {
    let word = key.compact();
    match find(&word).map(|key| key.form) {
        Some(Form::PublicKey) if is_public(value) => {}
        Some(form) if form.is_a_key() => shown[value.range()].fill(b'*'),
        Some(Form::Server) if may_have_password(value) => shown[value.range()].fill(b'*'),
        Some(_) => mask_keys(value, shown),
        None => {
            shown[value.range()].fill(b'*');
            if !is_name(&word) || value.is_empty() {
                shown[key.range()].fill(b'*');
            }
        }
    }
}

fn mask_keys(value: Text<'_>, shown: &mut [u8]) {
    for key in keys_in(value) {
        shown[key].fill(b'*');
    }
}

/// Returns whether an unknown key looks like the name of one, rather than like a piece of a secret.
pub(crate) fn is_name(word: &str) -> bool {
    word.len() <= LONGEST_NAME && word.bytes().all(|b| b.is_ascii_alphabetic() || b == b'_')
}

/// Returns whether this is a public key, and not a private one in its place: those of `wg genkey` have a form of their
/// own (RFC 7748 §5), which few public ones have.
fn is_public(value: Text<'_>) -> bool {
    let is_clamped = |key: &[u8; 32]| key[0] & 7 == 0 && key[31] & 0xc0 == 0x40;
    decode_key(&value.compact()).is_some_and(|key| !is_clamped(&key))
}

/// Returns where keys may stand.
fn keys_in(value: Text<'_>) -> impl Iterator<Item = Range<usize>> + '_ {
    let mut next = value.start;
    let words = value.text.split_inclusive(|c| !is_base64(c));
    words.filter_map(move |word| {
        let start = next;
        next += word.len();
        let word = word.trim_end_matches(|c| !is_base64(c) && c != '=');
        may_be_a_key(word).then_some(start..start + word.len())
    })
}

/// Keeps a file from controlling the terminal.
fn replace_controls(text: &str, shown: &mut [u8]) {
    for (start, c) in text.char_indices() {
        if controls_terminal(c) && !matches!(c, '\n' | '\t' | '\r') {
            let range = start..start + c.len_utf8();
            // A comment that is hidden already stays so.
            if shown[range.clone()] == text.as_bytes()[range.clone()] {
                shown[range].fill(b'?');
            }
        }
    }
}

/// Longest unknown key that is shown, in bytes; a longer one may be a secret.
const LONGEST_NAME: usize = 24;
/// Longest line with an unknown section that is shown, in bytes.
const LONGEST_SECTION: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=";

    #[test]
    fn a_key_is_hidden_in_any_surroundings_and_lengths_stay() {
        for line in [
            "PrivateKey = S",
            "privatekey=S # S",
            "PresharedKey\t=\tS\r",
            "PrivatKey = S",
            "Private = S",
            "PrivateKey S",
            "S",
            "= S",
            "[S]",
            "# PrivateKey = S",
            "Address = S",
            "PostUp = wg set %i private-key <(echo S)",
            "#convoy: PrivateKey = S",
            "#convoy: PrivateKeyFile = S",
            "#convoy: S",
            "#convoy: KillSwitch = on # S",
            "DNS = 1.1.1.1 #convoy: S",
            "#convoy PrivateKey = S",
            "# friendly_name = S",
            "Ü = S",
        ] {
            let text = format!("a=b\n{}\nc=d", line.replace('S', SECRET));
            let shown = masked(&text);
            assert_eq!(shown.len(), text.len());
            for at in 0..SECRET.len() - 4 {
                assert!(!shown.contains(&SECRET[at..at + 4]), "{line}: {shown}");
            }
        }
    }

    #[test]
    fn a_key_that_was_wrapped_is_hidden_too() {
        for at in 1..SECRET.len() {
            let (first, second) = SECRET.split_at(at);
            let shown = masked(&format!("PrivateKey = {first}\n{second}"));
            let second = shown.lines().nth(1).unwrap();
            assert!(second.bytes().all(|b| b"*=".contains(&b)), "{shown}");
        }
    }

    #[test]
    fn what_is_no_public_key_is_hidden_where_one_is_expected() {
        for value in [
            // A private key, whole and mistyped.
            SECRET,
            &SECRET[..43],
            &SECRET[1..],
            &SECRET[..20],
            "xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=0",
            "my password",
        ] {
            for key in ["PublicKey", "publickey", "#convoy: PublicKey"] {
                let shown = masked(&format!("{key} = {value}"));
                assert_eq!(shown, format!("{key} = {}", "*".repeat(value.len())));
            }
        }
    }

    #[test]
    fn a_key_that_lacks_its_end_is_hidden_too() {
        for cut in [40, 43] {
            let cut = &SECRET[..cut];
            for line in [
                "Endpoint = ?",
                "Endpoint = ?:51820",
                "DNS = 10.0.0.1,?",
                "#convoy: PrivateKeyFile = ?",
                "#convoy: PresharedKeyFile = ?",
                "# friendly_name = ?",
                "PostUp = wg set %i private-key <(echo ?)",
            ] {
                let shown = masked(&line.replace('?', cut));
                assert_eq!(shown, line.replace('?', &"*".repeat(cut.len())));
            }
        }
    }

    #[test]
    fn public_values_stay() {
        for line in [
            "[Interface]",
            "ListenPort = many",
            "PublicKey = xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=",
            "#convoy: Endpoints = a:1, b:2",
            "# friendly_name = Ann",
            "AllowedIPs",
            "#convoy: PrivateKeyFile = /etc/wireguard/keys/of/Network1/and/its/Tunnels",
            "Endpoint = a.very.long.name.of.a.server.in.the.network.of.example.org:51820",
        ] {
            assert_eq!(masked(line), line);
        }
        assert_eq!(masked("MTU = 1 # x"), "MTU = 1    ");
        assert_eq!(masked("Foo = x"), "Foo = *");
        assert_eq!(masked("Endpoint = a\u{1b}[m\u{202e}"), "Endpoint = a?[m???");
    }
}
