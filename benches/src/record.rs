//! Keeps the result of a program that measures, with the commit and the command line that it belongs to:
//! `make speedtest-results`, `make profile-results`.
//!
//! The JSON object that the program prints is kept; or, with `--profiles`, the shares of the profiles that it
//! writes. A program that fails leaves the former result alone.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use serde_json::{Map, Value};

use crate::origin::{Origin, first_line_of};
use crate::results;

/// Runs a program that measures, and writes its result and its origin into a result file
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The result file
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Keep the shares of the profiles that the program writes below this directory, and a flame graph beside
    /// the result file, instead of the program's output
    #[arg(long, value_name = "DIR")]
    profiles: Option<PathBuf>,
    /// The program with its arguments
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// The file that a profile writes for programs (`perf/README.md`).
const SHARES: &str = "shares.json";
/// The side whose picture is kept: as Convoy runs where the kernel has everything.
const PICTURED: &str = "gso";
/// The largest picture that is committed.
const MOST_BYTES: usize = 1_000_000;

/// Runs the program and keeps its result.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let tools = [&args.command[0][..]]
        .into_iter()
        .chain(args.profiles.is_some().then_some("perf"));
    let version = |tool| first_line_of(Command::new(tool).arg("--version"));
    let versions = tools.map(version).collect::<Result<_, _>>()?;
    let origin = Origin::of_command(args.command.clone(), versions);
    let printed = output_of(&args.command)?;
    match &args.profiles {
        Some(directory) => {
            keep(shares(directory)?, &origin, &args.out)?;
            keep_flame_graph(directory, &args.out)
        }
        None => keep(object(&printed)?, &origin, &args.out),
    }
}

/// The output of the program; its standard error goes to the terminal.
fn output_of(command: &[String]) -> anyhow::Result<String> {
    let mut program = Command::new(&command[0]);
    program
        .args(&command[1..])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit());
    let output = program
        .output()
        .with_context(|| format!("start {}", command[0]))?;
    ensure!(
        output.status.success(),
        "`{}` ended with {}",
        command.join(" "),
        output.status
    );
    Ok(String::from_utf8(output.stdout)?)
}

fn object(printed: &str) -> anyhow::Result<Map<String, Value>> {
    serde_json::from_str(printed).context("the output is no JSON object")
}

fn keep(mut found: Map<String, Value>, origin: &Origin, out: &Path) -> anyhow::Result<()> {
    found.insert("origin".to_owned(), serde_json::to_value(origin)?);
    results::save(&Value::Object(found), out)
}

/// The shares of every profile in `directory`, by the name of its own directory.
fn shares(directory: &Path) -> anyhow::Result<Map<String, Value>> {
    let entries = fs::read_dir(directory).with_context(|| directory.display().to_string())?;
    let mut shares = Map::new();
    for entry in entries {
        let entry = entry?;
        if let Some(found) = results::load(&entry.path().join(SHARES))? {
            shares.insert(entry.file_name().to_string_lossy().into_owned(), found);
        }
    }
    ensure!(
        !shares.is_empty(),
        "there is no profile in {}",
        directory.display()
    );
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
    // Its script and its style keep their line breaks.
    results::save_bytes(picture.replace(">\n<", "><").as_bytes(), &to)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keeps the output of `script` over a former result.
    fn recorded(script: &str) -> (anyhow::Result<()>, String) {
        let directory = tempfile::tempdir().unwrap();
        let out = directory.path().join("result.json");
        fs::write(&out, "former").unwrap();
        let command = ["sh", "-c", script].map(str::to_owned).to_vec();
        let origin = Origin::of_command(command.clone(), Vec::new());
        let found = output_of(&command).and_then(|printed| object(&printed));
        let outcome = found.and_then(|found| keep(found, &origin, &out));
        (outcome, fs::read_to_string(out).unwrap())
    }

    #[test]
    fn the_output_is_kept_with_its_command_and_a_failure_leaves_the_former_result_alone() {
        let script = r#"echo '{"version": "1", "runs": [{"gbps": 6.5}]}'"#;
        let (outcome, text) = recorded(script);
        outcome.unwrap();
        let kept: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(kept["runs"][0]["gbps"], 6.5);
        assert_eq!(kept["origin"]["command"][2], script);
        for script in ["echo '{}'; exit 3", "echo oh", "echo '[1]'"] {
            let (outcome, text) = recorded(script);
            assert!(outcome.is_err() && text == "former", "{script}");
        }
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
        fs::write(path("gso/flamegraph.svg"), " ".repeat(MOST_BYTES)).unwrap();
        let refusal = keep_flame_graph(outer.path(), &path("profile.json")).unwrap_err();
        assert!(
            refusal.to_string().contains("has 1000000 bytes"),
            "{refusal}"
        );
    }
}
