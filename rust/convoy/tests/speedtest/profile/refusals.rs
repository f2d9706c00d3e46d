//! Whatever stands in the way is told, and leaves neither a process nor half a profile.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use convoy_lab::{Pid, eventually, require_root_lab};
use nix::sys::signal::{Signal, kill};
use tempfile::TempDir;

use crate::PROGRAM;
use crate::death::{MARK, assert_nothing_left, interfaces};

use super::{busy_bed, place, turn_with_perf};

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
        let mut command = Command::new(PROGRAM);
        command
            .args(["speedtest", "--secs", "1", "--profile"])
            .arg(&out);
        let (mut process, said) = start_until(command.env(MARK, &mark), &outer, moment);
        kill(Pid::from_raw(process.id().cast_signed()), Signal::SIGINT).unwrap();
        assert_eq!(process.wait().unwrap().code(), Some(130), "{}", said());
        assert!(said().contains("interrupted"), "{}", said());
        assert_nothing_left(&mark, &before);
        assert!(!out.exists());
    }
}

#[test]
fn a_daemon_that_ends_is_told() {
    let test = "a_daemon_that_ends_is_told";
    let Some(_turn) = turn_with_perf(test) else {
        return;
    };
    let bed = busy_bed();
    let (outer, out) = place();
    let daemon = &bed.tunnel.left.daemon;
    let mut command = Command::new(PROGRAM);
    command.args(["profile", "--pid", &daemon.pid().to_string(), "--secs", "2"]);
    command.arg("--out").arg(&out);
    let (mut process, said) = start_until(&mut command, &outer, "recording (perf");
    daemon.signal(Signal::SIGKILL).unwrap();
    assert_eq!(process.wait().unwrap().code(), Some(1), "{}", said());
    assert!(said().contains("ended while it was profiled"), "{}", said());
    assert!(!out.exists());
}

#[test]
fn what_is_missing_or_forbidden_is_told_with_its_fix() {
    let test = "what_is_missing_or_forbidden_is_told_with_its_fix";
    let Some(_turn) = turn_with_perf(test).filter(|_| require_root_lab(test)) else {
        return;
    };
    let bed = busy_bed();
    let pid = bed.tunnel.left.daemon.pid().to_string();
    let (outer, out) = place();
    fs::set_permissions(outer.path(), Permissions::from_mode(0o755)).unwrap();
    // The program is copied, since its directory may be closed to nobody.
    let program = outer.path().join("convoy");
    fs::copy(PROGRAM, &program).unwrap();
    let profile = |out: &Path| {
        let mut command = Command::new(&program);
        command.args(["profile", "--pid", &pid, "--secs", "1", "--out"]);
        command.arg(out);
        command
    };

    let said = refusal(profile(&out).env("PATH", outer.path()));
    assert!(said.contains("perf is not installed"), "{said}");
    assert!(said.contains("fix: "), "{said}");
    let said = refusal(&mut profile(outer.path()));
    assert!(said.contains("is not empty (fix: "), "{said}");
    let said = refusal(profile(&out).uid(NOBODY).gid(NOBODY));
    assert!(said.contains(out.to_str().unwrap()), "{said}");
    assert!(said.contains("Permission denied"), "{said}");
    let open = tempfile::tempdir().unwrap();
    fs::set_permissions(open.path(), Permissions::from_mode(0o777)).unwrap();
    let said = refusal(profile(open.path()).uid(NOBODY).gid(NOBODY));
    assert!(said.contains("fix: run as root"), "{said}");
    assert!(fs::read_dir(open.path()).unwrap().next().is_none());
    assert!(!out.exists());
}

#[test]
fn a_name_or_a_process_that_is_none_of_ours_is_told() {
    let (_outer, out) = place();
    let said = refusal(Command::new(PROGRAM).args(["profile", "no-such-one"]));
    assert!(said.contains("no daemon answers for no-such-one"), "{said}");
    let me = std::process::id().to_string();
    let said = refusal(Command::new(PROGRAM).args(["profile", "--pid", &me]));
    assert!(said.contains("is no convoy daemon"), "{said}");
    let said = refusal(Command::new(PROGRAM).arg("profile"));
    assert!(said.contains("which daemon?"), "{said}");
    assert!(!out.exists());
}

#[test]
fn a_text_that_is_truncated_or_polluted_is_told_with_its_line() {
    let sample = "tunnel 1/2 1.5: 100 cycles: \n\t1 f+0x1 (a)\n\n";
    let polluted = format!("{sample}Warning: lost 3 events\n{sample}");
    let cases = [
        ("", "line 0: the text ends without a sample"),
        (
            &sample[..sample.len() - 1],
            "line 2: the text ends in the middle",
        ),
        (&sample[..35], "line 2: the text ends in the middle"),
        (
            &polluted,
            "line 4: this is no part of a sample: \"Warning: lost",
        ),
    ];
    let (outer, out) = place();
    let text = outer.path().join("by-hand.perf");
    for (content, expected) in cases {
        fs::write(&text, content).unwrap();
        let said = refusal(&mut read(&text, &out));
        assert!(
            said.contains(&format!("by-hand.perf, {expected}")),
            "{said}"
        );
        assert!(!out.exists());
    }
    fs::write(&text, sample).unwrap();
    assert!(read(&text, &out).output().unwrap().status.success());
    assert_eq!(
        super::files(&out),
        ["flamegraph.svg", "profile.perf", "report.md", "shares.json"]
    );
}

fn read(text: &Path, out: &Path) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(["profile", "--read"]).arg(text);
    command.arg("--out").arg(out);
    command
}

/// Starts `command`, and waits until it says that it is at `moment`; gives what it has said so far.
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

/// What a command says that fails.
fn refusal(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    said
}
