//! The steps on the way up. [`take_down`](crate::take_down) undoes what a failed step leaves.

use std::time::{Instant, SystemTime};

use anyhow::{bail, ensure};
use convoy_config::{Config, Peer};
use convoy_daemon::places;
use convoy_desired::{
    FIRST_MARK, adoption, configured_mark, desired, directs::Directs, kill_switch, whole,
};
use convoy_endpoints::Addresses;
use convoy_host::{Applied, Clash, close_kill_switch, is_kill_switch_closed, owner};
use convoy_keeper::KeptTunnel;
use convoy_lifecycle::{Event, Former, Found, Moment, Start};
use convoy_path_mtu::PathMtu;
use convoy_process::{
    background::Parent,
    logging,
    socket::{ENDING_PAUSE, ENDING_TIME},
};
use convoy_proto::noise::Identity;
use convoy_report::Condition;
use convoy_status::{line, seconds};
use convoy_supervision::{events::Events, notify};
use tokio::time::sleep;
use tracing::{info, warn};

use super::{
    Supervisor, Wanted,
    outer::{lock_outer, name_of, without_outer_peers},
};
use crate::{
    changed::{self, Changed},
    hooks::Hooks,
    lock::{ensure_free, lock, unlock},
    outer::Outer,
    port_forward::{PortForward, for_hooks},
    port_map::PortMap,
    relays::Relays,
    state::State,
    wg_quick,
};

impl Supervisor {
    /// Locks the interface for this process.
    pub(super) async fn new(wanted: Wanted) -> anyhow::Result<(Self, Start)> {
        let config = wanted.config;
        ensure_free(&config.name)?;
        let host = lock(&config.name).await?;
        let outer_lock = match lock_outer(&config).await {
            Ok(lock) => lock,
            Err(refused) => {
                unlock(host).await;
                return Err(refused);
            }
        };
        let start = Start::Host {
            has_hooks: config.interface.has_hooks(),
            is_kill_switch_closed: host.has_kill_switch().await,
        };
        if let Some(source) = &config.source {
            source.remove_unfinished();
        }
        let mut state = State::new(&wanted.path, seconds(SystemTime::now()));
        state.via = name_of(&config);
        let supervisor = Self {
            path: wanted.path,
            program: wanted.program,
            addresses: Addresses::new(&config, configured_mark(&config)),
            directs: Directs::default(),
            relays: Relays::default(),
            outer: Outer::default(),
            outer_lock,
            port_map: PortMap::default(),
            port_forward: PortForward::default(),
            resolvers: Vec::new(),
            this_machine: None,
            path_mtu: PathMtu::new(&config),
            events: Events::new(config.name.as_str()),
            mark: configured_mark(&config),
            config,
            daemon: wanted.daemon,
            adopts: wanted.adopts,
            parent: None,
            terminal: wanted.terminal,
            state,
            earlier: None,
            host: Some(host),
            applied: Applied::default(),
            tunnel: None,
            picked_mark: None,
            changed: None,
            metrics: None,
        };
        Ok((supervisor, start))
    }

    /// Looks for remains of an earlier supervisor.
    pub(super) async fn find_tunnel(&mut self) -> anyhow::Result<Found> {
        self.earlier = State::read(&self.config.name);
        self.inherit_mapping().await;
        self.tunnel = self.adopted().await?;
        let earlier = self.earlier.as_ref();
        let former = |tunnel: &KeptTunnel| match tunnel.is_of_another_version() {
            true => Former::OtherVersion,
            false => Former::SameVersion,
        };
        Ok(Found {
            tunnel: self.tunnel.as_ref().map(former),
            hooks_begun: earlier.is_some_and(|earlier| earlier.hooks_begun),
            is_up: earlier.is_some_and(|earlier| earlier.is_up),
        })
    }

    async fn adopted(&self) -> anyhow::Result<Option<KeptTunnel>> {
        let (name, has_outer) = (&self.config.name, self.config.via.is_some());
        KeptTunnel::adopt(name, &self.daemon.options, has_outer).await
    }

