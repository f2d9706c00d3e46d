//! Compares the answers to whole conversations, valid or not, with those of a model.

use std::{
    io::{Read, Write},
    net::Shutdown,
    os::unix::net::UnixStream,
};

use convoy_fuzz::{Result, Unstructured};

use super::{
    lines::MAX_LINE,
    parse::fuzz::{book::Request, generate, text_of},
    tests::{ENDING_PORT, FIGURES, Memory, REFUSED_PORT, TAKEN_PORT},
    *,
};

#[test]
fn fuzz_conversations() {
    convoy_fuzz::run("conversations", 1000, 1500, conversations);
}

/// Each request is applied whole or not at all, and answered once, in order.
fn conversations(input: &mut Unstructured<'_>) -> Result<()> {
    let said = said(input);
    let memory = Arc::new(Memory::default());
    let service = Service {
        reporter: Arc::new(Reporter {
            interface: "wg0".to_owned(),
            index: None,
            control: Arc::clone(&memory),
            figures: FIGURES,
        }),
        limits: LIMITS,
        consent: Mutex::default(),
    };
    let heard = converse(&service, &said);
    let mut expected = Expected::default();
    expected.follow(&said);
    let heard = String::from_utf8_lossy(&heard);
    assert_eq!(
        heard,
        expected.answers,
        "{}",
        String::from_utf8_lossy(&said)
    );
    let applied = memory.applied();
    let applied: Vec<_> = applied.iter().map(text_of).collect();
    assert_eq!(applied, expected.applied);
    Ok(())
}

fn converse(service: &Service<Arc<Memory>>, said: &[u8]) -> Vec<u8> {
    let (ours, mut theirs) = UnixStream::pair().expect("a free descriptor");
    let clients = Arc::new(Clients::default());
    let client = clients.admit(ours, LIMITS.time).expect("a socket");
    thread::scope(|scope| {
        // The requests may exceed the socket's buffer; the answers do not.
        scope.spawn(move || {
            service.converse(&client);
            drop(client);
        });
        // If the daemon closes early, its unread input becomes an error after the last answer.
        let _ = theirs.write_all(said);
        let _ = theirs.shutdown(Shutdown::Write);
        let mut heard = Vec::new();
        let _ = theirs.read_to_end(&mut heard);
        heard
    })
}

/// A few requests of mostly valid lines.
fn said(input: &mut Unstructured<'_>) -> Vec<u8> {
    let mut said = Vec::new();
    for _ in 0..12 {
        if request(input, &mut said).is_err() {
            break;
        }
    }
    said
}

fn request(input: &mut Unstructured<'_>, said: &mut Vec<u8>) -> Result<()> {
    let operation: &[u8] = match input.arbitrary::<u8>()? {
        0..=159 => b"set=1",
        160..=239 => b"get=1",
        240..=249 => convoy_report::REQUEST.as_bytes(),
        _ => b"get=2",
    };
    said.extend([operation, b"\n"].concat());
    let lines = match operation {
        b"set=1" => input.int_in_range(0..=8)?,
        _ => u8::from(input.ratio(1, 16)?),
    };
    let mut so_far = Request::new();
    for _ in 0..lines {
        let mut line = generate::line(input, so_far.has_peers())?;
        so_far.take(&line);
        if input.ratio(1, 32)? {
            let len = input.int_in_range(MAX_LINE - 3..=MAX_LINE + 3)?;
            line.resize(len * input.int_in_range(1..=4)?, b'x');
        }
        let end: &[u8] = if input.ratio(1, 16)? { b"\r\n" } else { b"\n" };
        said.extend([&line, end].concat());
    }
    let is_ended = !input.ratio(1, 32)?;
    said.extend(is_ended.then_some(b'\n'));
    Ok(())
}

/// The expected answers and updates.
#[derive(Default)]
struct Expected {
    answers: String,
    applied: Vec<String>,
}

/// The daemon reads nothing more from this client.
struct Over;

