//! Tests against the kernel's TUN driver, in network namespaces that end with their threads.
//!
//! ```text
//!  UDP/TCP sockets on 10.7.0.1 ── cv0 (TUN) ── reader / writer ── the test, which plays 10.7.0.2
//! ```
//!
//! They need root and /dev/net/tun. Without these they print SKIPPED and pass, unless
//! CONVOY_REQUIRE_LAB=1.

#![allow(clippy::unwrap_used, reason = "a step that fails, fails the test")]

use std::{
    fs::File,
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream, UdpSocket},
    os::{
        fd::{AsRawFd as _, OwnedFd},
        unix::fs::MetadataExt,
    },
    process::Command,
    time::{Duration, Instant},
};

use convoy_tun::{
    Coalesce, Device, OpenError, Reader, ReaderExit, Switch, TX_QUEUE_LEN, TryRecv, Writer,
    spawn_reader, spawn_writer,
};
use nix::{
    errno::Errno,
    sched::{CloneFlags, unshare},
};

const SOON: Duration = Duration::from_secs(10);

#[test]
fn tcp_bulk_that_loops_through_split_and_coalesce_arrives_intact() {
    in_namespace(|| {
        for offload in [Switch::On, Switch::Off] {
            let device = open_up("cv0", offload);
            let loopback = Loopback::start(&device);
            let (sent, packets_per_read, packets_per_write) = loopback.bulk(8 << 20);
            eprintln!(
                "{offload:?} {:?}: {sent} bytes, at most {packets_per_read} packets a read, {packets_per_write} a write",
                device.offload()
            );
            if offload == Switch::On {
                assert!(packets_per_read > 5 && packets_per_write > 5);
            } else {
                assert_eq!((packets_per_read, packets_per_write), (1, 1));
            }
        }
    });
}

#[test]
fn udp_trains_are_split_and_coalesced_where_the_kernel_can() {
    in_namespace(|| {
        let device = open_up("cv0", Switch::On);
        if !device.offload().udp {
            eprintln!("SKIPPED (needs Linux 6.2): USO");
            return;
        }
        let mut reader = spawn_reader(&device, 50).unwrap();
        let mut writer = spawn_writer(
            &device,
            Coalesce {
                tcp: true,
                udp: true,
            },
        )
        .unwrap();
        let socket = UdpSocket::bind("10.7.0.1:5000").unwrap();
        socket.set_read_timeout(Some(SOON)).unwrap();
        nix::sys::socket::setsockopt(&socket, nix::sys::socket::sockopt::UdpGsoSegment, &1000)
            .unwrap();
        let payload: Vec<u8> = (0..20_500u32).map(|i| (i * 7) as u8).collect();
        socket.send_to(&payload, "10.7.0.2:5000").unwrap();

        let mut packets = 0;
        while packets < 21 {
            packets += turn_around(&mut reader, &mut writer, &mut 0);
        }
        let mut received = Vec::new();
        let mut buffer = [0; 2000];
        while received.len() < payload.len() {
            let (len, from) = socket.recv_from(&mut buffer).unwrap();
            assert_eq!(from, SocketAddr::from(([10, 7, 0, 2], 5000)));
            received.extend_from_slice(&buffer[..len]);
        }
        assert!(received == payload);
        wait_until(|| writer.is_idle());
        assert_eq!(writer.counters().packets_per_write[21], 1);
    });
}

#[test]
fn a_reader_survives_a_link_that_goes_down_and_does_not_spin() {
    in_namespace(|| {
        let device = open_up("cv0", Switch::Auto);
        let mut reader = spawn_reader(&device, 50).unwrap();
        drain(&mut reader);
        ip("link set cv0 down");
        let before = cpu_time_of("tun-reader");
        std::thread::sleep(Duration::from_millis(300));
        let spent = cpu_time_of("tun-reader") - before;
        assert!(
            spent < Duration::from_millis(50),
            "the reader spun for {spent:?}"
        );
        // Skip packets that were sent while the link was up.
        let nothing = std::iter::repeat_with(|| reader.try_recv()).find_map(Result::err);
        assert!(matches!(nothing, Some(TryRecv::Empty)));

        let mut writer = spawn_writer(&device, Coalesce::default()).unwrap();
        let mut batch = writer.take(Duration::ZERO).unwrap();
        batch.slot(20).unwrap().copy_from_slice(&[0x45; 20]);
        batch.commit(20);
        writer.submit(batch);
        wait_until(|| writer.is_idle());
        assert_eq!(writer.counters().failed.link_down, 1);

        ip("link set cv0 up");
        let socket = UdpSocket::bind("10.7.0.1:0").unwrap();
        socket.send_to(b"after", "10.7.0.2:9").unwrap();
        wait_until_mut(|| next_udp_payload(&mut reader).is_some_and(|payload| payload == b"after"));
    });
}

