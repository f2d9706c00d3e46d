use std::{os::fd::AsFd as _, thread};

use serde::Deserialize;

use super::*;

/// Text, in either direction.
#[derive(Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Said {
    pub(super) text: String,
}

impl Message for Said {
    const MAX_BYTES: usize = 64 << 10;
}

/// A message of this many characters.
pub(super) fn said(length: usize) -> Said {
    let text = "x".repeat(length);
    Said { text }
}

pub(super) fn longest() -> Said {
    said(Said::MAX_BYTES - line_of(&said(0)).unwrap().len())
}

#[test]
fn the_longest_message_arrives_with_its_descriptors_and_the_end_is_told() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            send(&ours, &longest(), &[ours.as_fd(); 2]).unwrap();
            let longer = said(longest().text.len() + 1);
            let refused = send(&ours, &longer, &[]).unwrap_err();
            assert!(matches!(refused, Lost::TooLong(Said::MAX_BYTES)));
        });
        let (received, descriptors) = receive::<Said>(&theirs).unwrap();
        assert_eq!((received, descriptors.len()), (longest(), 2));
    });
    drop(ours);
    assert!(matches!(receive::<Said>(&theirs), Err(Lost::Closed)));
}

#[test]
fn an_endless_line_and_one_that_is_no_message_are_refused() {
    for line in [
        "\n",
        "[]\n",
        "{\"text\":1}\n",
        "{\"text\":\"\",\"more\":1}\n",
        "{\"text\":\"\"}\n{\"text\":\"\"}\n",
    ] {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        ours.write_all(line.as_bytes()).unwrap();
        let refused = receive::<Said>(&theirs).unwrap_err();
        assert!(matches!(refused, Lost::Invalid(_)), "{line:?}: {refused}");
    }
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    thread::scope(|scope| {
        // The reader closes it first.
        scope.spawn(move || drop(ours.write_all(&vec![b'x'; 4 * Said::MAX_BYTES])));
        let refused = receive::<Said>(&theirs).unwrap_err();
        assert!(matches!(refused, Lost::TooLong(_)), "{refused}");
        drop(theirs);
    });
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    ours.write_all(b"{\"text\":").unwrap();
    drop(ours);
    assert!(matches!(receive::<Said>(&theirs), Err(Lost::Closed)));
}