    /// Takes over a running tunnel.
    pub(super) async fn take_over(&mut self) -> anyhow::Result<()> {
        let name = self.config.name.clone();
        ensure!(
            owner::exists(&name),
            "the interface of the tunnel {name} that ran without its supervisor is in another network \
             namespace, so the tunnel was ended (fix: `convoy up` again)"
        );
        if let Some(earlier) = self.earlier.take() {
            self.state.hooks_begun = earlier.hooks_begun;
            self.state.is_up = earlier.is_up;
            self.state.since = earlier.since;
            self.path_mtu.restore(&self.config, &earlier.paths);
            self.state.paths = earlier.paths;
            self.state.port_forward.clone_from(&earlier.port_forward);
            self.state.port_of_hooks = earlier.port_of_hooks;
            self.port_forward
                .inherit(earlier.port_forward, earlier.port_of_hooks);
            if earlier.paused_until.is_some() {
                info!("The pause is over, as the supervisor that began it is gone");
            }
        }
        self.state.write(&name)?;
        info!("Taking over the tunnel {name}, which ran without its supervisor");
        if let Some(process) = self.tunnel.as_mut().and_then(KeptTunnel::process) {
            self.changed = Some(Changed::under_former(&self.config, process.device().await?));
        }
        let tunnel = self.tunnel.as_ref();
        match tunnel.is_some_and(KeptTunnel::takes_another_way) {
            // Without the outer tunnel, it would send in the clear. Its successor gets everything.
            true => Ok(()),
            false => self.configure(false).await,
        }
    }

    /// Replaces a tunnel process of another version.
    pub(super) async fn replace_process(&mut self) -> anyhow::Result<()> {
        info!("It belongs to another version: replacing its process");
        if let Some(tunnel) = &mut self.tunnel {
            tunnel.replace().await?;
        }
        self.configure(true).await
    }

    /// Creates the interface, then starts and configures a process for it.
    pub(super) async fn start_tunnel(&mut self) -> anyhow::Result<()> {
        let (name, has_outer) = (&self.config.name, self.config.via.is_some());
        self.tunnel = Some(KeptTunnel::start(name, &self.daemon.options, has_outer).await?);
        self.configure(true).await
    }

    /// Fails if another program owns the interface. Ours may take a moment to disappear if its processes were killed.
    pub(super) async fn free_name(&mut self) -> anyhow::Result<Event> {
        let name = self.config.name.clone();
        let deadline = Instant::now() + ENDING_TIME;
        let was_ours = self.earlier.is_some();
        while was_ours && owner::exists(&name) && Instant::now() < deadline {
            sleep(ENDING_PAUSE).await;
        }
        if !owner::exists(&name) {
            return Ok(Event::Done(Vec::new()));
        }
        let signs = owner::signs(&name, &convoy_daemon::places::uapi(&name));
        if !self.adopts || !wg_quick::may_own(signs) {
            bail!(owner::refusal(&name, signs));
        }
        if let Err(reason) = &self.config.hooks_trusted {
            // It would read the file again and run the hooks that it contains by then.
            bail!(
                "`wg-quick down {path}` may not run: {reason} (fix: let only root write to it, or take {name} down \
                 yourself)",
                path = self.path.display()
            );
        }
        Ok(Event::WgQuickHasIt(self.kill_switch()))
    }

    /// Closes the kill switch before wg-quick's tunnel goes.
    pub(super) async fn close_kill_switch(&self) -> anyhow::Result<()> {
        if let Some(switch) = kill_switch(&self.config.interface) {
            let mark = self.mark.unwrap_or(FIRST_MARK);
            close_kill_switch(self.config.name.as_str(), switch, Some(mark)).await?;
        }
        Ok(())
    }

    /// Lets wg-quick take its tunnel down.
    pub(super) async fn take_from_wg_quick(&self) -> anyhow::Result<()> {
        let name = &self.config.name;
        info!("Adopting {name} from wg-quick");
        wg_quick::take_down(&self.path).await?;
        ensure!(!owner::exists(name), "wg-quick has left {name} behind");
        Ok(())
    }

    /// Announces that the tunnel is up.
    pub(super) async fn tell_caller(&mut self) -> anyhow::Result<()> {
        let clashes = self.clashes().await;
        for clash in &clashes {
            warn!("{clash}");
        }
        let clashes = clashes.iter().map(Clash::to_string);
        for warning in self.applied.warnings.iter().cloned().chain(clashes) {
            match &self.terminal {
                Some(terminal) => terminal.say(&format!("convoy: warning: {warning}")),
                None => logging::say(&format!("convoy: warning: {warning}")),
            }
        }
        info!("{} is up", self.config.name);
        self.parent.take().map_or(Ok(()), Parent::ready)?;
        self.terminal = None;
        notify::ready(&line(&self.path, Condition::Up));
        Ok(())
    }