#[test]
fn deleting_the_interface_ends_a_reader_that_waits() {
    in_namespace(|| {
        let device = open_up("cv0", Switch::Auto);
        let mut reader = spawn_reader(&device, 50).unwrap();
        drain(&mut reader);
        ip("link delete cv0");
        let began = Instant::now();
        loop {
            match reader.try_recv() {
                Err(TryRecv::Closed(ReaderExit::InterfaceDeleted)) => break,
                Err(TryRecv::Closed(exit)) => panic!("{exit:?}"),
                _ => assert!(began.elapsed() < SOON, "the reader did not notice"),
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(device.name().is_err());

        let mut writer = spawn_writer(&device, Coalesce::default()).unwrap();
        let mut batch = writer.take(Duration::ZERO).unwrap();
        batch.slot(20).unwrap().copy_from_slice(&[0x45; 20]);
        batch.commit(20);
        writer.submit(batch);
        wait_until(|| writer.is_idle());
        assert_eq!(writer.counters().failed.deleted, 1);
    });
}

#[test]
fn an_opened_device_is_down_and_has_the_name_the_queue_and_the_mtu_asked_for() {
    in_namespace(|| {
        let device = Device::open("cv0", Switch::Auto).unwrap();
        assert_eq!(device.name().unwrap(), "cv0");
        assert_eq!(device.mtu().unwrap(), 1500);
        device.set_mtu(1420).unwrap();
        assert_eq!(device.mtu().unwrap(), 1420);
        let link = ip("-o link show cv0");
        assert!(link.contains(&format!("qlen {TX_QUEUE_LEN}")), "{link}");
        assert!(!link.contains("UP"), "{link}");
        ip("link set cv0 name cv1");
        assert_eq!(device.name().unwrap(), "cv1");
        assert!(Device::open("cv0", Switch::Off).unwrap().offload() == Default::default());
    });
}

#[test]
fn a_device_tells_the_network_namespace_that_it_is_in() {
    in_namespace(|| {
        let device = Device::open("cv0", Switch::Auto).unwrap();
        let theirs = File::from(device.network_namespace().unwrap());
        let ours = File::open("/proc/thread-self/ns/net").unwrap();
        let inode = |file: &File| file.metadata().unwrap().ino();
        assert_eq!(inode(&theirs), inode(&ours));
    });
}

#[test]
fn names_that_are_taken_are_refused_with_the_reason() {
    in_namespace(|| {
        let _first = Device::open("cv0", Switch::Auto).unwrap();
        assert!(matches!(
            Device::open("cv0", Switch::Auto),
            Err(OpenError::Busy(_))
        ));
        assert!(matches!(
            Device::open("lo", Switch::Auto),
            Err(OpenError::Taken(_))
        ));
    });
}

#[test]
fn a_descriptor_with_a_virtio_header_is_adopted_and_works() {
    in_namespace(|| {
        for (flags, vnet_hdr) in [(libc::IFF_VNET_HDR, true), (0, false)] {
            let device =
                Device::adopt(raw_tun("cv0", libc::IFF_TUN | libc::IFF_NO_PI | flags)).unwrap();
            assert_eq!(device.offload().vnet_hdr, vnet_hdr);
            assert_eq!(device.offload().tcp, vnet_hdr);
            bring_up("cv0");
            reads_a_datagram(&device);
        }
        assert!(matches!(
            Device::adopt(raw_tun("tap0", libc::IFF_TAP)),
            Err(OpenError::NotATun)
        ));
    });
}

#[test]
fn a_descriptor_whose_virtio_headers_were_longer_is_adopted_and_works() {
    in_namespace(|| {
        let tun = raw_tun("cv0", libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR);
        let header_len: libc::c_int = 12;
        // SAFETY: the kernel reads one `int` there, and the descriptor is open.
        let status = unsafe { libc::ioctl(tun.as_raw_fd(), libc::TUNSETVNETHDRSZ, &header_len) };
        Errno::result(status).unwrap();
        let device = Device::adopt(tun).unwrap();
        bring_up("cv0");
        reads_a_datagram(&device);
        Loopback::start(&device).bulk(1 << 20);
    });
}

fn reads_a_datagram(device: &Device) {
    let mut reader = spawn_reader(device, 50).unwrap();
    let socket = UdpSocket::bind("10.7.0.1:0").unwrap();
    socket.send_to(b"adopted", "10.7.0.2:9").unwrap();
    wait_until_mut(|| next_udp_payload(&mut reader).is_some_and(|payload| payload == b"adopted"));
}

/// Plays 10.7.0.2: sends everything back with source and destination swapped.
struct Loopback {
    reader: Reader,
    writer: Writer,
}

impl Loopback {
    fn start(device: &Device) -> Self {
        let reader = spawn_reader(device, 50).unwrap();
        let writer = spawn_writer(
            device,
            Coalesce {
                tcp: true,
                udp: true,
            },
        )
        .unwrap();
        Self { reader, writer }
    }

    /// Sends `len` bytes over TCP from 10.7.0.1 to 10.7.0.2, which loops back to 10.7.0.1. Returns `len`,
    /// and the most packets in one read and in one write.
    fn bulk(mut self, len: usize) -> (usize, usize, usize) {
        let listener = TcpListener::bind("10.7.0.1:7000").unwrap();
        let payload: Vec<u8> = (0..len as u32).map(|i| (i ^ (i >> 9)) as u8).collect();
        let (sender, receiver) = std::thread::scope(|scope| {
            let sender = scope.spawn(|| {
                let mut stream = TcpStream::connect("10.7.0.2:7000").unwrap();
                stream.write_all(&payload).unwrap();
                stream.shutdown(std::net::Shutdown::Write).unwrap();
                let mut rest = Vec::new();
                stream.read_to_end(&mut rest).unwrap();
            });
            let receiver = scope.spawn(|| {
                let (mut stream, _) = listener.accept().unwrap();
                let mut received = Vec::new();
                stream.read_to_end(&mut received).unwrap();
                received == payload
            });
            let mut most = 0;
            let began = Instant::now();
            while !(sender.is_finished() && receiver.is_finished()) {
                turn_around(&mut self.reader, &mut self.writer, &mut most);
                assert!(began.elapsed() < 3 * SOON, "the transfer hangs");
            }
            sender.join().unwrap();
            (most, receiver.join().unwrap())
        });
        assert!(receiver, "what arrived is not what was sent");
        wait_until(|| self.writer.is_idle());
        let counters = self.writer.counters();
        assert_eq!((counters.bad_checksums, counters.refused_trains), (0, 0));
        assert_eq!(counters.failed, Default::default());
        let most_written = counters
            .packets_per_write
            .iter()
            .rposition(|count| *count > 0)
            .unwrap();
        (len, sender, most_written)
    }
}

/// Sends one batch back with the addresses swapped, which leaves every checksum right.
fn turn_around(reader: &mut Reader, writer: &mut Writer, most_per_read: &mut usize) -> usize {
    let Ok(mut outbound) = reader.try_recv() else {
        std::thread::yield_now();
        return 0;
    };
    assert_eq!(outbound.malformed(), 0);
    *most_per_read = outbound.packets_per_read().fold(*most_per_read, usize::max);
    let mut packets = 0;
    let mut inbound = take(writer);
    while let Some(mut packet) = outbound.next() {
        let len = packet.bytes().len();
        let padded = packet.padded(len.next_multiple_of(16));
        if padded[0] != 0x45 {
            continue;
        }
        if inbound.slot(len + 16).is_none() {
            writer.submit(inbound);
            inbound = take(writer);
        }
        let slot = inbound.slot(len + 16).unwrap();
        slot[..len].copy_from_slice(&padded[..len]);
        let (source, destination) = slot[12..20].split_at_mut(4);
        source.swap_with_slice(destination);
        inbound.commit(len);
        packets += 1;
    }
    writer.submit(inbound);
    packets
}

fn take(writer: &mut Writer) -> convoy_tun::InboundBatch {
    loop {
        if let Some(batch) = writer.take(Duration::ZERO) {
            return batch;
        }
        std::thread::yield_now();
    }
}

/// The payload of the first UDP packet in the next batch; skips packets of the kernel's own.
fn next_udp_payload(reader: &mut Reader) -> Option<Vec<u8>> {
    let mut batch = reader.try_recv().ok()?;
    while let Some(packet) = batch.next() {
        let bytes = packet.bytes();
        if bytes[0] == 0x45 && bytes[9] == 17 {
            return Some(bytes[28..].to_vec());
        }
    }
    None
}

/// Discards the packets that the kernel sends when a link comes up, such as router solicitations.
fn drain(reader: &mut Reader) {
    std::thread::sleep(Duration::from_millis(50));
    while reader.try_recv().is_ok() {}
}

fn open_up(name: &str, offload: Switch) -> Device {
    let device = once_free(name, || match Device::open(name, offload) {
        Err(OpenError::Busy(_)) => None,
        opened => Some(opened.unwrap()),
    });
    device.set_mtu(1420).unwrap();
    bring_up(name);
    device
}

/// Retries while the name is taken: a process that another test is starting may have inherited the
/// descriptor of the former device.
fn once_free<T>(name: &str, open: impl Fn() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        match open() {
            Some(opened) => return opened,
            None => assert!(began.elapsed() < SOON, "{name} is in use"),
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn bring_up(name: &str) {
    ip(&format!("link set {name} up"));
    ip(&format!("address add 10.7.0.1/24 dev {name}"));
    ip("link set lo up");
}

fn ip(arguments: &str) -> String {
    let output = Command::new("ip")
        .args(arguments.split(' '))
        .output()
        .unwrap();
    assert!(output.status.success(), "ip {arguments}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn raw_tun(name: &str, flags: libc::c_int) -> OwnedFd {
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/net/tun")
        .unwrap();
    // SAFETY: all zeros is an empty request.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = flags as libc::c_short;
    once_free(name, || {
        // SAFETY: the request is as TUNSETIFF wants it.
        let status = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &request) };
        match Errno::result(status) {
            Err(Errno::EBUSY) => None,
            attached => Some(attached.unwrap()),
        }
    });
    file.into()
}

/// CPU time of the thread of this name in the caller's network namespace: other tests have one, too.
fn cpu_time_of(thread: &str) -> Duration {
    let namespace = std::fs::read_link("/proc/thread-self/ns/net").unwrap();
    let mut total = Duration::ZERO;
    for task in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
        let read = |file| std::fs::read_to_string(task.path().join(file)).unwrap_or_default();
        let is_here =
            std::fs::read_link(task.path().join("ns/net")).is_ok_and(|link| link == namespace);
        if is_here && read("comm").trim() == thread {
            let nanoseconds = read("schedstat")
                .split(' ')
                .next()
                .and_then(|text| text.parse().ok());
            total += Duration::from_nanos(nanoseconds.unwrap_or(0));
        }
    }
    total
}

fn wait_until(done: impl Fn() -> bool) {
    wait_until_mut(done);
}

fn wait_until_mut(mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < SOON, "took too long");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Runs a test on a thread with a network namespace of its own.
fn in_namespace(test: impl FnOnce() + Send + 'static) {
    if !nix::unistd::geteuid().is_root() || !std::path::Path::new("/dev/net/tun").exists() {
        let required = std::env::var("CONVOY_REQUIRE_LAB").is_ok_and(|value| value == "1");
        assert!(
            !required,
            "CONVOY_REQUIRE_LAB=1, and this is not root with /dev/net/tun"
        );
        eprintln!("SKIPPED (needs root and /dev/net/tun): a test with a real TUN");
        return;
    }
    let thread = std::thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        test();
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}
