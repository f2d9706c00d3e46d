//! The little of XML that routers write, without document types, so without entities of their own. Pure.

use quick_xml::{Reader, escape::resolve_predefined_entity, events::Event};

/// Most elements within each other.
const MAX_DEPTH: usize = 32;
/// Most elements of a document.
const MAX_ELEMENTS: usize = 2_048;

/// An element: its name without a prefix, and its own text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Element {
    pub(super) name: String,
    pub(super) text: String,
}

/// Lists the elements of a document in the order of their ends; `None` if it is not well-formed, or more than it may be.
pub(super) fn elements(document: &[u8]) -> Option<Vec<Element>> {
    let document = String::from_utf8_lossy(document);
    let mut reader = Reader::from_str(&document);
    let mut open: Vec<Element> = Vec::new();
    let mut ended = Vec::new();
    loop {
        match reader.read_event().ok()? {
            Event::Start(start) => {
                if open.len() == MAX_DEPTH {
                    return None;
                }
                open.push(element(start.local_name().as_ref()));
            }
            Event::Empty(start) => ended.push(element(start.local_name().as_ref())),
            Event::End(_) => ended.push(open.pop()?),
            Event::Text(text) => append(&mut open, &text.decode().ok()?),
            Event::CData(text) => append(&mut open, &text.decode().ok()?),
            Event::GeneralRef(reference) => match reference.resolve_char_ref().ok()? {
                Some(character) => append(&mut open, character.encode_utf8(&mut [0; 4])),
                None => append(
                    &mut open,
                    resolve_predefined_entity(&reference.decode().ok()?)?,
                ),
            },
            Event::DocType(_) => return None,
            Event::Decl(_) | Event::PI(_) | Event::Comment(_) => {}
            Event::Eof => return open.is_empty().then_some(ended),
        }
        if ended.len() > MAX_ELEMENTS {
            return None;
        }
    }
}

fn element(name: &[u8]) -> Element {
    Element {
        name: String::from_utf8_lossy(name).into_owned(),
        text: String::new(),
    }
}

fn append(open: &mut [Element], text: &str) {
    if let Some(element) = open.last_mut() {
        element.text.push_str(text);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn elements_have_their_own_text_without_prefixes_and_references() {
        let document =
            b"<?xml version='1.0'?><a:b x='1'>p<c>1 &lt;&#65;<![CDATA[<]]></c><d/>q</a:b>";
        let elements = elements(document).unwrap();
        let shown = elements.iter().map(|it| (&*it.name, &*it.text));
        let expected = [("c", "1 <A<"), ("d", ""), ("b", "pq")];
        assert_eq!(shown.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_bomb_of_any_kind_is_refused() {
        let laughs = "<!DOCTYPE a [<!ENTITY b \"ha\"><!ENTITY c \"&b;&b;\">]><a>&c;</a>";
        let deep = "<a>".repeat(MAX_DEPTH + 1) + &"</a>".repeat(MAX_DEPTH + 1);
        let many = format!("<a>{}</a>", "<b/>".repeat(MAX_ELEMENTS + 1));
        for document in [laughs, "<!DOCTYPE a><a/>", "<a>&b;</a>", &deep, &many] {
            assert_eq!(elements(document.as_bytes()), None);
        }
        let as_deep = "<a>".repeat(MAX_DEPTH) + &"</a>".repeat(MAX_DEPTH);
        assert!(elements(as_deep.as_bytes()).is_some());
    }

    #[test]
    fn a_document_that_is_not_well_formed_is_refused() {
        for document in ["<a>", "</a>", "<a></b>", "<a><b></a></b>", "<a"] {
            assert_eq!(elements(document.as_bytes()), None, "{document}");
        }
    }

    proptest! {
        #[test]
        fn no_document_does_harm(document in "[<>/a&;!\\[\\]\"' ]{0,60}") {
            let _ = elements(document.as_bytes());
        }
    }
}
