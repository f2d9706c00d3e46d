//! Records the result of a measuring program with its commit and command line: `make speedtest-results`,
//! `make profile-results`.
//!
//! Keeps the figures of the JSON object that the program prints, or with `--profiles` the shares of the profiles that it
//! writes. If the program fails, the previous result stays.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use convoy_rows::row::{self, Row, Run};
use convoy_rows::section::Section;
use convoy_rows::table::Table;
use itertools::Itertools as _;
use serde_json::Value;

use crate::programs::{self, first_line};
use crate::speedtest;

/// Runs a program that measures, and records its result and origin in a file
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The result file
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Instead of the program's output, keep the shares of the profiles that it writes below this directory, and a
    /// flame graph beside the result file
    #[arg(long, value_name = "DIR")]
    profiles: Option<PathBuf>,
    /// The program and its arguments
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// The machine-readable file of a profile (`perf/README.md`).
const SHARES: &str = "shares.json";
/// The configuration whose flame graph is kept: how Convoy runs on a kernel with all features.
const PICTURED: &str = "gso";
/// Size limit of a committed picture.
const MOST_BYTES: usize = 1_000_000;

/// Names of the daemons of a profile, in their order.
const DAEMONS: [&str; 2] = ["sender", "receiver"];
pub(crate) const BOTH: &str = "both daemons";
/// Figures of a profile besides the groups of functions.
pub(crate) const BELOW_SENDMSG: (&str, &str) = ("below udp(v6)_sendmsg", "%");
pub(crate) const COPIES: (&str, &str) = ("the event loop's copies", "%");
pub(crate) const SENDS: (&str, &str) = ("", "sends/GB");

const PROFILE: Section = Section {
    title: "Where the CPU time goes",
    command: "profile-results",
    file: "profile.jsonl",
    tables: &[Table {
        heading: "",
        shows: |_| true,
        corner: "CPU time",
        line: Row::label,
        column: |row| format!("{}: {}", row.scene, row.contender),
        has_spread: false,
    }],
    plots: &[],
    legend: "\
The sender is the daemon at TCP's sending end. The innermost known function decides the group of a sample; the last rows
overlap the groups. On a veth, a send includes delivery to the receiver's socket. The event loop's copies are those
outside the kernel: packets into the stack buffer, from it into the queue, and received packets into the writer's batch.",
};

pub(crate) fn run(args: &Args) -> Result<()> {
    let tools = [&args.command[0][..]].into_iter();
    let tools = tools.chain(args.profiles.is_some().then_some("perf"));
    let version = |tool| first_line(Command::new(tool).arg("--version"));
    let versions = tools.map(version).collect::<Result<_, _>>()?;
    let mut run = Run::new(versions);
    run.origin.command.clone_from(&args.command);
    let mut program = Command::new(&args.command[0]);
    let printed = programs::output(program.args(&args.command[1..]).stderr(Stdio::inherit()))?;
    let Some(directory) = &args.profiles else {
        let output: Value = serde_json::from_str(&printed).context("the output is no JSON")?;
        speedtest::add(&output, &mut run);
        ensure!(!run.rows.is_empty(), "the output has no figures");
        return speedtest::SECTION.keep(&run, Some(&args.out), false);
    };
    shares(directory, &mut run)?;
    PROFILE.keep(&run, Some(&args.out), false)?;
    keep_flame_graph(directory, &args.out)
}

