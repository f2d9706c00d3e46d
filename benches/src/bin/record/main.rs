//! Keeps what a program has measured, with the commit and the command line that it belongs to:
//! `make speedtest-results`, `make profile-results`.
//!
//! What is kept is the JSON object that the program prints; or, with `--profiles`, the shares of the
//! profiles that it writes ([`profiles`]). A program that fails leaves the former result alone.

mod profiles;

use std::{
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
};

use anyhow::{Context as _, ensure};
use clap::Parser;
use convoy_benches::{
    origin::{Origin, first_line_of},
    results,
};
use serde_json::{Map, Value};

/// Runs a program that measures, and writes what it found with its origin into a result file.
#[derive(Debug, Parser)]
struct Args {
    /// The result file
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Keep the shares of the profiles that the program writes below this directory, and a flame graph
    /// beside the result file, not what is printed
    #[arg(long, value_name = "DIR")]
    profiles: Option<PathBuf>,
    /// The program with its arguments
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

fn main() -> ExitCode {
    match record(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("record: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn record(args: &Args) -> anyhow::Result<()> {
    let Args {
        out,
        profiles,
        command,
    } = args;
    let mut tools = vec![&command[0][..]];
    tools.extend(profiles.as_ref().map(|_| "perf"));
    let version = |tool: &&str| first_line_of(Command::new(tool).arg("--version"));
    let versions = tools.iter().map(version).collect::<Result<_, _>>()?;
    let origin = Origin::of_command(command.clone(), versions);
    let printed = run(command)?;
    match profiles {
        Some(directory) => {
            keep(profiles::shares(directory)?, &origin, out)?;
            profiles::keep_flame_graph(directory, out)
        }
        None => keep(object(&printed)?, &origin, out),
    }
}

/// What the program prints; its standard error is left to the user.
fn run(command: &[String]) -> anyhow::Result<String> {
    let output = Command::new(&command[0])
        .args(&command[1..])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
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
    serde_json::from_str(printed).context("what was printed is no JSON object")
}

fn keep(mut found: Map<String, Value>, origin: &Origin, out: &Path) -> anyhow::Result<()> {
    found.insert("origin".to_owned(), serde_json::to_value(origin)?);
    Ok(results::save(&Value::Object(found), out)?)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// What `script` prints is kept, over a former result.
    fn recorded(script: &str) -> (anyhow::Result<()>, String) {
        let directory = tempfile::tempdir().unwrap();
        let out = directory.path().join("result.json");
        fs::write(&out, "former").unwrap();
        let command = ["sh", "-c", script].map(str::to_owned).to_vec();
        let origin = Origin::of_command(command.clone(), Vec::new());
        let found = run(&command).and_then(|printed| object(&printed));
        let outcome = found.and_then(|found| keep(found, &origin, &out));
        (outcome, fs::read_to_string(out).unwrap())
    }

    #[test]
    fn what_is_printed_is_kept_with_the_command_and_the_commit() {
        let script = r#"echo '{"version": "1", "runs": [{"gbps": 6.5}]}'"#;
        let (outcome, text) = recorded(script);
        outcome.unwrap();
        let kept: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(kept["runs"][0]["gbps"], 6.5);
        let origin: Origin = serde_json::from_value(kept["origin"].clone()).unwrap();
        assert_eq!(origin.command[2], script);
        assert!(!origin.commit.is_empty());
    }

    #[test]
    fn a_program_that_fails_or_prints_something_else_leaves_the_former_result_alone() {
        for script in ["echo '{}'; exit 3", "echo oh", "echo '[1]'"] {
            let (outcome, text) = recorded(script);
            assert!(outcome.is_err(), "{script}");
            assert_eq!(text, "former", "{script}");
        }
    }
}
