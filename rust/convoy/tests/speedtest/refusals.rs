//! A profile that cannot be made says why, and leaves neither a process nor an unfinished profile.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use convoy_lab::{Pid, eventually, require_root_lab};
use nix::sys::signal::{Signal, kill};
use tempfile::TempDir;

use crate::death::{MARK, assert_nothing_left, interfaces};
use crate::profile::{busy_bed, files, place};
use crate::{PROGRAM, convoy, turn_with_perf};

const DEADLINE: Duration = Duration::from_secs(120);
const NOBODY: u32 = 65_534;

#[test]
fn an_interrupt_leaves_no_process_and_no_half_profile() {
    let test = "an_interrupt_leaves_no_process_and_no_half_profile";
    let Some(_turn) = turn_with_perf(test) else {
        return;
    };
    let before = interfaces();
    for moment in ["counting (perf", "counting system calls"] {
        let (outer, out) = place();
        let mark = format!("{test}:{moment}");
        let mut command = convoy(&["speedtest", "--secs", "1", "--profile"]);
        let command = command.arg(&out).env(MARK, &mark);
        let (mut process, said) = start_until(command, &outer, moment);
        kill(Pid::from_raw(process.id().cast_signed()), Signal::SIGINT).unwrap();
        assert_eq!(process.wait().unwrap().code(), Some(130), "{}", said());
        assert!(said().contains("interrupted"), "{}", said());
        assert_nothing_left(&mark, &before);
        assert!(!out.exists());
    }
}

#[test]
fn a_daemon_that_ends_is_named() {
    let Some(_turn) = turn_with_perf("a_daemon_that_ends_is_named") else {
        return;
    };
    let bed = busy_bed();
    let (outer, out) = place();
    let daemon = &bed.tunnel.left.daemon;
    let pid = daemon.pid().to_string();
    let mut command = convoy(&["profile", "--pid", &pid, "--secs", "2", "--out"]);
    let (mut process, said) = start_until(command.arg(&out), &outer, "recording (perf");
    daemon.signal(Signal::SIGKILL).unwrap();
    assert_eq!(process.wait().unwrap().code(), Some(1), "{}", said());
    assert!(said().contains("ended while it was profiled"), "{}", said());
    assert!(!out.exists());
}

#[test]
fn missing_tools_and_rights_are_named_with_their_fix() {
    let test = "missing_tools_and_rights_are_named_with_their_fix";
    let Some(_turn) = turn_with_perf(test).filter(|_| require_root_lab(test)) else {
        return;
    };
    let bed = busy_bed();
    let pid = bed.tunnel.left.daemon.pid().to_string();
    let (outer, out) = place();
    fs::set_permissions(outer.path(), Permissions::from_mode(0o755)).unwrap();
    // A copy of the program, since `nobody` may have no access to its directory. Made by another process: while this
    // one could write to it, children of other tests would keep it from being executed.
    let program = outer.path().join("convoy");
    let copied = Command::new("cp").arg(PROGRAM).arg(&program).status();
    assert!(copied.unwrap().success());
    let profile = |out: &Path| {
        let mut command = Command::new(&program);
        command.args(["profile", "--pid", &pid, "--secs", "1", "--out"]);
        command.arg(out);
        command
    };
    let open = tempfile::tempdir().unwrap();
    fs::set_permissions(open.path(), Permissions::from_mode(0o777)).unwrap();

    let named = out.to_str().unwrap();
    let as_nobody = |out: &Path| {
        let mut command = profile(out);
        command.uid(NOBODY).gid(NOBODY);
        command
    };
    let without_tools = &mut profile(&out);
    without_tools.env("PATH", outer.path());
    refused(without_tools, &["perf is not installed", "fix: "]);
    refused(&mut profile(outer.path()), &["is not empty (fix: "]);
    refused(&mut as_nobody(&out), &[named, "Permission denied"]);
    refused(&mut as_nobody(open.path()), &["fix: run as root"]);
    assert!(fs::read_dir(open.path()).unwrap().next().is_none());
    assert!(!out.exists());
}

#[test]
fn a_name_or_a_process_of_no_daemon_is_refused() {
    let me = std::process::id().to_string();
    for (arguments, part) in [
        (
            &["profile", "no-such-one"][..],
            "no daemon answers for no-such-one",
        ),
        (&["profile", "--pid", &me], "is no convoy daemon"),
        (&["profile"], "which daemon?"),
    ] {
        refused(&mut convoy(arguments), &[part]);
    }
    assert!(!Path::new("convoy-profile").exists());
}

#[test]
fn a_text_that_is_truncated_or_polluted_is_refused_with_its_line() {
    let sample = "tunnel 1/2 1.5: 100 cycles: \n\t1 f+0x1 (a)\n\n";
    let polluted = format!("{sample}Warning: lost 3 events\n{sample}");
    let truncated = "line 2: the text ends in the middle";
    let foreign = "line 4: this is no sample of `perf script -F +pid`: \"Warning: lost";
    let (outer, out) = place();
    let text = outer.path().join("by-hand.perf");
    let read = || {
        let mut command = convoy(&["profile", "--read"]);
        command.arg(&text).arg("--out").arg(&out);
        command
    };
    for (content, expected) in [
        ("", "line 0: the text ends without a sample"),
        (&sample[..sample.len() - 1], truncated),
        (&sample[..35], truncated),
        (&polluted, foreign),
    ] {
        fs::write(&text, content).unwrap();
        refused(&mut read(), &[&format!("by-hand.perf: {expected}")]);
        assert!(!out.exists());
    }
    fs::write(&text, sample).unwrap();
    assert!(read().output().unwrap().status.success());
    let expected = "flamegraph.svg profile.perf report.md shares.json";
    assert_eq!(files(&out), expected);
}

/// Starts `command` and waits until it reports `moment`; returns its output so far.
fn start_until(
    command: &mut Command,
    outer: &TempDir,
    moment: &str,
) -> (Child, impl Fn() -> String) {
    let log = outer.path().join("said");
    let process = command.stderr(File::create(&log).unwrap()).spawn().unwrap();
    let said = move || fs::read_to_string(&log).unwrap();
    let begun = eventually(DEADLINE, || said().contains(moment).then_some(()));
    assert!(begun.is_some(), "{}", said());
    (process, said)
}

/// Runs `command`, which must fail with a message that contains these parts.
fn refused(command: &mut Command, parts: &[&str]) {
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    for part in parts {
        assert!(said.contains(part), "{part}: {said}");
    }
}
