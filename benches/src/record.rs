//! Records the result of a measuring program with its commit and command line: `make speedtest-results`,
//! `make profile-results`.
//!
//! Keeps the JSON object that the program prints, or with `--profiles` the shares of the profiles that it writes. If
//! the program fails, the previous result stays.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use serde_json::{Map, Value};

use crate::origin::Origin;
use crate::programs::{self, first_line};
use crate::results;

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

/// Runs the program and records its result.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let tools = [&args.command[0][..]].into_iter();
    let tools = tools.chain(args.profiles.is_some().then_some("perf"));
    let version = |tool| first_line(Command::new(tool).arg("--version"));
    let versions = tools.map(version).collect::<Result<_, _>>()?;
    let origin = Origin::of_command(args.command.clone(), versions);
    let mut found = measured(&args.command, args.profiles.as_deref())?;
    found.insert("origin".to_owned(), serde_json::to_value(origin)?);
    results::save(&Value::Object(found), &args.out)?;
    let profiles = args.profiles.as_ref();
    profiles.map_or(Ok(()), |directory| keep_flame_graph(directory, &args.out))
}

/// Runs the program; returns its output, or the shares of the profiles that it has written.
fn measured(command: &[String], profiles: Option<&Path>) -> anyhow::Result<Map<String, Value>> {
    let mut program = Command::new(&command[0]);
    let printed = programs::output(program.args(&command[1..]).stderr(Stdio::inherit()))?;
    match profiles {
        Some(directory) => shares(directory),
        None => serde_json::from_str(&printed).context("the output is not a JSON object"),
    }
}

/// The shares of every profile in `directory`, by the name of the profile's directory.
fn shares(directory: &Path) -> anyhow::Result<Map<String, Value>> {
    let entries = fs::read_dir(directory).with_context(|| directory.display().to_string())?;
    let mut shares = Map::new();
    for entry in entries {
        let entry = entry?;
        if let Some(found) = results::load(&entry.path().join(SHARES))? {
            shares.insert(entry.file_name().to_string_lossy().into_owned(), found);
        }
    }
    let directory = directory.display();
    ensure!(!shares.is_empty(), "no profile in {directory}");
    Ok(shares)
}

/// Copies the flame graph to the result file's directory, without its line breaks.
fn keep_flame_graph(directory: &Path, result: &Path) -> anyhow::Result<()> {
    let from = directory.join(PICTURED).join("flamegraph.svg");
    let picture = fs::read_to_string(&from).with_context(|| from.display().to_string())?;
    let (size, from) = (picture.len(), from.display());
    ensure!(
        size < MOST_BYTES,
        "{from} has {size} bytes, too many to commit"
    );
    let to = result.with_file_name(format!("flamegraph-{PICTURED}.svg"));
    // Line breaks within its script and style stay.
    results::save_bytes(picture.replace(">\n<", "><").as_bytes(), &to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_is_kept_with_its_command_and_a_failure_leaves_the_former_result_alone() {
        let directory = tempfile::tempdir().unwrap();
        let out = directory.path().join("result.json");
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
        let script = r#"echo '{"version": "1", "runs": [{"gbps": 6.5}]}'"#;
        run(script).unwrap();
        let kept: Value = serde_json::from_str(&text()).unwrap();
        assert_eq!(kept["runs"][0]["gbps"], 6.5);
        assert_eq!(kept["origin"]["command"][2], script);
    }

    #[test]
    fn every_side_keeps_its_shares_and_one_its_picture() {
        let outer = tempfile::tempdir().unwrap();
        let path = |name: &str| outer.path().join(name);
        assert!(shares(outer.path()).is_err(), "nothing is there yet");
        for (side, share) in [("gso", "0.1"), ("no-gso", "0.3")] {
            let text = format!(r#"{{"all": {{"udp_sendmsg": {share}}}}}"#);
            results::save_bytes(text.as_bytes(), &path(side).join(SHARES)).unwrap();
        }
        let kept = shares(outer.path()).unwrap();
        assert_eq!(kept["no-gso"]["all"]["udp_sendmsg"], 0.3);
        fs::write(path("gso/flamegraph.svg"), "<svg>\n<g/>\n</svg>\n").unwrap();
        keep_flame_graph(outer.path(), &path("profile.json")).unwrap();
        let picture = fs::read_to_string(path("flamegraph-gso.svg")).unwrap();
        assert_eq!(picture, "<svg><g/></svg>\n");
    }
}