/// Adds the shares of every profile in `directory`; a profile's directory is its scene.
fn shares(directory: &Path, run: &mut Run) -> Result<()> {
    let place = || directory.display().to_string();
    let entries = fs::read_dir(directory).with_context(place)?;
    let entries = entries.map(|entry| entry.map(|it| it.path()));
    for directory in entries.collect::<Result<Vec<_>, _>>()?.into_iter().sorted() {
        let Ok(text) = fs::read_to_string(directory.join(SHARES)) else {
            continue;
        };
        let scene = directory.file_name().unwrap_or_default().to_string_lossy();
        let shares: Value = serde_json::from_str(&text).with_context(|| scene.to_string())?;
        let daemons = shares["daemons"].as_array().into_iter().flatten();
        let daemons = DAEMONS.into_iter().zip(daemons);
        for (contender, part) in [(BOTH, &shares["all"])].into_iter().chain(daemons) {
            let mut add = |figure, value: &Value, scale: f64| {
                let value = value.as_f64().unwrap_or_default() * scale;
                run.push(Row::new(&scene, contender, figure, 0, value));
            };
            for (group, share) in part["groups"].as_object().into_iter().flatten() {
                add((group, "%"), share, 100.0);
            }
            add(BELOW_SENDMSG, &part["udp_sendmsg"], 100.0);
            add(COPIES, &part["user_copies"]["tunnel"], 100.0);
            add(("", "samples"), &part["samples"], 1.0);
        }
        let sends = shares["sends_per_gb"].as_f64().unwrap_or(f64::NAN);
        run.push(Row::new(&scene, BOTH, SENDS, 0, sends));
    }
    ensure!(!run.rows.is_empty(), "no profile in {}", place());
    Ok(())
}

/// Copies the flame graph to the result file's directory, without its line breaks.
fn keep_flame_graph(directory: &Path, result: &Path) -> Result<()> {
    let from = directory.join(PICTURED).join("flamegraph.svg");
    let picture = fs::read_to_string(&from).with_context(|| from.display().to_string())?;
    let (size, name) = (picture.len(), from.display());
    let is_small = size < MOST_BYTES;
    ensure!(is_small, "{name} has {size} bytes, too many to commit");
    let to = result.with_file_name(format!("flamegraph-{PICTURED}.svg"));
    // Line breaks within its script and style stay.
    row::write(picture.replace(">\n<", "><").as_bytes(), &to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_is_kept_with_its_command_and_a_failure_leaves_the_former_result_alone() {
        let directory = tempfile::tempdir().unwrap();
        let out = directory.path().join("result.jsonl");
        let text = || fs::read_to_string(&out).unwrap();
        let run = |script: &str| {
            run(&Args {
                out: out.clone(),
                profiles: None,
                command: ["bash", "-c", script].map(str::to_owned).into(),
            })
        };
        fs::write(&out, "former").unwrap();
        for script in ["echo '{}'; exit 3", "echo oh", "echo '[1]'"] {
            assert!(run(script).is_err() && text() == "former", "{script}");
        }
        let script = r#"echo '{"runs": [{"name": "tcp-up", "gbps": 6.5}]}'"#;
        run(script).unwrap();
        let kept = Run::load(&out).unwrap().unwrap();
        assert_eq!(kept.rows[0].value, 6.5);
        assert_eq!(kept.origin.command[2], script);
    }

    #[test]
    fn every_side_keeps_its_shares_and_one_its_picture() {
        let outer = tempfile::tempdir().unwrap();
        let path = |name: &str| outer.path().join(name);
        let mut run = Run::new(Vec::new());
        let nothing = shares(outer.path(), &mut run);
        assert!(nothing.is_err(), "nothing is there yet");
        for (side, share) in [("gso", "0.125"), ("no-gso", "0.25")] {
            let text = format!(r#"{{"all": {{"udp_sendmsg": {share}}}}}"#);
            row::write(text.as_bytes(), &path(side).join(SHARES)).unwrap();
        }
        shares(outer.path(), &mut run).unwrap();
        let sent = run.select(|row| row.is_of("no-gso", BELOW_SENDMSG));
        assert_eq!(sent, [25.0]);
        fs::write(path("gso/flamegraph.svg"), "<svg>\n<g/>\n</svg>\n").unwrap();
        keep_flame_graph(outer.path(), &path("profile.jsonl")).unwrap();
        let picture = fs::read_to_string(path("flamegraph-gso.svg")).unwrap();
        assert_eq!(picture, "<svg><g/></svg>\n");
    }
}
