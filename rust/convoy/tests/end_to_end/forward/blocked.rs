//! Connections whose target takes nothing, and the pipes that are left to other programs of the same user.

use std::{collections::hash_map::DefaultHasher, hash::Hasher as _};

use convoy_lab::{Lab, Namespace, require_programs, require_root_lab};
use socket2::{Domain, Socket, Type};

use super::*;

/// A user that runs nothing else.
const USER: u32 = 64_321;
/// Connections that are blocked at the same time: more than there are pipes for one rule.
const BLOCKED: usize = 300;
/// A new pipe of a user who has not used up `pipe-user-pages-soft` (pipe(7)).
const USUAL_PIPE: &str = "65536";

#[test]
fn blocked_connections_leave_pipes_to_other_programs_and_to_other_rules() {
    let test = "blocked_connections_leave_pipes_to_other_programs_and_to_other_rules";
    if !require_root_lab(test) || !require_programs(test, &["perl", "setpriv"]) {
        return;
    }
    let lab = Lab::new().unwrap();
    let host = lab.namespace("host").unwrap();
    // Queues of sockets that fill quickly.
    let script = "ip link set lo up; echo '4096 65536 262144' | tee /proc/sys/net/ipv4/tcp_[rw]mem";
    assert!(
        host.command("sh")
            .args(["-c", script])
            .output()
            .unwrap()
            .status
            .success()
    );
    let (silent, fast) = host.run(|| (silent(), echo())).unwrap();
    let at = silent.local_addr().unwrap();
    let rules = format!("Forward = 127.0.0.1:0:{at}\nForward = 127.0.0.1:0:{fast}\n");
    let forward = Forward::of_user(&rules, &host, USER);
    assert_eq!(new_pipe(&host), USUAL_PIPE);
    let mut connections: Vec<_> = (0..BLOCKED)
        .map(|_| host.run(|| Blocked::new(&forward, &silent)).unwrap())
        .collect();
    let took_nothing = eventually(DEADLINE, || {
        let sent = connections.iter_mut().map(Blocked::fill).sum::<usize>();
        (sent == 0).then_some(())
    });
    took_nothing.expect("the connections are not blocked");
    assert_eq!(new_pipe(&host), USUAL_PIPE);
    let mut other = host.run(|| forward.connect(1)).unwrap();
    for _ in 0..20 {
        other.write_all(&[7; 10_000]).unwrap();
        other.read_exact(&mut [0; 10_000]).unwrap();
    }
    // It has met no bound: its bytes went by splice(2).
    forward.signal(Signal::SIGUSR1);
    let rule = format!("{} → {fast}", forward.listeners[1]);
    forward.wait_for(&rule);
    let is_counted = |line: &&str| line.contains("bounds_met") && line.contains(&rule);
    let counted = eventually(DEADLINE, || {
        forward.log().lines().find(is_counted).map(str::to_owned)
    });
    let counted = counted.expect("no counters");
    assert!(counted.contains("\"bounds_met\":\"nothing\""), "{counted}");
    forward.counts("parked");
    for connection in connections {
        connection.ends_whole();
    }
}

/// A connection whose target reads nothing at first.
struct Blocked {
    client: TcpStream,
    target: TcpStream,
    sent: DefaultHasher,
    count: usize,
}

impl Blocked {
    fn new(forward: &Forward, silent: &TcpListener) -> Self {
        let client = forward.connect(0);
        client.set_nonblocking(true).unwrap();
        let (target, _) = silent.accept().unwrap();
        target.set_read_timeout(Some(DEADLINE)).unwrap();
        Self {
            client,
            target,
            sent: DefaultHasher::new(),
            count: 0,
        }
    }

    /// Sends what is taken now.
    fn fill(&mut self) -> usize {
        let before = self.count;
        loop {
            let byte = (self.count / 7) as u8;
            match self.client.write(&[byte; 50_000]) {
                Ok(written) => {
                    self.sent.write(&[byte; 50_000][..written]);
                    self.count += written;
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    return self.count - before;
                }
            }
        }
    }

    /// Reads on: nothing is missing.
    fn ends_whole(mut self) {
        self.client.shutdown(std::net::Shutdown::Write).unwrap();
        let (mut received, mut count) = (DefaultHasher::new(), 0);
        let mut buffer = vec![0; 100_000];
        loop {
            match self.target.read(&mut buffer).unwrap() {
                0 => break,
                read => {
                    received.write(&buffer[..read]);
                    count += read;
                }
            }
        }
        assert_eq!((count, received.finish()), (self.count, self.sent.finish()));
    }
}

/// A listener for more connections than usual, whose sockets take little.
fn silent() -> TcpListener {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(16 << 10).unwrap();
    let at: SocketAddr = "127.0.0.1:0".parse().unwrap();
    socket.bind(&at.into()).unwrap();
    socket.listen(1_024).unwrap();
    socket.into()
}

/// The size of a new pipe of another program of the user.
fn new_pipe(host: &Namespace) -> String {
    let script = "pipe(my $r, my $w) or die; print fcntl($r, 1032, 0)";
    let mut command = host.command("setpriv");
    command.args(as_user(USER)).args(["perl", "-e", script]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}
