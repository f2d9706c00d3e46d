//! The guest: QEMU, and the shell server that the guest's `init` starts.

use std::{
    env, fs,
    fs::File,
    io::{self, Read as _, Write as _},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream},
    ops::Deref,
    path::{Path, PathBuf},
    process::{Child, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use convoy_lab::{Lab, Namespace, eventually, require_programs, require_root_lab};

use crate::scene::output_of;

/// Time limit for anything in the guest: it is emulated, and the machine may be busy.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);

const QEMU: &str = "qemu-system-x86_64";
const CONTROL: Ipv4Addr = Ipv4Addr::new(192, 168, 77, 2);
const SCRIPTS: u16 = 1;
const FILES: u16 = 2;

/// Script that removes what a test has left, and sets up the guest's addresses.
const RESET: &str = "
    mkdir -p -m 700 /etc/wireguard
    for name in $(ls /etc/wireguard | sed 's/\\.conf$//'); do
        convoy down $name > /dev/null 2>&1 || wg-quick down $name > /dev/null 2>&1 || true
        rm /etc/wireguard/$name.conf
    done
    for name in $(wg show interfaces); do ip link delete $name; done
    modprobe wireguard
    ip link delete ifb0 2> /dev/null || true
    tc qdisc delete dev outside root 2> /dev/null || true
    tc qdisc delete dev outside ingress 2> /dev/null || true
    nft flush ruleset
    ip route delete default 2> /dev/null || true; ip -6 route delete default 2> /dev/null || true
    ip route flush root 198.18.0.0/16
    for link in outside inside; do ip address flush dev $link scope global; done
    ip link set outside mtu 1500; ip link set inside mtu 1500
    ip address add 10.9.0.2/24 dev outside; ip address add fd09::2/64 dev outside nodad
    ip address add 10.7.0.1/24 dev inside; ip address add fd07::1/64 dev inside nodad
    ip link set outside up; ip link set inside up
    echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding";

static GUEST: Mutex<Option<Guest>> = Mutex::new(None);

/// A guest that runs, and the namespaces at its interfaces.
pub(super) struct Guest {
    /// Namespace at `outside`, where Convoy runs.
    pub(super) left: Namespace,
    /// Namespace at `inside`, behind the guest.
    pub(super) right: Namespace,
    control: Namespace,
    qemu: Child,
    console: PathBuf,
    _lab: Lab,
}

/// A test's turn with the guest.
pub(super) struct Visit(MutexGuard<'static, Option<Guest>>);

impl Deref for Visit {
    type Target = Guest;

    fn deref(&self) -> &Guest {
        self.0.as_ref().unwrap()
    }
}

impl Visit {
    /// `None` if the machine cannot provide a guest; the caller then skips its test.
    pub(super) fn new() -> Option<Self> {
        let thread = thread::current();
        let test = thread.name().unwrap_or("test");
        let programs = [QEMU, "ip", "nft", "ping", "wg"];
        if !require_root_lab(test) || !require_programs(test, &programs) {
            return None;
        }
        let images = images();
        if !images.join("initramfs").is_file() {
            skip(test, "the guest is not built");
            return None;
        }
        let mut guest = GUEST.lock().unwrap_or_else(PoisonError::into_inner);
        if guest.as_mut().is_some_and(Guest::has_died) {
            *guest = None;
        }
        let visit = {
            guest.get_or_insert_with(|| Guest::boot(&images));
            Self(guest)
        };
        visit.shell(RESET);
        visit.reset_namespaces();
        Some(visit)
    }
}

/// Returns the directory that `build-guest` writes.
fn images() -> PathBuf {
    let default = || concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/guest").into();
    env::var_os("CONVOY_TEST_GUEST").map_or_else(default, PathBuf::from)
}

/// Says why a test is skipped, or fails it if that is forbidden.
fn skip(test: &str, why: &str) {
    let is_forbidden = env::var_os("CONVOY_REQUIRE_LAB").is_some_and(|value| value == "1");
    assert!(!is_forbidden, "{test} needs the guest: {why}");
    // Bypasses the capture of a passing test's output.
    let _ = writeln!(
        io::stderr(),
        "SKIPPED {test}: {why} (fix: make interop-kernel)"
    );
}

impl Guest {
    fn boot(images: &Path) -> Self {
        let lab = Lab::new().unwrap();
        let [left, right, control] =
            ["left", "right", "control"].map(|label| lab.namespace(label).unwrap());
        let console = left.run_directory().join("console");
        let log = File::create(&console).unwrap();
        let mut command = left.command(QEMU);
        command
            .args([
                "-accel",
                "tcg,thread=multi",
                "-cpu",
                "max",
                "-smp",
                "2",
                "-m",
                "512",
            ])
            .args([
                "-nodefaults",
                "-no-user-config",
                "-no-reboot",
                "-display",
                "none",
            ])
            .args([
                "-serial",
                "stdio",
                "-append",
                // A busy machine starves the timer that the kernel would check.
                "console=ttyS0 quiet panic=-1 no_timer_check",
            ])
            .arg("-kernel")
            .arg(images.join("vmlinuz"))
            .arg("-initrd")
            .arg(images.join("initramfs"));
        // The guest's `init` knows the interfaces by these addresses.
        for (number, name) in ["control", "outside", "inside"].iter().enumerate() {
            let tap = format!("tap,id={name},ifname={name},script=no,downscript=no");
            let mac = format!("52:54:00:00:00:0{}", number + 1);
            let device = format!("virtio-net-pci,netdev={name},mac={mac},romfile=");
            command.args(["-netdev", &tap, "-device", &device]);
        }
        command.stdin(Stdio::null());
        command.stdout(log.try_clone().unwrap()).stderr(log);
        let guest = Self {
            qemu: command.spawn().unwrap(),
            left,
            right,
            control,
            console,
            _lab: lab,
        };
        guest.connect_taps();
        guest.wait_until_ready();
        guest
    }

    /// Moves the taps to their namespaces once QEMU has opened them.
    fn connect_taps(&self) {
        for (name, to) in [("control", &self.control), ("inside", &self.right)] {
            let is_open = || self.left.link().exists(name).then_some(());
            assert!(
                eventually(PATIENCE, is_open).is_some(),
                "{}",
                self.console()
            );
            let pid = to.pid().to_string();
            output_of(&self.left, "ip", &["link", "set", name, "netns", &pid]);
        }
        let link = self.control.link();
        link.bring_up("control", 1_500, &["192.168.77.1/24"])
            .unwrap();
        let link = self.right.link();
        link.bring_up("inside", 1_500, &["10.7.0.2/24", "fd07::2/64"])
            .unwrap();
    }

    fn wait_until_ready(&self) {
        let is_ready = || self.console().contains("guest is ready").then_some(());
        assert!(
            eventually(PATIENCE, is_ready).is_some(),
            "{}",
            self.console()
        );
    }

    fn console(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.console).unwrap()).into_owned()
    }

    fn has_died(&mut self) -> bool {
        self.qemu.try_wait().unwrap().is_some()
    }

    /// Gives `left` and `right` their addresses, and `right` its routes back through the guest.
    fn reset_namespaces(&self) {
        let script = "nft flush ruleset; ip link set outside mtu 1500 up; ip address flush dev outside scope global
            ip address add 10.9.0.1/24 dev outside; ip address add fd09::1/64 dev outside nodad";
        output_of(&self.left, "sh", &["-ec", script]);
        let script = "nft flush ruleset; ip link set inside mtu 1500
            ip route replace default via 10.7.0.1; ip route replace default via fd07::1";
        output_of(&self.right, "sh", &["-ec", script]);
    }

    /// Runs a script in the guest and returns its output; fails the test if it fails.
    pub(super) fn shell(&self, script: &str) -> String {
        let (output, status) = self.try_shell(script);
        assert_eq!(status, 0, "{script}:\n{output}");
        output
    }

    /// Runs a script in the guest; returns its output and exit status. What the script leaves in the background
    /// must not keep its output open.
    pub(super) fn try_shell(&self, script: &str) -> (String, i32) {
        let said = self.ask(SCRIPTS, script.as_bytes());
        let (output, status) = said
            .trim_end()
            .rsplit_once("\nstatus ")
            .unwrap_or_else(|| panic!("{script}: no exit status: {said}"));
        (output.to_owned(), status.parse().unwrap())
    }

    /// Copies a program into the guest.
    pub(super) fn copy(&self, program: &Path, to: &str) {
        let contents = fs::read(program).unwrap();
        let answer = self.ask(FILES, &[to.as_bytes(), b"\n", &contents].concat());
        assert_eq!(answer.trim_end(), "done");
    }

    fn ask(&self, port: u16, request: &[u8]) -> String {
        let server = SocketAddr::from((CONTROL, port));
        let connect = || TcpStream::connect_timeout(&server, Duration::from_secs(5)).ok();
        let connected = eventually(PATIENCE, || self.control.run(connect).unwrap());
        let mut stream = connected.unwrap_or_else(|| panic!("no shell: {}", self.console()));
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(request).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        let read = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer).into_owned();
        assert!(read.is_ok(), "{read:?}: {answer}\n{}", self.console());
        answer
    }
}
