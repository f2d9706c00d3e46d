//! A client behind a router, and a dump of everything that this crate may change.

use std::{fs, future::Future, path::PathBuf, pin::pin, time::Duration};

use convoy_host::{Applied, Desired, Event, Host, HostError, Options, Prefix};
use convoy_lab::{Lab, Namespace, Turn, eventually, require_programs, require_root_lab};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use tempfile::TempDir;
use tokio::{task::yield_now, time::Instant};

/// Time limit for anything.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Scene {
    pub(crate) client: Namespace,
    pub(crate) router: Namespace,
    directory: TempDir,
    _lab: Lab,
    _turn: Turn,
}

impl Scene {
    /// `None`, with a message, where there can be no lab.
    pub(crate) fn new(test: &str) -> Option<Self> {
        Self::on(Turn::together(), test)
    }

    /// For a test in whose process nothing else may happen.
    pub(crate) fn alone(test: &str) -> Option<Self> {
        let turn = Turn::alone("the end of any child wakes every runtime of the process");
        Self::on(turn, test)
    }

    fn on(turn: Turn, test: &str) -> Option<Self> {
        if !require_root_lab(test) || !require_programs(test, &["ip", "nft"]) {
            return None;
        }
        let lab = Lab::new().unwrap();
        let [client, router] = ["client", "router"].map(|name| lab.namespace(name).unwrap());
        let near = ["192.168.1.2/24", "fd01::2/64"];
        let far = ["192.168.1.1/24", "fd01::1/64"];
        lab.veth(&client, "eth0", &near, &router, "eth0", &far, 1500)
            .unwrap();
        // In memory, as `/run` is: each change is synced before it is made.
        let in_memory = tempfile::tempdir_in("/dev/shm");
        let directory = in_memory.or_else(|_| tempfile::tempdir()).unwrap();
        fs::write(
            directory.path().join("resolv.conf"),
            "nameserver 192.168.1.1\n",
        )
        .unwrap();
        let scene = Self {
            client,
            router,
            directory,
            _lab: lab,
            _turn: turn,
        };
        scene.ip("route add default via 192.168.1.1");
        scene.ip("route add default via fd01::1");
        scene.ip("tuntap add dev wg0 mode tun");
        // A link that has never been up shows another queue.
        scene.ip("link set wg0 up");
        scene.ip("link set wg0 down");
        // The kernel notices the carrier late, and link-local addresses are tentative for a second.
        let settled = || {
            let state = scene.ip("-o link show eth0") + &scene.ip("-o address show eth0");
            let is_up = state.contains("state UP") && state.contains(" fe80::");
            (is_up && !state.contains("tentative")).then_some(())
        };
        eventually(PATIENCE, settled).unwrap();
        Some(scene)
    }

    pub(crate) fn options(&self) -> Options {
        Options {
            journals: self.directory.path().join("run"),
            lasting_journals: self.directory.path().join("lib"),
            resolv_conf: self.resolv_conf(),
            name_services: self.directory.path().join("nsswitch.conf"),
            system_bus: Some("unix:path=/nonexistent".to_owned()),
            ..Options::default()
        }
    }

    pub(crate) fn resolv_conf(&self) -> PathBuf {
        self.directory.path().join("resolv.conf")
    }

    /// Runs `work` in the client's namespace.
    pub(crate) fn run<T: Send, F: Future<Output = T>>(&self, work: impl FnOnce() -> F + Send) -> T {
        self.client.run(|| block_on(work())).unwrap()
    }

    /// Applies `desired` for wg0, with a mark if it needs one.
    pub(crate) async fn apply(&self, host: &mut Host, desired: &mut Desired) -> Applied {
        desired.fwmark = host.pick_mark(desired).await.unwrap();
        host.apply(desired).await.unwrap()
    }

    /// Opens wg0. A child that another test forks holds the lock until it executes its program.
    pub(crate) async fn open(&self) -> Host {
        self.open_with(self.options()).await
    }

