//! One test binary while it runs.

use std::collections::{BTreeSet, HashMap};
use std::io::{BufRead, BufReader, Read, Write as _};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use cargo_metadata::libtest::{TestEvent, TestMessage};

use crate::{binaries::Binary, tally::Tally};

/// Tests at least this long get a line of their own.
const LONG: Duration = Duration::from_secs(1);
/// Begins a line in which a test says that this machine lacks something (`convoy_lab::require_lab`).
const LACKING: &str = "SKIPPED ";
/// Begins a line with the seconds that a test has waited for its turn, and its name (`convoy_lab::Turn`).
const WAITED: &str = "WAITED ";

/// Remarks that tests wrote to standard error for this program.
#[derive(Default)]
struct Remarks {
    lacking: Vec<String>,
    /// Seconds by name.
    waited: HashMap<String, f32>,
}

/// Runs the tests of `binary` that `options` of libtest choose, and returns their results.
///
/// # Errors
/// If the binary cannot be started. A binary that crashes is a failure among the results.
pub(crate) fn run(binary: &Binary, options: &[String]) -> Result<Tally> {
    let mut tally = Tally::default();
    let begin = Instant::now();
    let mut child = Command::new(&binary.path)
        .args(["-Zunstable-options", "--format=json", "--report-time"])
        .args(options)
        .env("RUSTC_BOOTSTRAP", "1")
        .env("CONVOY_SUITE", "1")
        .env("CARGO_MANIFEST_DIR", &binary.directory)
        .current_dir(&binary.directory)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {}", binary.path.display()))?;
    let output = child.stdout.take().context("a test has no output")?;
    let errors = child.stderr.take().context("a test has no output")?;
    let remarks = Arc::new(Mutex::new(Remarks::default()));
    let reader = thread::spawn({
        let remarks = remarks.clone();
        move || pass_on(errors, &remarks)
    });

    let mut running = BTreeSet::new();
    let mut is_complete = false;
    for line in BufReader::new(output).lines() {
        let line = line?;
        match serde_json::from_str(&line) {
            Ok(TestMessage::Test(TestEvent::Started { name })) => {
                running.insert(name);
            }
            Ok(TestMessage::Test(mut event)) => {
                running.remove(event.name());
                if let TestEvent::Ok {
                    name, exec_time, ..
                }
                | TestEvent::Failed {
                    name, exec_time, ..
                } = &mut event
                {
                    *exec_time -= lock(&remarks).waited.remove(name).unwrap_or_default();
                }
                tell(&binary.name, &event);
                tally.record(&binary.name, &event);
            }
            Ok(TestMessage::Suite(event)) => {
                is_complete = !matches!(event, cargo_metadata::libtest::SuiteEvent::Started { .. });
            }
            Ok(TestMessage::Bench { .. }) => {}
            // A test that writes around libtest's capture.
            Err(_) => println!("{line}"),
        }
    }
    let status = child.wait()?;
    let _ = reader.join();
    tally.lacking.append(&mut lock(&remarks).lacking);
    if !is_complete {
        let running: Vec<_> = running.into_iter().collect();
        let what = format!("{status} while these tests ran: {}", running.join(", "));
        println!("FAILED {}: {what}", binary.name);
        tally.fail(&binary.name, what);
    }
    if tally.passed_and_failed() != (0, 0) {
        let seconds = begin.elapsed().as_secs_f32();
        println!("{}: {tally} in {seconds:.1} s", binary.name);
    }
    Ok(tally)
}

fn tell(binary: &str, event: &TestEvent) {
    match event {
        TestEvent::Ok {
            name, exec_time, ..
        } if *exec_time >= LONG.as_secs_f32() => {
            println!("ok {exec_time:>7.1} s  {name}");
        }
        TestEvent::Failed {
            name,
            exec_time,
            stdout,
            reason,
            message,
        } => {
            println!("FAILED {exec_time:.1} s  {binary}: {name}");
            for text in [stdout, reason, message].into_iter().flatten() {
                println!("{}", text.trim_end());
            }
        }
        TestEvent::Timeout { name } => println!("still runs, or waits for its turn: {name}"),
        _ => {}
    }
}

/// Copies lines to this program's standard error, and keeps remarks.
fn pass_on(errors: impl Read, remarks: &Mutex<Remarks>) {
    for line in BufReader::new(errors).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line);
        if let Some((seconds, test)) = line
            .strip_prefix(WAITED)
            .and_then(|rest| rest.split_once(' '))
            && let Ok(seconds) = seconds.parse()
        {
            lock(remarks).waited.insert(test.to_owned(), seconds);
            continue;
        }
        // A closed standard error is no reason to fail.
        let _ = writeln!(std::io::stderr(), "{line}");
        if line.starts_with(LACKING) {
            lock(remarks).lacking.push(line.into_owned());
        }
    }
}

fn lock(remarks: &Mutex<Remarks>) -> MutexGuard<'_, Remarks> {
    remarks.lock().unwrap_or_else(PoisonError::into_inner)
}
