//! The namespace engine, as a user without privileges and with the TUN itself at the other end.
//!
//! ```text
//!  this test: owner of the namespace, and of the TUN ◀──── wg0 10.9.0.2/24, fd09::2/64 (inside)
//! ```

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    env,
    fs::{self, File},
    io::{BufRead, BufReader, Read, Write},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    os::{fd::OwnedFd, unix::process::CommandExt},
    path::PathBuf,
    process::{self, Command, Stdio},
    thread,
    time::Duration,
};

use convoy_lab::{eventually, require_lab, require_root_lab};
use convoy_namespace::{Namespace, NamespaceError, Settings, hold};
use convoy_tun::{Device, Switch};
use nix::{
    sys::{
        signal::{Signal, kill},
        socket::{Backlog, SockaddrStorage, bind, connect, listen},
    },
    unistd::{Gid, Pid, Uid},
};

const DEADLINE: Duration = Duration::from_secs(20);

/// The test of this file that becomes a holder, and the variable that lets it.
const HOLDER: &str = "becomes_the_holder";
const MARK: &str = "CONVOY_NETSTACK_HOLDER";

#[test]
#[ignore = "started by the other tests"]
fn becomes_the_holder() {
    if env::var_os(MARK).is_some() {
        hold().unwrap();
        // The test harness has nobody to tell.
        process::exit(0);
    }
}

#[test]
fn packets_of_a_socket_made_inside_come_out_of_the_tun() {
    let Some(namespace) = namespace("packets_of_a_socket_made_inside") else {
        return;
    };
    for (remote, first_byte) in [("198.51.100.7:9", 0x45), ("[2001:db8::7]:9", 0x60)] {
        let remote: SocketAddr = remote.parse().unwrap();
        let [socket] = sockets(namespace.udp(remote.is_ipv6(), 1).unwrap());
        let socket = UdpSocket::from(socket);
        let message = format!("to {remote}");
        socket.send_to(message.as_bytes(), remote).unwrap();
        let packet = packet_with(&namespace, message.as_bytes());
        assert_eq!(packet[0], first_byte, "{packet:?}");
    }
}

#[test]
fn sockets_made_inside_talk_to_each_other_and_to_nobody_outside() {
    let Some(namespace) = namespace("sockets_made_inside_talk_to_each_other") else {
        return;
    };
    for own in ["127.0.0.1:0", "10.9.0.2:0", "[::1]:0", "[fd09::2]:0"] {
        let own: SocketAddr = own.parse().unwrap();
        let [listener, client] = sockets(namespace.tcp(own.is_ipv6(), 2).unwrap());
        bind(
            std::os::fd::AsRawFd::as_raw_fd(&listener),
            &SockaddrStorage::from(own),
        )
        .unwrap();
        listen(&listener, Backlog::new(1).unwrap()).unwrap();
        let listener = TcpListener::from(listener);
        listener.set_nonblocking(false).unwrap();
        let address = listener.local_addr().unwrap();
        let client = TcpStream::from(client);
        client.set_nonblocking(false).unwrap();
        connect(
            std::os::fd::AsRawFd::as_raw_fd(&client),
            &SockaddrStorage::from(address),
        )
        .unwrap();
        let (mut served, _) = listener.accept().unwrap();
        (&client).write_all(b"hello").unwrap();
        drop(client);
        let mut heard = String::new();
        served.read_to_string(&mut heard).unwrap();
        assert_eq!(heard, "hello");
        // The host's loopback is another one.
        if address.ip().is_loopback() {
            TcpStream::connect(address).unwrap_err();
        }
    }
}

#[test]
fn a_batch_is_as_large_as_asked_for_but_bounded() {
    let Some(namespace) = namespace("a_batch_is_as_large_as_asked_for") else {
        return;
    };
    for (asked, given) in [(0, 0), (1, 1), (64, 64), (1000, 64)] {
        assert_eq!(namespace.tcp(false, asked).unwrap().len(), given);
        assert_eq!(namespace.udp(true, asked).unwrap().len(), given);
    }
}

