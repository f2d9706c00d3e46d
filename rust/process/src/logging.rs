//! The log on stdout: text for people, fields for systemd's journal, JSON for programs.
//!
//! A JSON log is one object per line, also for a panic and for the error that ends the process. What is said on
//! standard error while there is one is an object, too, unless a person reads it at a terminal.

mod choice;
mod destination;
mod filter;
mod journal;
mod json;
pub mod live;
mod spans;
mod stdout;

use std::{
    env,
    io::{IsTerminal as _, Write as _},
    sync::OnceLock,
};

use anyhow::Context;
use tracing::{error, level_filters::LevelFilter};
use tracing_subscriber::{fmt, layer::SubscriberExt, reload, util::SubscriberInitExt};

pub use choice::{LogFormat, LogLevel};
use destination::Destination;
use filter::Wanted;
use spans::Spans;
use stdout::NeverBlocking;

use crate::printable;

/// The reader of this process's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reader {
    Person,
    Journal,
    Program,
}

static READER: OnceLock<Reader> = OnceLock::new();

/// Sets up logging according to `RUST_LOG`, or otherwise `LOG_LEVEL`. From here on, each line of this thread names the
/// interface; threads that it starts should take its span over.
pub fn init(format: LogFormat, interface: Option<&str>) -> anyhow::Result<()> {
    let destination = Destination::of(format).context("cannot reach systemd's journal")?;
    let reader = match &destination {
        Destination::Text { .. } => Reader::Person,
        Destination::Journal(_) => Reader::Journal,
        Destination::Json => Reader::Program,
    };
    // From here on, errors are for this reader.
    READER.get_or_init(|| reader);
    let wanted = Wanted::by_environment();
    let (filter, handle) = reload::Layer::new(wanted.filter()?);
    let registry = tracing_subscriber::registry().with(filter);
    match destination {
        Destination::Json => {
            let lines = fmt::layer().event_format(json::Json);
            let lines = lines.with_writer(|| NeverBlocking);
            registry.with(Spans).with(lines).try_init()
        }
        Destination::Journal(socket) => registry
            .with(Spans)
            .with(journal::Journal::new(socket))
            .try_init(),
        Destination::Text { is_terminal } => {
            let text = fmt::layer().with_target(false).with_ansi(is_terminal);
            registry.with(text.with_writer(|| NeverBlocking)).try_init()
        }
    }
    .context("cannot set up logging")?;
    if let Some(interface) = interface {
        // For as long as the process lives.
        std::mem::forget(spans::of_interface(interface).entered());
    }
    if reader == Reader::Journal || !destination::is_null(std::io::stdout()) {
        live::enable(wanted, handle);
    }
    Ok(())
}

/// Says why the process ends, to whoever reads its log and its standard error; to each of them once.
pub fn fail(error: &anyhow::Error) {
    let (is_logged, is_said) = match READER.get() {
        None | Some(Reader::Person) => (false, true),
        Some(Reader::Program) => (!destination::is_stdout(std::io::stderr()), true),
        Some(Reader::Journal) => (true, !destination::is_journal(std::io::stderr())),
    };
    if is_logged {
        error!("{error:#}");
    }
    if is_said {
        say(&format!("convoy: {error:#}"));
    }
}

/// Writes a line to stderr, without what would control a terminal, and ignores errors, on which `eprintln!` would panic.
pub fn say(line: &str) {
    say_rendered(&printable(line));
}

/// Does the same with a line that is fit for a terminal, and may have colours.
pub fn say_rendered(line: &str) {
    let line = for_stderr(line.to_owned());
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// A line for standard error, in the form that its reader expects.
fn for_stderr(line: String) -> String {
    let is_for_program = READER.get() == Some(&Reader::Program);
    match is_for_program && !std::io::stderr().is_terminal() {
        true => json::of_text(&line),
        false => line,
    }
}

/// Returns whether the caller requested logs. Only then does a daemon in the background keep its output.
pub fn is_requested() -> bool {
    let is_set = |name| env::var(name).is_ok_and(|value| !value.is_empty());
    match is_set("RUST_LOG") {
        true => true,
        false => is_set("LOG_LEVEL") && filter::level_of_environment() != LevelFilter::OFF,
    }
}
