//! The commands that need no tunnel: check, genkey, genpsk, pubkey; and what `make install` installs.

mod output;

use std::{
    fs::{self, File, Permissions},
    io::Write,
    os::unix::fs::PermissionsExt,
    process::{Command, Output, Stdio},
};

use convoy_lab::require_programs;
use tempfile::tempdir;

const CONVOY: &str = env!("CARGO_BIN_EXE_convoy");

#[test]
fn check_shows_errors_and_its_status_says_whether_there_are_any() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("wg0.conf");
    let check = |text: &str, flags: &[&str]| {
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        run(Command::new(CONVOY).arg("check").arg(&path).args(flags), "")
    };
    let key = "PrivateKey = yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=";
    let valid = check(&format!("[Interface]\n{key}\n"), &["--strict"]);
    assert_eq!(result(&valid), (Some(0), "".into(), "".into()));

    let (status, stdout, stderr) = result(&check("[Interface]\nAdress = 10.0.0.1\n", &[]));
    assert_eq!((status, stdout.as_str()), (Some(1), ""));
    assert!(
        stderr.starts_with("error: unknown key `Adress`\n"),
        "{stderr}"
    );
    assert!(
        stderr.contains("wg0.conf:2:1") && stderr.contains("`Address`"),
        "{stderr}"
    );
    assert!(stderr.ends_with("wg0.conf is not valid\n"), "{stderr}");

    let (status, _, stderr) = result(&check("[Interface]\n", &[]));
    assert_eq!(status, Some(0));
    assert!(stderr.starts_with("warning: no `PrivateKey`"), "{stderr}");
    assert_eq!(result(&check("[Interface]\n", &["--strict"])).0, Some(1));
    assert_eq!(
        result(&run(Command::new(CONVOY).arg("check"), "")).0,
        Some(2)
    );
}

#[test]
fn a_command_with_json_prints_its_schema() {
    for command in ["status", "events", "doctor"] {
        let (status, schema, _) =
            result(&run(Command::new(CONVOY).args([command, "--schema"]), ""));
        assert_eq!(status, Some(0));
        let schema: serde_json::Value = serde_json::from_str(&schema).unwrap();
        let described = schema["description"].as_str().unwrap();
        assert!(
            described.contains(&format!("`convoy {command} --json`")),
            "{described}"
        );
    }
}

#[test]
fn generated_keys_have_the_form_of_wg() {
    for command in ["genkey", "genpsk"] {
        let (status, first, stderr) = result(&run(Command::new(CONVOY).arg(command), ""));
        assert_eq!((status, stderr.as_str()), (Some(0), ""));
        let key = convoy_config::decode_key(first.strip_suffix('\n').unwrap()).unwrap();
        let is_clamped = key[0] & 7 == 0 && key[31] & 192 == 64;
        assert!(is_clamped || command == "genpsk");
        assert_ne!(result(&run(Command::new(CONVOY).arg(command), "")).1, first);
    }
}

#[test]
fn public_keys_and_refusals_are_those_of_wg() {
    let has_wg = require_programs("public_keys_and_refusals_are_those_of_wg", &["wg"]);
    let (_, private, _) = result(&run(Command::new(CONVOY).arg("genkey"), ""));
    let key = private.trim_end();
    let inputs = [
        private.clone(),
        key.to_owned(),
        format!("{key} \t\r\n\n"),
        // Not clamped.
        "//////////////////////////////////////////8=".to_owned(),
        format!(" {key}"),
        format!("{key}x"),
        format!("{key}\n{key}"),
        key[..43].to_owned(),
        String::new(),
    ];
    for input in inputs {
        let ours = result(&run(Command::new(CONVOY).arg("pubkey"), &input));
        if !has_wg {
            continue;
        }
        let theirs = result(&run(Command::new("wg").arg("pubkey"), &input));
        assert_eq!((ours.0, &ours.1), (theirs.0, &theirs.1), "{input:?}");
        assert!(!ours.2.contains(&key[..8]), "{}", ours.2);
    }
}

#[test]
fn a_key_in_a_public_file_is_warned_about_in_the_words_of_wg() {
    let folder = tempdir().unwrap();
    let has_wg = require_programs("a_key_in_a_public_file_is_warned_about", &["wg"]);
    for mode in [0o600, 0o640, 0o644, 0o602] {
        for command in ["genkey", "genpsk"] {
            let stderr = |program| {
                let path = folder.path().join("key");
                let file = File::create(&path).unwrap();
                fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
                let output = Command::new(program)
                    .arg(command)
                    .stdout(file)
                    .output()
                    .unwrap();
                assert_eq!(fs::read_to_string(&path).unwrap().len(), 45);
                String::from_utf8(output.stderr).unwrap()
            };
            let ours = stderr(CONVOY);
            assert_eq!(ours.contains("world accessible"), mode & 7 != 0, "{ours}");
            if has_wg {
                assert_eq!(ours, stderr("wg"));
            }
        }
    }
}

#[test]
fn what_make_installs_fits_together_and_goes_again() {
    if !require_programs("what_make_installs_fits_together", &["make", "bash"]) {
        return;
    }
    let folder = tempdir().unwrap();
    let installed = folder.path().join("installed");
    let make = |target: &str| {
        let mut make = Command::new("make");
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        make.args(["-C", root, target, "PREFIX=/opt/convoy"])
            .arg(format!("PROGRAM={CONVOY}"))
            .arg(format!("DESTDIR={}", installed.display()))
            .arg(format!(
                "DOCUMENTS={}",
                folder.path().join("documents").display()
            ));
        let (status, _, stderr) = result(&run(&mut make, ""));
        assert_eq!(status, Some(0), "{stderr}");
    };
    make("install");
    let at = |path: &str| installed.join("opt/convoy").join(path);
    let unit = fs::read_to_string(at("lib/systemd/system/convoy@.service")).unwrap();
    assert!(
        unit.contains("\nExecStart=/opt/convoy/bin/convoy up %i\n"),
        "{unit}"
    );
    let mut commands = unit.lines().filter(|line| line.starts_with("Exec"));
    assert!(!commands.any(|line| line.contains("=convoy ")), "{unit}");
    let version = run(Command::new(at("bin/convoy")).arg("--version"), "");
    assert!(version.status.success());
    let page = fs::read_to_string(at("share/man/man5/convoy.conf.5")).unwrap();
    assert!(
        page.contains("\n\\fB#convoy: KillSwitch\\fR = off, on or persistent\n"),
        "{page}"
    );
    let completion = at("share/bash-completion/completions/convoy");
    let syntax = run(Command::new("bash").arg("-n").arg(completion), "");
    assert!(syntax.status.success());

    make("uninstall");
    let left = run(
        Command::new("find")
            .arg(&installed)
            .args(["!", "-type", "d"]),
        "",
    );
    assert_eq!(result(&left), (Some(0), "".into(), "".into()));
}

fn run(command: &mut Command, input: &str) -> Output {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut stdin = child.stdin.take().expect("stdin is a pipe");
    // A program that refuses early does not read all.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    child.wait_with_output().expect("the program ends")
}

/// Status, stdout and stderr.
fn result(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}
