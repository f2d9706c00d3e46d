//! Help, documents and diagnostics, word by word: they equal the files in `golden`.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::Command,
};

use convoy_report::golden;
use tempfile::tempdir;

use super::{CONVOY, result, run};

/// Set to anything, this has each test write its file.
const UPDATE: &str = "CONVOY_UPDATE_GOLDENS";

const KEY: &str = "PrivateKey = yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=";
const PEER: &str = "[Peer]\nPublicKey = xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=";

/// Files that `convoy check` refuses; `KEY` and `PEER` stand for a private key and the head of a peer.
const BROKEN: &[&str] = &[
    "",
    "nonsense",
    "[Interfaces]",
    "MTU = 1420",
    "[Interface]\nPrivateKey = short\nPrivateKey = short",
    "[Interface]\nKEY\nAdress = 10.0.0.1\n#convoy: Killswitch = on\n#convoy: KilSwitch = on\n#convoy: MTU = 1420",
    "[Interface]\nKEY\nAddress = 10.0.0.1/33, 10.0.0, fd00::/129\nMTU = 64\nListenPort = 70000\nFwMark = 0x1ffffffff",
    "[Interface]\nKEY\nTable = many\nSaveConfig = maybe\nDNS = 10.0.0.1 corp",
    "[Interface]\nKEY\n#convoy: KillSwitch = sometimes\n#convoy: AllowLAN\n#convoy: ExcludedIPs = everything",
    "[Interface]\nKEY\n#convoy: PrivateKeyFile = wg0.key\n[Interface]",
    "[Interface]\n#convoy: PrivateKeyFile = absent.key",
    "[Interface]\nKEY\n[Peer]\nEndpoint = 192.0.2.1:51820",
    "[Interface]\nKEY\nPEER\nPEER",
    "[Interface]\nKEY\nPEER\nEndpoint = 192.0.2.1\nAllowedIPs = 10.0.0.0/40\nPersistentKeepalive = 1h\nPresharedKey = AAAA=",
    "[Interface]\nKEY\n#convoy: Turn = turn:turn.example.org\n#convoy: Stun = stun.example.org",
    "[Interface]\nKEY\n#convoy: PortMap = always\n#convoy: PortForward = 10.2.0.300",
    "[Interface]\nKEY\n#convoy: Via = wg0",
    "[Interface]\nKEY\n#convoy: Via = absent",
    "[Interface]\nKEY\n#convoy: Forward = tcp 80",
];

#[test]
fn help_is_as_committed() {
    let of = |arguments: &[&str]| {
        let (status, text, stderr) = result(&run(convoy().args(arguments), ""));
        assert_eq!((status, stderr.as_str()), (Some(0), ""), "{arguments:?}");
        format!("$ convoy {}\n{text}\n", arguments.join(" "))
    };
    let overview = of(&["--help"]);
    let commands = overview.split("Commands:\n").nth(1).unwrap();
    let commands = commands.split("\n\n").next().unwrap().lines();
    let commands = commands.map(|line| line.split_whitespace().next().unwrap());
    let each: String = commands.map(|name| of(&[name, "--help"])).collect();
    compare("help.txt", &(overview + &each + &of(&["help", "config"])));
}

#[test]
fn man_pages_and_completions_are_as_committed() {
    let folder = tempdir().unwrap();
    let written = run(convoy().arg("generate-documents").arg(folder.path()), "");
    assert!(written.status.success());
    let entries = fs::read_dir(folder.path().join("man")).unwrap().flatten();
    let mut pages: Vec<_> = entries.map(|entry| entry.path()).collect();
    pages.sort();
    let page = |path: &Path| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        format!("{name}:\n{}\n", fs::read_to_string(path).unwrap())
    };
    let pages: String = pages.iter().map(|path| page(path)).collect();
    compare("man.txt", &pages);
    // The one with a line for each option; the same library makes the others from the same commands.
    let completions = folder.path().join("completions/convoy.fish");
    compare(
        "completions.fish",
        &fs::read_to_string(completions).unwrap(),
    );
}

#[test]
fn diagnostics_are_as_committed() {
    let folder = tempdir().unwrap();
    let checked = BROKEN.iter().map(|text| {
        let text = text.replace("KEY", KEY).replace("PEER", PEER);
        let path = folder.path().join("wg0.conf");
        fs::write(&path, &text).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let mut check = convoy();
        let check = check.current_dir(&folder).args(["check", "wg0.conf"]);
        let (status, stdout, stderr) = result(&run(check, ""));
        assert_eq!((status, stdout.as_str()), (Some(1), ""), "{text}\n{stderr}");
        format!("--- {text:?}\n{stderr}\n")
    });
    compare("diagnostics.txt", &checked.collect::<String>());
}

/// The program without the environment's say in what it prints.
fn convoy() -> Command {
    let mut convoy = Command::new(CONVOY);
    convoy.env_clear();
    convoy
}

fn compare(name: &str, text: &str) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/commands/golden");
    golden::compare(&directory.join(name), text, UPDATE);
}