#[test]
fn the_holder_keeps_uid_and_gid_and_ping_is_permitted() {
    let Some(namespace) = namespace("the_holder_keeps_uid_and_gid") else {
        return;
    };
    let mut inside = Command::new("sh");
    inside.args([
        "-c",
        "id -u; id -g; cat /proc/sys/net/ipv4/ping_group_range",
    ]);
    let said = run_inside(&namespace, inside);
    let (uid, gid) = (Uid::current(), Gid::current());
    assert_eq!(said, format!("{uid}\n{gid}\n{gid}\t{gid}\n"));
    assert!(namespace.warnings().is_empty());
}

#[test]
fn the_network_has_the_mtu_the_addresses_and_the_routes() {
    let Some(namespace) = namespace("the_network_has_the_mtu") else {
        return;
    };
    let mut inside = Command::new("sh");
    inside.args(["-c", "ip -o link; ip -o addr; ip route; ip -6 route"]);
    let said = run_inside(&namespace, inside);
    for expected in [
        "mtu 1280",
        "qlen 2000",
        "inet 127.0.0.1/8",
        "inet 10.9.0.2/24",
        "inet6 fd09::2/64",
        "default dev wg0",
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
}

#[test]
fn what_runs_inside_and_the_holder_end_with_the_namespace() {
    let Some(namespace) = namespace("what_runs_inside_ends_with_the_namespace") else {
        return;
    };
    let mut inside = Command::new("sh");
    inside.args(["-c", "setsid sleep 1000 >/dev/null 2>&1 & echo $!"]);
    let pid = run_inside(&namespace, inside);
    let process = format!("/proc/{}/cmdline", pid.trim());
    let runs = || fs::read(&process).is_ok_and(|line| !line.is_empty());
    assert!(eventually(DEADLINE, || runs().then_some(())).is_some());
    drop(namespace);
    assert!(eventually(DEADLINE, || (!runs()).then_some(())).is_some());
}

#[test]
#[ignore = "started by the other tests"]
fn becomes_an_owner() {
    if env::var_os(MARK).is_some() {
        let namespace = Namespace::start(holder(), &settings()).unwrap();
        let mut inside = this_test(env::current_exe().unwrap(), "hides_inside");
        enter(&namespace, &mut inside);
        inside.status().unwrap();
    }
}

#[test]
#[ignore = "started by the other tests"]
fn hides_inside() {
    if env::var_os(MARK).is_some() {
        // As ssh-agent and others that have secrets do: /proc then shows little of it.
        nix::sys::prctl::set_dumpable(false).unwrap();
        println!("\nhidden {}", process::id());
        thread::sleep(2 * DEADLINE);
    }
}

#[test]
fn a_process_that_hides_its_memory_ends_with_an_owner_without_privileges() {
    const USER: u32 = 64_321;
    if !require_root_lab("a_process_that_hides_its_memory") {
        return;
    }
    // A copy of this program, since the user may have no access to its directory.
    let copy = env::temp_dir().join(format!("convoy-namespace-{}", process::id()));
    let this = env::current_exe().unwrap();
    let mut copies = Command::new("install");
    copies.arg("-m755").args([&this, &copy]);
    assert!(copies.status().unwrap().success());
    let mut owner = this_test(copy.clone(), "becomes_an_owner");
    let mut owner = owner.uid(USER).gid(USER).stdout(Stdio::piped()).spawn();
    let owner = owner.as_mut().unwrap();
    let mut lines = BufReader::new(owner.stdout.take().unwrap()).lines();
    let hidden = lines.find_map(|it| it.unwrap().strip_prefix("hidden ")?.parse().ok());
    fs::remove_file(copy).unwrap();
    let process = format!("/proc/{}/cmdline", hidden.unwrap());
    let runs = || fs::read(&process).is_ok_and(|line| !line.is_empty());
    assert!(runs());
    owner.kill().unwrap();
    owner.wait().unwrap();
    let ended = eventually(DEADLINE, || (!runs()).then_some(()));
    let _ = kill(Pid::from_raw(hidden.unwrap()), Signal::SIGKILL);
    assert!(ended.is_some());
}

#[test]
fn a_killed_holder_is_an_error_and_no_hang() {
    let Some(namespace) = namespace("a_killed_holder_is_an_error") else {
        return;
    };
    let holder = holder_of(&namespace);
    nix::sys::signal::kill(holder, nix::sys::signal::Signal::SIGKILL).unwrap();
    let refused = || match namespace.udp(false, 1) {
        Err(NamespaceError::Ended) => Some(()),
        other => panic!("{other:?}"),
    };
    assert!(eventually(DEADLINE, refused).is_some());
}

/// A namespace as the tests want it; `None` if this machine has none for `test`.
fn namespace(test: &str) -> Option<Namespace> {
    require_lab(test).then(|| Namespace::start(holder(), &settings()).unwrap())
}

fn settings() -> Settings {
    let prefix = |text: &str| -> (IpAddr, u8) {
        let (address, length) = text.split_once('/').unwrap();
        (address.parse().unwrap(), length.parse().unwrap())
    };
    Settings {
        interface: "wg0".to_owned(),
        offload: Switch::Auto,
        addresses: ["10.9.0.2/24", "fd09::2/64"].map(prefix).to_vec(),
        mtu: 1_280,
        routes: ["0.0.0.0/0", "::/0"].map(prefix).to_vec(),
        is_gateway: false,
        files: None,
    }
}

fn holder() -> Command {
    this_test(env::current_exe().unwrap(), HOLDER)
}

/// The program that runs a test which the others start.
fn this_test(program: PathBuf, test: &str) -> Command {
    let mut command = Command::new(program);
    command.args(["--exact", test, "--ignored", "--nocapture"]);
    command.env(MARK, "1");
    command
}

fn sockets<const N: usize>(given: Vec<OwnedFd>) -> [OwnedFd; N] {
    given.try_into().unwrap()
}

/// The next packet that contains these bytes, without its virtio header.
fn packet_with(namespace: &Namespace, bytes: &[u8]) -> Vec<u8> {
    let tun = namespace.tun().try_clone_to_owned().unwrap();
    let device = Device::adopt(tun.try_clone().unwrap()).unwrap();
    assert!(device.offload().vnet_hdr);
    let mut file = File::from(tun);
    let find = || {
        let mut buffer = [0; 2048];
        let length = file.read(&mut buffer).ok()?;
        let packet = &buffer[10.min(length)..length];
        let is_it = packet.windows(bytes.len()).any(|it| it == bytes);
        is_it.then(|| packet.to_vec())
    };
    eventually(DEADLINE, find).unwrap()
}

fn run_inside(namespace: &Namespace, mut command: Command) -> String {
    enter(namespace, &mut command);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn enter(namespace: &Namespace, command: &mut Command) {
    let descriptors = namespace.spaces().descriptors();
    let owned = descriptors.map(|it| it.try_clone_to_owned().unwrap());
    let spaces = convoy_namespace::Spaces::of(owned.into()).unwrap();
    // SAFETY: it makes system calls only, as required of a forked child.
    unsafe { command.pre_exec(move || spaces.enter()) };
}

/// The holder: the only process inside.
fn holder_of(namespace: &Namespace) -> nix::unistd::Pid {
    use std::os::unix::fs::MetadataExt;
    let [_, _, network] = namespace.spaces().descriptors();
    let inode = nix::sys::stat::fstat(network).unwrap().st_ino;
    let is_inside =
        |pid: &i32| fs::metadata(format!("/proc/{pid}/ns/net")).is_ok_and(|it| it.ino() == inode);
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let mut pids = entries.filter_map(|it| it.file_name().to_str()?.parse().ok());
    nix::unistd::Pid::from_raw(pids.find(is_inside).unwrap())
}
