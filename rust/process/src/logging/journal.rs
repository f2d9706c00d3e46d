//! The log as fields of systemd's journal, in its native protocol: one datagram per event
//! (<https://systemd.io/JOURNAL_NATIVE_PROTOCOL/>).
//!
//! | field | |
//! |---|---|
//! | `MESSAGE`, `PRIORITY`, `SYSLOG_IDENTIFIER` | as `journalctl` shows them |
//! | `CONVOY_TARGET`, `CONVOY_THREAD` | the module and the thread |
//! | `CONVOY_INTERFACE`, `CONVOY_PEER`, … | the fields of the spans around the event, and its own |
//!
//! The socket never blocks: a journal that stalls costs events, and no thread waits for it.

use std::{fmt, io, os::unix::net::UnixDatagram, path::Path, thread};

use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{Layer, layer::Context, registry::LookupSpan};

use super::spans;
use crate::panics::ending;

const SOCKET: &str = "/run/systemd/journal/socket";

/// Starts the names of all fields that are ours.
const PREFIX: &str = "CONVOY_";

/// The longest name of a field in bytes.
const MAX_NAME: usize = 64;

/// Opens a socket from which the journal can be reached.
pub(super) fn open() -> io::Result<UnixDatagram> {
    open_to(Path::new(SOCKET))
}

fn open_to(path: &Path) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    // Not for the log itself: the journal may be started again at another socket.
    UnixDatagram::unbound()?.connect(path)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Sends each event to the journal.
#[derive(Debug)]
pub(super) struct Journal {
    socket: UnixDatagram,
    path: &'static Path,
}

impl Journal {
    pub(super) fn new(socket: UnixDatagram) -> Self {
        Self {
            socket,
            path: Path::new(SOCKET),
        }
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Journal {
    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        if ending::is_ending_elsewhere() {
            return;
        }
        let mut entry = Entry::default();
        entry.put("PRIORITY", priority(*event.metadata().level()));
        entry.put("SYSLOG_IDENTIFIER", "convoy");
        entry.put_ours("target", event.metadata().target());
        if let Some(thread) = thread::current().name() {
            entry.put_ours("thread", thread);
        }
        for (name, value) in spans::around(event, context.event_scope(event)) {
            entry.put_ours(name, &value);
        }
        event.record(&mut entry);
        if ending::is_ending() {
            // The last line may block: it has a time limit of its own.
            let _ = self.socket.set_nonblocking(false);
        }
        // Nothing can be done about a journal that does not read.
        let _ = self.socket.send_to(&entry.0, self.path);
    }
}

/// As in syslog(3).
fn priority(level: Level) -> &'static str {
    match level {
        Level::ERROR => "3",
        Level::WARN => "4",
        Level::INFO => "6",
        _ => "7",
    }
}

/// A datagram in the making.
#[derive(Debug, Default)]
struct Entry(Vec<u8>);

impl Entry {
    fn put(&mut self, name: &str, value: &str) {
        self.0.extend_from_slice(name.as_bytes());
        match value.contains('\n') {
            false => self.0.push(b'='),
            true => {
                self.0.push(b'\n');
                self.0
                    .extend_from_slice(&(value.len() as u64).to_le_bytes());
            }
        }
        self.0.extend_from_slice(value.as_bytes());
        self.0.push(b'\n');
    }

    /// A name has capital letters, digits and underscores only.
    fn put_ours(&mut self, name: &str, value: &str) {
        let allowed = |c: char| match c.is_ascii_alphanumeric() {
            true => c.to_ascii_uppercase(),
            false => '_',
        };
        let name = PREFIX.chars().chain(name.chars().map(allowed));
        self.put(&name.take(MAX_NAME).collect::<String>(), value);
    }
}

