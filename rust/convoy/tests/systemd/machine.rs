//! A Debian that boots in a container, and the network that it is in.
//!
//! ```text
//!  machine (systemd-nspawn)                          net (with wireguard-go)
//!   eth0 192.168.1.2 ─────────────────────────────── lan 192.168.1.1
//!   wg0  10.8.0.2    ═══════════════════════════════ wg0 10.8.0.1
//!                                                    lo  203.0.113.9, reached by default routes
//! ```
//!
//! All of it is in one namespace of a lab, which the kernel removes however the test ends: the files that the
//! machine changes are in an overlay over Debian's, and its processes in a process namespace that ends with
//! `unshare`.

mod group;

use std::{
    env,
    fs::{self, File, OpenOptions},
    io::Write as _,
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use convoy_lab::{Lab, Namespace, eventually, require_programs, require_root_lab};

use crate::root::debian;

/// How long to wait for anything that is expected to happen.
pub(super) const DEADLINE: Duration = Duration::from_secs(60);

/// Programs of the host that a machine needs.
const PROGRAMS: [&str; 9] = [
    "debootstrap",
    "ip",
    "nft",
    "nsenter",
    "systemctl",
    "systemd-nspawn",
    "unshare",
    "wg",
    "wireguard-go",
];

/// The server, and a counter of packets that come to 203.0.113.9 beside the tunnel.
const NET: &str = "
    umask 077; wg genkey > /run/server; wg genkey > /run/client
    wireguard-go wg0 > /dev/null 2>&1
    wg set wg0 listen-port 51820 private-key /run/server \
        peer $(wg pubkey < /run/client) allowed-ips 10.8.0.2/32
    ip address add 10.8.0.1/24 dev wg0; ip link set up dev wg0
    ip address add 203.0.113.9/32 dev lo
    nft 'table ip leaks { chain arriving { type filter hook prerouting priority -300; }; }'
    nft 'add rule ip leaks arriving iifname lan ip daddr 203.0.113.9 counter'";

const NETWORKD: &str = "[Match]\nName=eth0\n[Network]\nAddress=192.168.1.2/24\nGateway=192.168.1.1\n\
     DNS=192.168.1.1\nLinkLocalAddressing=no\nIPv6AcceptRA=no\n";

/// nspawn looks up `eth0` in `/sys`, which shows the host's interfaces, and waits for udev where it is writable.
const SYS: &str = "
    mkdir /run/cgroup; mount --rbind /sys/fs/cgroup /run/cgroup
    mount -t sysfs -o ro sysfs /sys; mount --rbind /run/cgroup /sys/fs/cgroup";

/// A machine, switched off until [`Machine::boot`].
///
/// Prints its journal when the test fails.
pub(super) struct Machine {
    pub(super) net: Namespace,
    /// Whether it has this host's program.
    has_program: bool,
    container: Option<Child>,
    /// The machine's first process, as the host numbers it.
    init: Option<u32>,
    _lab: Lab,
    _turn: MutexGuard<'static, ()>,
}

impl Machine {
    /// With networkd. `None` if this host cannot provide it; the caller then skips its test.
    pub(super) fn new() -> Option<Self> {
        let machine = Self::without_network()?;
        machine.start_networkd();
        Some(machine)
    }

    /// With networkd, but without the program and its units.
    pub(super) fn without_program() -> Option<Self> {
        let mut machine = Self::bare()?;
        machine.has_program = false;
        machine.start_networkd();
        Some(machine)
    }

    /// Nobody sets up `eth0`.
    pub(super) fn without_network() -> Option<Self> {
        let machine = Self::bare()?;
        machine.install();
        Some(machine)
    }

    fn start_networkd(&self) {
        self.write("etc/systemd/network/eth0.network", NETWORKD);
        self.enable("systemd-networkd");
    }

    fn bare() -> Option<Self> {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let thread = thread::current();
        let test = thread.name().unwrap_or("test");
        if !require_root_lab(test) || !require_programs(test, &PROGRAMS) {
            return None;
        }
        let debian = debian().map_err(|why| skip(test, &why)).ok()?;
        let lab = Lab::new().unwrap();
        let net = lab.namespace("net").unwrap();
        let lan = ["192.168.1.1/24"];
        lab.veth(&net, "lan", &lan, &net, "eth0", &[], 1_500)
            .unwrap();
        let machine = Self {
            net,
            has_program: true,
            container: None,
            init: None,
            _lab: lab,
            _turn: turn,
        };
        machine.shell_in_net(NET);
        machine.shell_in_net(SYS);
        machine.shell_in_net(&format!(
            "mkdir /run/machine; mount -t tmpfs -o size=512m,mode=755 tmpfs /run/machine; cd /run/machine
             mkdir root upper work
             mount -t overlay -o lowerdir={},upperdir=$PWD/upper,workdir=$PWD/work overlay root",
            debian.display()
        ));
        let key = machine.shell_in_net("cat /run/client");
        machine.write("etc/credstore/convoy.wg0.key", &key);
        Some(machine)
    }

    /// Installs the units.
    fn install(&self) {
        let units = Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd");
        for unit in fs::read_dir(units).unwrap().flatten() {
            let (name, text) = (unit.file_name(), fs::read_to_string(unit.path()).unwrap());
            let name = name.to_str().unwrap();
            self.write(&format!("etc/systemd/system/{name}"), &text);
        }
        self.write("usr/bin/convoy", "");
    }

    /// Lets a unit start at boot.
    pub(super) fn enable(&self, unit: &str) {
        self.at_boot("enable", unit);
    }

    /// Lets nobody start a unit.
    pub(super) fn mask(&self, unit: &str) {
        self.at_boot("mask", unit);
    }

    fn at_boot(&self, verb: &str, unit: &str) {
        let mut command = Command::new("systemctl");
        command.arg("--root").arg(self.root());
        let status = command.args(["--quiet", verb, unit]).status();
        assert!(status.unwrap().success(), "{verb} {unit}");
    }

    /// Writes a file of the machine that only root can read, but for units, which everyone can.
    pub(super) fn write(&self, name: &str, text: &str) {
        let path = self.root().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let mode = if name.starts_with("etc/systemd/") {
            0o644
        } else {
            0o600
        };
        // A link would lead out of the machine.
        self.remove(name);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(mode);
        let mut file = options.open(path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file.set_permissions(fs::Permissions::from_mode(mode))
            .unwrap();
    }

    /// Removes a file or a link of the machine, if there is one.
    pub(super) fn remove(&self, name: &str) {
        let _ = fs::remove_file(self.root().join(name));
    }

    /// Writes `/etc/wireguard/wg0.conf`, with these lines in `[Interface]`.
    pub(super) fn configure(&self, interface: &str, allowed_ips: &str) {
        let server = self.shell_in_net("wg pubkey < /run/server");
        self.write(
            "etc/wireguard/wg0.conf",
            &format!(
                "[Interface]\n#convoy: PrivateKeyFile = convoy.wg0.key\nAddress = 10.8.0.2/24\n{interface}\n\
                 [Peer]\nPublicKey = {server}Endpoint = 192.168.1.1:51820\nAllowedIPs = {allowed_ips}\n"
            ),
        );
    }

    /// The machine's root directory for this process.
    pub(super) fn root(&self) -> PathBuf {
        self.net.run_directory().join("machine/root")
    }

    /// Starts the machine and waits until its services run; `false` if this host cannot run it.
    pub(super) fn boot(&mut self) -> bool {
        let log = self.net.run_directory().join("console");
        let console = File::create(&log).unwrap();
        let mut command = self.net.command("sh");
        command
            .env("GROUP", group::name())
            .args(["-c", group::ENTER, "sh"])
            .args(["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"])
            .args([
                "systemd-nspawn",
                "--quiet",
                "--boot",
                "--register=no",
                "--keep-unit",
            ])
            .args([
                "--settings=no",
                "--directory=/run/machine/root",
                "--machine=convoy-test",
            ])
            .args(["--resolv-conf=off", "--timezone=off", "--link-journal=no"])
            .args([
                "--network-interface=eth0",
                "--bind=/dev/net/tun",
                "--console=pipe",
            ])
            .stdin(Stdio::null())
            .stdout(console.try_clone().unwrap())
            .stderr(console);
        if self.has_program {
            command.arg(format!("--bind-ro={}:/usr/bin/convoy", program().display()));
        }
        self.container = Some(command.spawn().unwrap());
        let is_up = eventually(DEADLINE, || {
            self.init = self.find_init();
            (self.init.is_some() && self.succeeds("systemctl -q is-active multi-user.target"))
                .then_some(())
        });
        if is_up.is_none() {
            let said = fs::read_to_string(&log).unwrap_or_default();
            let thread = thread::current();
            skip(
                thread.name().unwrap_or("test"),
                &format!("it does not boot:\n{said}"),
            );
        }
        is_up.is_some()
    }

    /// `unshare` has started nspawn, and that the first process.
    fn find_init(&self) -> Option<u32> {
        let child = |pid: u32| -> Option<u32> {
            let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
            children.split_whitespace().next()?.parse().ok()
        };
        child(child(self.container.as_ref()?.id())?)
    }

    /// Runs a shell command in the machine.
    pub(super) fn run(&self, line: &str) -> Output {
        let init = self.init.expect("booted").to_string();
        Command::new("nsenter")
            .args(["-m", "-u", "-i", "-n", "-p", "-C", "-t", &init])
            .args(["env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"])
            .args(["sh", "-ec", line])
            .output()
            .unwrap()
    }

    pub(super) fn succeeds(&self, line: &str) -> bool {
        self.run(line).status.success()
    }

    /// Runs a shell command in the machine, which must succeed, and returns its output.
    pub(super) fn shell(&self, line: &str) -> String {
        text_of(line, self.run(line))
    }

    pub(super) fn shell_in_net(&self, line: &str) -> String {
        text_of(
            line,
            self.net.command("sh").args(["-ec", line]).output().unwrap(),
        )
    }

    /// Waits until a shell command succeeds in the machine.
    pub(super) fn waits_for(&self, line: &str) {
        let done = eventually(DEADLINE, || self.succeeds(line).then_some(()));
        assert!(done.is_some(), "{line}: {:?}", self.run(line));
    }

    /// Packets that came to 203.0.113.9 beside the tunnel so far.
    pub(super) fn leaks(&self) -> u64 {
        let rules = self.shell_in_net("nft list table ip leaks");
        let count = rules.split("packets ").nth(1).unwrap().split(' ').next();
        count.unwrap().parse().unwrap()
    }

    /// A property of `convoy@wg0`.
    pub(super) fn property(&self, name: &str) -> String {
        let value = self.shell(&format!("systemctl show -P {name} convoy@wg0"));
        value.trim().to_owned()
    }

    /// All that `convoy up` may change.
    pub(super) fn dump(&self) -> String {
        self.shell(
            "ip -o link | sed 's/qdisc.*//'; ip -brief address; ip -4 rule; ip -6 rule
             ip -4 route show table all; ip -6 route show table all; nft list ruleset
             cat /proc/sys/net/ipv4/conf/all/src_valid_mark
             find /run/convoy /run/wireguard /var/lib/convoy ! -type d 2>/dev/null || true
             find /etc ! -type d | sort; cat /etc/resolv.conf
             if systemctl -q is-active systemd-resolved; then resolvectl dns; resolvectl domain; fi",
        )
    }

    pub(super) fn is_left_as(&self, before: &str) {
        // systemd stops the tunnel's socket once nobody needs it.
        let is_as_before = || (self.dump() == before).then_some(());
        if eventually(DEADLINE, is_as_before).is_none() {
            assert_eq!(self.dump(), before);
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if thread::panicking() && self.init.is_some() {
            let journal = self.run("journalctl --no-pager -o short-monotonic | tail -n 150");
            eprintln!(
                "--- the machine's journal:\n{}",
                String::from_utf8_lossy(&journal.stdout)
            );
        }
        if let Some(container) = &mut self.container {
            // Both fail only if it has ended by itself.
            let _ = container.kill();
            let _ = container.wait();
        }
        group::remove();
    }
}

/// Says why a test is skipped, or fails it if that is forbidden.
fn skip(test: &str, why: &str) {
    let is_forbidden = env::var_os("CONVOY_REQUIRE_LAB").is_some_and(|value| value == "1");
    assert!(!is_forbidden, "{test} needs a machine: {why}");
    eprintln!("SKIPPED {test}: {why}");
}

fn program() -> PathBuf {
    let program = env::var_os("CONVOY_TEST_PROGRAM").map(PathBuf::from);
    program.unwrap_or_else(|| env!("CARGO_BIN_EXE_convoy").into())
}

fn text_of(line: &str, output: Output) -> String {
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{line}: {}\n{stdout}{stderr}",
        output.status
    );
    stdout
}
