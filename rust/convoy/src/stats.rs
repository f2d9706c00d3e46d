//! `convoy stats`: asks a running daemon what it has counted.
//!
//! The daemon answers on its UAPI socket: to [`REQUEST`] and a blank line with `convoy_stats=`, one
//! line of JSON (a [`Report`]), `errno=0` and a blank line.

mod report;
mod text;

use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

use anyhow::{Context, bail};

use crate::{cli::StatsArgs, uapi::socket};
pub(crate) use report::Report;

/// The first line of the request.
pub(crate) const REQUEST: &str = "get=convoy_stats";

/// What the line of JSON begins with.
const PREFIX: &str = "convoy_stats=";

/// How long a daemon may take: its answer comes from between two turns of its event loop.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Prints the counters of the daemon of an interface.
pub(crate) fn run(args: &StatsArgs) -> anyhow::Result<()> {
    let json = query(&socket::path(args.interface.as_str()))?;
    let mut stdout = std::io::stdout().lock();
    if args.json {
        writeln!(stdout, "{json}")?;
    } else {
        let report: Report = serde_json::from_str(&json)
            .context("the daemon's answer is not of this version of convoy")?;
        stdout.write_all(text::render(&report, jiff::Timestamp::now()).as_bytes())?;
    }
    Ok(())
}

/// The daemon's side: the lines that answer [`REQUEST`].
pub(crate) fn answer(report: &Report) -> String {
    // INVARIANT: a report's keys are strings and its values numbers, strings, lists and maps.
    let json = serde_json::to_string(report).expect("a report is JSON");
    format!("{PREFIX}{json}\n")
}

/// Bytes of the packets that the daemon that listens on `path` has carried, both ways.
pub(crate) fn bytes_carried(path: &Path) -> anyhow::Result<u64> {
    let report: Report = serde_json::from_str(&query(path)?)?;
    Ok(report.bytes_carried())
}

/// Asks the daemon that listens on `path` for its report, as one line of JSON.
fn query(path: &Path) -> anyhow::Result<String> {
    let mut stream = UnixStream::connect(path)
        .with_context(|| format!("no daemon answers on {}", path.display()))?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    write!(stream, "{REQUEST}\n\n")?;
    stream.shutdown(std::net::Shutdown::Write)?;
    let mut answer = String::new();
    stream
        .read_to_string(&mut answer)
        .context("the daemon did not answer")?;

    let json = answer.lines().find_map(|line| line.strip_prefix(PREFIX));
    match json {
        Some(json) => Ok(json.to_owned()),
        None => bail!("the daemon on {} is not convoy", path.display()),
    }
}