    /// As [`Scene::open`], with other options.
    pub(crate) async fn open_with(&self, options: Options) -> Host {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match Host::open("wg0", options.clone()).await {
                Err(HostError::Busy { .. }) if Instant::now() < deadline => yield_now().await,
                opened => return opened.unwrap(),
            }
        }
    }

    /// Recovers wg0, as a process does that starts after a crash.
    pub(crate) fn recover(&self) {
        self.run(async || self.open().await.undo().await.unwrap());
    }

    /// Runs ip(8) in the client's namespace; returns its output.
    pub(crate) fn ip(&self, arguments: &str) -> String {
        self.shell(&format!("ip {arguments}"))
    }

    /// Runs a shell command in the client's namespace; returns its output.
    pub(crate) fn shell(&self, command: &str) -> String {
        let output = self.client.command("sh").args(["-c", command]).output();
        let output = output.unwrap();
        let problem = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command}: {problem}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Everything that this crate may change.
    pub(crate) fn dump(&self) -> String {
        let resolv_conf = self.resolv_conf();
        let files = fs::read_dir(self.directory.path()).unwrap();
        let mut names: Vec<_> = files.map(|file| file.unwrap().file_name()).collect();
        names.retain(|name| name != "run" && name != "lib");
        names.sort();
        // Addresses are tentative until the kernel's worker has seen that nobody is there to ask.
        let settled = || {
            let addresses = self.ip("-6 -o address");
            (!addresses.contains("tentative")).then_some(())
        };
        eventually(PATIENCE, settled).expect("an address stays tentative");
        let kernel = self.shell(
            "ip -o link; ip -o address; ip rule; ip -6 rule; ip route show table all; \
             ip -6 route show table all; nft -s list ruleset | sed -E '/^\\tflags ?(owner)?$/d; /^$/d; s/ # progname .*//'; \
             cat /proc/sys/net/ipv4/conf/all/src_valid_mark",
        );
        let link = fs::read_link(&resolv_conf);
        let content = fs::read_to_string(resolv_conf);
        format!("{kernel}\n{link:?} {content:?} {names:?}")
    }

    /// Returns whether no journal is left.
    pub(crate) fn is_clean(&self) -> bool {
        ["run", "lib"].iter().all(|name| {
            let files = fs::read_dir(self.directory.path().join(name));
            files.map_or(0, |files| files.count()) == 0
        })
    }
}

/// A file system with little room.
pub(crate) struct SmallDisk(PathBuf);

impl SmallDisk {
    pub(crate) fn at(directory: PathBuf) -> Self {
        fs::create_dir_all(&directory).unwrap();
        let (kind, options) = (Some("tmpfs"), Some("size=256k,mode=755"));
        mount(kind, &directory, kind, MsFlags::empty(), options).unwrap();
        Self(directory)
    }

    pub(crate) fn fill(&self) {
        fs::write(self.0.join("filled"), vec![0; 1 << 20]).unwrap_err();
    }

    pub(crate) fn clear(&self) {
        fs::remove_file(self.0.join("filled")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        umount2(&self.0, MntFlags::MNT_DETACH).unwrap();
    }
}

/// The state that most tests want: a VPN for everything.
pub(crate) fn everything() -> Desired {
    Desired {
        addresses: prefixes(&["10.9.0.2/24", "fd09::2/64"]),
        endpoints: vec!["192.168.1.1".parse().unwrap()],
        allowed: prefixes(&["0.0.0.0/0", "::/0", "10.10.0.0/16"]),
        ..Desired::default()
    }
}

pub(crate) fn prefixes(texts: &[&str]) -> Vec<Prefix> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap().block_on(work)
}

/// Watches until an event satisfies `wanted`.
pub(crate) async fn until(host: &mut Host, mut wanted: impl FnMut(&Event) -> bool) -> Event {
    let watching = async {
        loop {
            let event = host.watch().await.unwrap();
            if wanted(&event) {
                return event;
            }
        }
    };
    let event = tokio::time::timeout(PATIENCE, watching).await;
    event.expect("the event did not come")
}

/// Watches until `condition` holds. The work is not cancelled for looking at it: it would never end on a busy machine.
pub(crate) async fn watch_until(host: &mut Host, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        let mut watching = pin!(host.watch());
        let event = loop {
            assert!(Instant::now() < deadline, "it did not happen");
            let pause = tokio::time::sleep(Duration::from_millis(500));
            tokio::select! {
                event = &mut watching => break event,
                () = pause => if condition() { return },
            }
        };
        drop(event.unwrap());
    }
}
