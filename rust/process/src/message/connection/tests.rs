use std::{io::Write, os::unix::net::UnixStream as Blocking};

use super::*;
use crate::message::tests::{Said, longest, said};

#[tokio::test]
async fn messages_arrive_however_they_are_cut() {
    let (mut connection, mut other) = pair();
    let lines = [line_of(&said(1)), line_of(&said(0))]
        .map(Result::unwrap)
        .concat();
    for cut in 1..lines.len() {
        other.write_all(&lines[..cut]).unwrap();
        let mut messages = Vec::new();
        let rest = async { other.write_all(&lines[cut..]).unwrap() };
        let receive = async {
            while messages.len() < 2 {
                messages.push(connection.next::<Said>().await.unwrap());
            }
        };
        tokio::join!(receive, rest);
        assert_eq!(messages, [said(1), said(0)]);
    }
}

#[tokio::test]
async fn the_longest_message_is_accepted_and_a_longer_one_is_not() {
    let longest = longest();
    let (mut connection, other) = pair();
    let line = line_of(&longest).unwrap();
    let writer = write_apart(
        other,
        [&line[..], &vec![b' '; line.len()], b"{}\n"].concat(),
    );
    assert_eq!(connection.next::<Said>().await.unwrap(), longest);
    let refused = connection.next::<Said>().await.unwrap_err();
    assert!(matches!(refused, Lost::TooLong(_)), "{refused}");
    drop(connection);
    writer.join().unwrap();
}

#[tokio::test]
async fn an_endless_line_is_refused_before_it_ends() {
    let (mut connection, other) = pair();
    let writer = write_apart(other, vec![b'x'; 4 * Said::MAX_BYTES]);
    let refused = connection.next::<Said>().await.unwrap_err();
    assert!(matches!(refused, Lost::TooLong(_)), "{refused}");
    assert!(connection.input.len() <= Said::MAX_BYTES + CHUNK);
    drop(connection);
    writer.join().unwrap();
}

#[tokio::test]
async fn a_line_that_is_no_message_is_refused() {
    for line in ["\n", "{\n", "[]\n", "{\"type\":1}\n", "\0\u{ff}\n"] {
        let (mut connection, mut other) = pair();
        other.write_all(line.as_bytes()).unwrap();
        let refused = connection.next::<Said>().await.unwrap_err();
        assert!(matches!(refused, Lost::Invalid(_)), "{line:?}: {refused}");
    }
}

#[tokio::test]
async fn messages_wait_for_a_slow_reader_up_to_a_bound() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let (mut slow, mut connection) = (Connection::new(ours), Connection::new(theirs));
    connection.stream.writable().await.unwrap();
    let long = said(Said::MAX_BYTES / 3);
    let mut queued = 0;
    let refused = loop {
        match connection.queue(&long) {
            Ok(()) => queued += 1,
            Err(refused) => break refused,
        }
    };
    assert!(matches!(refused, Lost::NotRead), "{refused}");
    assert!(connection.is_behind());
    let read = async {
        for _ in 0..queued {
            assert_eq!(slow.next::<Said>().await.unwrap(), long);
        }
    };
    let write = connection.next_or_flushed::<Said>();
    let (written, ()) = tokio::join!(write, read);
    assert_eq!(written.unwrap(), None);
    assert!(!connection.is_behind());
}

#[tokio::test]
async fn what_was_sent_before_the_end_is_still_read() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let (mut connection, mut other) = (Connection::new(ours), Connection::new(theirs));
    other.queue(&said(1)).unwrap();
    other.flush().await.unwrap();
    connection.stream.writable().await.unwrap();
    while connection.queue(&said(1)).is_ok() && !connection.is_behind() {}
    drop(other);
    assert_eq!(connection.next::<Said>().await.unwrap(), said(1));
    let lost = connection.next::<Said>().await.unwrap_err();
    assert!(matches!(lost, Lost::Closed), "{lost}");
}

fn pair() -> (Connection, Blocking) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let theirs = theirs.into_std().unwrap();
    theirs.set_nonblocking(false).unwrap();
    (Connection::new(ours), theirs)
}

/// Writes from a thread: the socket holds less. The reader may close it first.
fn write_apart(mut to: Blocking, bytes: Vec<u8>) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        let _ = to.write_all(&bytes);
    })
}