    /// Finds kill switches that drop what leaves by another tunnel: of other tunnels, and this one's unless it lets
    /// networks out.
    async fn clashes(&self) -> Vec<Clash> {
        let own = &self.config.name;
        let is_closed = kill_switch(&self.config.interface).is_some()
            && self.config.interface.excluded_ips.is_empty();
        let mut clashes = Vec::new();
        let others = places::all().into_iter();
        for other in others.filter(|it| it != own && owner::exists(it)) {
            if is_kill_switch_closed(other.as_str()).await {
                clashes.push(Clash::of(other.as_str(), own.as_str()));
            }
            if is_closed {
                clashes.push(Clash::of(own.as_str(), other.as_str()));
            }
        }
        clashes
    }

    /// Configures the tunnel: wholly, or with the settings that it lacks.
    pub(super) async fn configure(&mut self, is_new: bool) -> anyhow::Result<()> {
        self.choose_mark().await?;
        self.outer.begin();
        self.tell_outer().await?;
        let followed = self.followed();
        let changed = self.changed.as_ref();
        let config = changed.map(|changed| without_outer_peers(changed.merged(&self.config)));
        let config = config.as_ref().unwrap_or(&self.config);
        let (mark, addresses) = (self.mark, &self.addresses);
        let address = |peer: &Peer| {
            let known = || peer.endpoints.first().and_then(|it| it.address());
            addresses.of(peer).or_else(known)
        };
        let Some(process) = self.tunnel.as_mut().and_then(KeptTunnel::process) else {
            return Ok(());
        };
        process.allow(mark.unwrap_or(0));
        let update = match is_new {
            true => whole(config, mark, address),
            false => {
                let running = process.device().await?;
                adoption(config, mark, &running, address)
            }
        };
        process.set(&update).await?;
        process.follow(&followed).await?;
        self.directs.begin(is_new);
        self.relays.begin(is_new);
        self.port_map.forget_port();
        self.tell_directs().await?;
        changed::note_given(&self.config);
        Ok(())
    }

    /// Chooses a mark, if one is needed and none is configured or in use.
    async fn choose_mark(&mut self) -> anyhow::Result<()> {
        let Some(host) = &self.host else {
            return Ok(());
        };
        let outside = self.addresses.outside(&self.config);
        let wanted = desired(&self.config, self.mark, outside);
        let mark = host.pick_mark(&wanted).await?;
        if mark != self.mark {
            self.mark = mark;
            self.picked_mark = mark;
            self.addresses.mark(&self.config, mark);
        }
        Ok(())
    }

    /// Changes the host, and waits a little for the endpoints' names.
    pub(super) async fn set_up_host(&mut self) -> anyhow::Result<()> {
        // They run while the host is being changed.
        let changes = self.addresses.changes(Instant::now());
        self.tell_tunnel(changes).await?;
        self.apply().await?;
        self.addresses.settle().await;
        self.follow_addresses().await;
        Ok(())
    }

    /// Removes the peer that is this machine itself, which a private key set by a hook may reveal.
    pub(super) async fn find_this_machine(&mut self) -> anyhow::Result<()> {
        if self.config.interface.private_key.is_some() {
            return Ok(());
        }
        let Some(process) = self.tunnel.as_mut().and_then(KeptTunnel::process) else {
            return Ok(());
        };
        let key = process.device().await?.private_key;
        self.this_machine = key.map(|key| Identity::new(&key).public_key());
        let config = self.without_this_machine(self.config.clone());
        if config.peers == self.config.peers {
            return Ok(());
        }
        let mark = self.mark;
        self.become_as(config, mark);
        self.tell_directs().await?;
        self.apply().await?;
        let name = &self.config.name;
        let warning =
            format!("a peer of {name} is this machine itself: it is ignored, and gets no route");
        self.applied.warnings.push(warning);
        Ok(())
    }

    /// Leaves out the peer whose private key a hook has given this machine.
    pub(super) fn without_this_machine(&self, mut config: Config) -> Config {
        if config.interface.private_key.is_none() {
            let is_other = |peer: &Peer| Some(peer.public_key.value) != self.this_machine;
            config.peers.retain(is_other);
            for peer in &mut config.peers {
                let directs = &mut peer.directs;
                directs.retain(|it| Some(it.public_key.value) != self.this_machine);
            }
        }
        config
    }

    /// Prepares hooks.
    pub(super) fn hooks(&self, moment: Moment) -> Hooks {
        let port = self.port_forward.port();
        let port = for_hooks(&self.config, port.as_ref());
        Hooks::of(&self.config, moment, port, self.terminal.as_ref())
    }
}
