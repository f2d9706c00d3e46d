//! Firefox Profiler's own importer accepts the recording. `make test-profiler` runs this. It needs npx, and
//! in `CONVOY_TEST_PROGRAM` a program with frame pointers.

use std::collections::BTreeMap;
use std::process::Command;
use std::{env, fs};

use convoy_lab::require_programs;
use serde_json::Value;

use crate::profile::{AEAD, EVENT_LOOP, READING, place, succeeds};
use crate::{PROGRAM, turn_with_perf};

/// Functions that the event loop calls in sequence; each keeps its frame.
const STAGES_OF_A_TICK: [&str; 4] = ["tick", "receive", "take_from_tun", "flush"];

#[test]
#[ignore = "make test-profiler"]
fn firefox_profiler_shows_our_threads_and_functions() {
    let test = "firefox_profiler_shows_our_threads_and_functions";
    let Some(_turn) = turn_with_perf(test).filter(|_| require_programs(test, &["npx"])) else {
        return;
    };
    let (_outer, out) = place();
    let program = env::var_os("CONVOY_TEST_PROGRAM").unwrap_or_else(|| PROGRAM.into());
    let mut speedtest = Command::new(program);
    speedtest.args("speedtest --tests tcp-up,tcp-down --secs 2 --profile".split(' '));
    succeeds(speedtest.arg(&out));
    let text = fs::read_to_string(out.join("profile.perf")).unwrap();
    let written = samples_by_thread(&text);

    let session = Session::load(out.join("profile.perf").to_str().unwrap());
    let info = session.ask("profile info --all");
    let processes = info["processes"].as_array().unwrap();
    assert_eq!(processes.len(), 2, "{info}");
    let threads = processes
        .iter()
        .flat_map(|process| process["threads"].as_array().unwrap())
        .collect::<Vec<_>>();
    assert_eq!(threads.len(), written.len());
    for thread in &threads {
        let handle = thread["threadHandle"].as_str().unwrap();
        let shown = session.ask(&format!("thread info --thread {handle}"));
        let samples = written[&thread["tid"].as_u64().unwrap()];
        assert_eq!(shown["sampleCount"].as_u64(), Some(samples), "{shown}");
    }
    let mut functions = Vec::new();
    for thread in threads.iter().filter(|thread| thread["name"] != "convoy") {
        let handle = thread["threadHandle"].as_str().unwrap();
        let shown = session.ask(&format!("thread functions --thread {handle} --limit 0"));
        for function in shown["functions"].as_array().unwrap() {
            let share = function["totalPercentage"].as_f64().unwrap();
            let named = |object: &Value| object["name"].as_str().unwrap().to_owned();
            functions.push((named(thread), named(function), share));
        }
    }
    let share = |part: &str, end: &str| -> f64 {
        let functions = functions.iter().map(|(thread, name, share)| {
            let is_it = thread == EVENT_LOOP && name.contains(part) && name.ends_with(end);
            if is_it { *share } else { 0.0 }
        });
        functions.sum()
    };
    let aead: f64 = AEAD.iter().map(|part| share(part, "")).sum();
    assert!(aead > 5.0, "{functions:?}");
    for stage in STAGES_OF_A_TICK {
        let found = share("event_loop", &format!("::{stage}"));
        assert!(found > 0.5, "{stage}: {functions:?}");
    }
    let mut names = functions.iter().map(|(_, name, _)| name);
    assert!(names.any(|name| name.contains(READING)), "{functions:?}");
}

/// Samples with a stack, by thread: the importer omits the others.
fn samples_by_thread(text: &str) -> BTreeMap<u64, u64> {
    let mut counts = BTreeMap::new();
    let lines: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
    for pair in lines.windows(2) {
        if !pair[0].is_empty() && !pair[0].starts_with('\t') && pair[1].starts_with('\t') {
            let mut words = pair[0].split_whitespace();
            let tid = words.find_map(|word| word.split_once('/')?.1.parse().ok());
            *counts.entry(tid.unwrap()).or_default() += 1;
        }
    }
    counts
}

/// The profiler with a profile loaded; ended when dropped.
struct Session(String);

impl Session {
    fn load(path: &str) -> Self {
        let session = Self(format!("convoy-{}", std::process::id()));
        session.run(&["load", path]);
        session
    }

    fn ask(&self, arguments: &str) -> Value {
        let arguments: Vec<_> = arguments.split(' ').chain(["--json"]).collect();
        serde_json::from_slice(&self.run(&arguments)).unwrap()
    }

    fn run(&self, arguments: &[&str]) -> Vec<u8> {
        let mut command = profiler();
        command.args(arguments).args(["--session", &self.0]);
        let output = command.output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {errors}");
        output.stdout
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // A session that was not loaded cannot be stopped.
        let _ = profiler().args(["stop", &self.0]).output();
    }
}

fn profiler() -> Command {
    let arguments = "-y -p node@24 -p @firefox-devtools/profiler-cli@latest profiler-cli";
    let mut command = Command::new("npx");
    command.args(arguments.split(' '));
    command
}