impl Visit for Entry {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => self.put("MESSAGE", value),
            name => self.put_ours(name, value),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeMap,
        thread,
        time::{Duration, Instant},
    };

    use tracing::{debug, error, info, info_span};
    use tracing_subscriber::layer::SubscriberExt;

    use super::{super::spans::Spans, *};

    #[test]
    fn an_event_is_a_datagram_of_fields() {
        let [entry] = &received(|| {
            let _peer = info_span!("peer", peer = %"AAAA=").entered();
            info!(tries = 3, "Handshake message received");
        })[..] else {
            panic!("not one datagram")
        };
        for (name, value) in [
            ("MESSAGE", "Handshake message received"),
            ("PRIORITY", "6"),
            ("SYSLOG_IDENTIFIER", "convoy"),
            ("CONVOY_INTERFACE", "wg0"),
            ("CONVOY_PEER", "AAAA="),
            ("CONVOY_TRIES", "3"),
            ("CONVOY_TARGET", "convoy_process::logging::journal::tests"),
        ] {
            assert_eq!(
                entry.get(name).map(String::as_str),
                Some(value),
                "{entry:?}"
            );
        }
    }

    #[test]
    fn line_feeds_and_odd_names_stay_within_their_field() {
        let long = "y".repeat(70_000);
        let entries = received(|| {
            error!(kind = "two\nlines\nPRIORITY=0", "a\nb");
            debug!(interface = "wg7", "{long}");
        });
        assert_eq!(entries[0]["MESSAGE"], "a\nb");
        assert_eq!(entries[0]["PRIORITY"], "3");
        assert_eq!(entries[0]["CONVOY_KIND"], "two\nlines\nPRIORITY=0");
        assert_eq!(entries[1]["MESSAGE"], long);
        assert_eq!(entries[1]["CONVOY_INTERFACE"], "wg7");
    }

    #[test]
    fn a_journal_that_does_not_read_blocks_nobody() {
        let directory = tempfile::tempdir().unwrap();
        let path: &Path = Box::leak(directory.path().join("socket").into_boxed_path());
        let stalled = UnixDatagram::bind(path).unwrap();
        let journal = Journal {
            path,
            ..Journal::new(open_to(path).unwrap())
        };
        let subscriber = tracing_subscriber::registry().with(journal);
        tracing::subscriber::with_default(subscriber, || {
            for number in 0..10_000 {
                info!(number, "nobody reads");
            }
        });
        drop(stalled);
        // A child that another test has just forked holds the socket until it executes its program.
        let deadline = Instant::now() + Duration::from_secs(20);
        while open_to(path).is_ok() {
            assert!(Instant::now() < deadline);
            thread::yield_now();
        }
    }

    /// Returns what a socket that plays the journal's receives.
    fn received(events: impl FnOnce()) -> Vec<BTreeMap<String, String>> {
        let directory = tempfile::tempdir().unwrap();
        let path: &Path = Box::leak(directory.path().join("socket").into_boxed_path());
        let theirs = UnixDatagram::bind(path).unwrap();
        let journal = Journal {
            path,
            ..Journal::new(open_to(path).unwrap())
        };
        let subscriber = tracing_subscriber::registry().with(Spans).with(journal);
        tracing::subscriber::with_default(subscriber, || {
            spans::of_interface("wg0").in_scope(events);
        });
        theirs.set_nonblocking(true).unwrap();
        let mut datagram = vec![0; 1 << 20];
        let mut entries = Vec::new();
        while let Ok(length) = theirs.recv(&mut datagram) {
            entries.push(parsed(&datagram[..length]));
        }
        entries
    }

    /// As the specification says.
    fn parsed(mut datagram: &[u8]) -> BTreeMap<String, String> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let mut fields = BTreeMap::new();
        while !datagram.is_empty() {
            let end = datagram.iter().position(|byte| *byte == b'\n').unwrap();
            let (line, rest) = (&datagram[..end], &datagram[end + 1..]);
            let (name, value, rest) = match line.iter().position(|byte| *byte == b'=') {
                Some(at) => (&line[..at], &line[at + 1..], rest),
                None => {
                    let length = u64::from_le_bytes(rest[..8].try_into().unwrap()) as usize;
                    assert_eq!(rest[8 + length], b'\n');
                    (line, &rest[8..8 + length], &rest[9 + length..])
                }
            };
            assert!(
                fields.insert(text(name), text(value)).is_none(),
                "{}",
                text(name)
            );
            datagram = rest;
        }
        fields
    }
}