impl Expected {
    fn follow(&mut self, said: &[u8]) {
        let mut rest = said;
        while let Ok(line) = next_line(&mut rest, self, "") {
            let outcome = match line {
                b"get=1" => self.get(&mut rest, Self::listing),
                b"set=1" => self.set(&mut rest),
                line if line == convoy_report::REQUEST.as_bytes() => {
                    self.get(&mut rest, Self::stats)
                }
                _ => Err(Over),
            };
            if outcome.is_err() {
                return;
            }
        }
    }

    fn answer(&mut self, text: &str, errno: Option<Errno>) {
        let errno = errno.map_or(0, |errno| -(errno as i32));
        self.answers += &format!("{text}errno={errno}\n\n");
    }

    fn get(
        &mut self,
        rest: &mut &[u8],
        text: fn(&Self) -> String,
    ) -> std::result::Result<(), Over> {
        let mut is_alone = true;
        while !next_line(rest, self, CUT_OFF)?.is_empty() {
            is_alone = false;
        }
        let text = if is_alone { text(self) } else { String::new() };
        self.answer(&text, (!is_alone).then_some(Errno::EINVAL));
        Ok(())
    }

    fn set(&mut self, rest: &mut &[u8]) -> std::result::Result<(), Over> {
        let (mut request, mut wrong) = (Request::new(), None);
        loop {
            let line = next_line(rest, self, CUT_OFF)?;
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.is_empty() {
                break;
            }
            if !request.take(line) {
                let has_value = line.contains(&b'=');
                let errno = if has_value {
                    Errno::EINVAL
                } else {
                    Errno::EPROTO
                };
                wrong = wrong.or(Some(errno));
            }
        }
        let text = request.canonical();
        let has_port = |port| text.lines().any(|l| l == format!("listen_port={port}"));
        let taken = has_port(TAKEN_PORT).then_some(Errno::EADDRINUSE);
        let ending = has_port(ENDING_PORT).then_some(Errno::ENODEV);
        let refused = has_port(REFUSED_PORT).then_some(Errno::EPERM);
        let errno = wrong.or(taken).or(ending).or(refused);
        self.answer("", errno);
        self.applied.extend(errno.is_none().then_some(text));
        Ok(())
    }

    /// The device's settings after the last update.
    fn listing(&self) -> String {
        let last = self.applied.last().map_or("", String::as_str);
        let device = last.lines().take_while(|l| !l.starts_with("public_key="));
        let is_listed = |line: &&str| {
            let value = line.split_once('=').map_or("", |(_, value)| value);
            value != "true" && value.bytes().any(|digit| digit != b'0')
        };
        device.filter(is_listed).map(|l| format!("{l}\n")).collect()
    }

    fn stats(&self) -> String {
        let listing = self.listing();
        let number = |name: &str| {
            let mut lines = listing.lines().filter_map(|line| line.split_once('='));
            let found = lines.find(|(key, _)| *key == name);
            found.map_or(0, |(_, value)| value.parse::<u32>().expect("it was listed"))
        };
        let snapshot = Snapshot {
            listen_port: number("listen_port") as u16,
            fwmark: number("fwmark"),
            ..Snapshot::default()
        };
        convoy_report::answer(&(FIGURES.report)("wg0", &snapshot))
    }
}

/// The answer to a request that ends in the middle.
const CUT_OFF: &str = "errno=-71\n\n";

/// Returns the next line. If there is none, `cut_off` is the last answer.
fn next_line<'a>(
    rest: &mut &'a [u8],
    expected: &mut Expected,
    cut_off: &str,
) -> std::result::Result<&'a [u8], Over> {
    let end = rest.iter().position(|byte| *byte == b'\n');
    if end.unwrap_or(rest.len()) >= MAX_LINE {
        expected.answer("", Some(Errno::EIO));
        return Err(Over);
    }
    let Some(end) = end else {
        expected.answers += cut_off;
        return Err(Over);
    };
    let line = &rest[..end];
    *rest = &rest[end + 1..];
    Ok(line)
}
