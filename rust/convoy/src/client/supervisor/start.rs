//! Brings the tunnel up, step by step. What a failed step leaves, [`TakeDown`](crate::client::take_down) undoes.

use std::{
    pin::pin,
    time::{Instant, SystemTime},
};

use anyhow::{bail, ensure};
use convoy_config::{Config, Peer};
use convoy_host::{Applied, close_kill_switch};
use convoy_proto::noise::Identity;
use tokio::time::sleep;
use tracing::{info, warn};

use super::{Found, Supervisor};
use crate::{
    client::{
        addresses::Addresses,
        changed::{self, Changed},
        desired::{FIRST_MARK, adoption, configured_mark, desired, kill_switch, whole},
        events::Events,
        hooks::{Hooks, Moment},
        kept::KeptTunnel,
        lock::lock,
        owner,
        path_mtu::PathMtu,
        state::State,
        status::seconds,
        up::Wanted,
        wg_quick,
    },
    logging,
    socket::{ENDING_PAUSE, ENDING_TIME},
};

impl Supervisor {
    /// Locks the interface for this process.
    pub(super) async fn new(wanted: Wanted) -> anyhow::Result<Self> {
        let config = wanted.config;
        let host = lock(&config.name).await?;
        let found = Found {
            has_tunnel: false,
            is_kill_switch_closed: host.has_kill_switch().await,
        };
        if let Some(source) = &config.source {
            source.remove_unfinished();
        }
        let state = State::new(&wanted.path, seconds(SystemTime::now()));
        Ok(Self {
            path: wanted.path,
            program: wanted.program,
            addresses: Addresses::new(&config, configured_mark(&config)),
            resolvers: Vec::new(),
            this_machine: None,
            path_mtu: PathMtu::new(&config),
            events: Events::new(config.name.as_str()),
            mark: configured_mark(&config),
            config,
            daemon: wanted.daemon,
            adopts: wanted.adopts,
            is_closed_early: false,
            terminal: wanted.terminal,
            state,
            found,
            host: Some(host),
            applied: Applied::default(),
            tunnel: None,
            picked_mark: None,
            changed: None,
            paused_until: None,
            ending: None,
        })
    }

    /// Brings everything up; takes over what an earlier supervisor left.
    pub(super) async fn bring_up(&mut self) -> anyhow::Result<()> {
        let earlier = State::read(&self.config.name);
        self.tunnel = KeptTunnel::adopt(&self.config.name, &self.daemon).await?;
        self.found.has_tunnel = self.tunnel.is_some();
        match self.tunnel.is_some() {
            true => self.adopt(earlier).await?,
            false => self.make(earlier).await?,
        }
        self.set_up_host().await?;
        if !self.state.is_up {
            self.begin_hooks()?;
            self.run_hooks(Moment::PostUp).await?;
            // Hooks may give the tunnel its key.
            if self.config.interface.has_hooks() {
                self.note_changes().await;
            }
            self.state.is_up = true;
            self.state.write(&self.config.name)?;
        }
        self.find_this_machine().await?;
        for warning in &self.applied.warnings {
            match &self.terminal {
                Some(terminal) => terminal.say(&format!("convoy: warning: {warning}")),
                None => logging::say(&format!("convoy: warning: {warning}")),
            }
        }
        info!("{} is up", self.config.name);
        Ok(())
    }

    /// Goes on with a tunnel that runs.
    async fn adopt(&mut self, earlier: Option<State>) -> anyhow::Result<()> {
        let name = self.config.name.clone();
        ensure!(
            owner::exists(&name),
            "the interface of the tunnel {name} that ran without its supervisor is in another network \
             namespace, so the tunnel was ended (fix: `convoy up` again)"
        );
        if let Some(earlier) = earlier {
            self.state.hooks_begun = earlier.hooks_begun;
            self.state.is_up = earlier.is_up;
            self.state.since = earlier.since;
            self.path_mtu.restore(&self.config, &earlier.paths);
            self.state.paths = earlier.paths;
            if earlier.paused_until.is_some() {
                info!("The pause is over, as the supervisor that began it is gone");
            }
        }
        self.state.write(&name)?;
        let Some(tunnel) = &mut self.tunnel else {
            return Ok(());
        };
        info!("Taking over the tunnel {name}, which ran without its supervisor");
        if let Some(process) = tunnel.process() {
            self.changed = Some(Changed::under_former(&self.config, process.device().await?));
        }
        let is_of_another_version = tunnel.is_of_another_version();
        // Before the process is replaced: it refuses what it cannot do, and goes on.
        self.configure(false).await?;
        if let Some(tunnel) = &mut self.tunnel
            && is_of_another_version
        {
            info!("It belongs to another version: replacing its process");
            tunnel.replace().await?;
            self.configure(true).await?;
        }
        Ok(())
    }

    /// Makes the interface and starts a tunnel.
    async fn make(&mut self, earlier: Option<State>) -> anyhow::Result<()> {
        let name = self.config.name.clone();
        self.ensure_free(earlier.is_some()).await?;
        if earlier.is_some_and(|earlier| earlier.is_up || earlier.hooks_begun) {
            info!("Undoing the hooks of the tunnel {name}, which was killed");
            if let Err(error) = self.run_hooks(Moment::PostDown).await {
                warn!("{error:#}");
            }
        }
        self.state.write(&name)?;
        self.begin_hooks()?;
        self.run_hooks(Moment::PreUp).await?;
        self.tunnel = Some(KeptTunnel::start(&name, &self.daemon).await?);
        self.configure(true).await
    }

    /// Fails if somebody else has the interface. Ours may take a moment to go if its processes were killed.
    async fn ensure_free(&mut self, was_ours: bool) -> anyhow::Result<()> {
        let name = self.config.name.clone();
        let deadline = Instant::now() + ENDING_TIME;
        while was_ours && owner::exists(&name) && Instant::now() < deadline {
            sleep(ENDING_PAUSE).await;
        }
        if !owner::exists(&name) {
            return Ok(());
        }
        let signs = owner::signs(&name, &crate::client::places::uapi(&name));
        if !self.adopts || !wg_quick::may_own(signs) {
            bail!(owner::refusal(&name, signs));
        }
        if let Err(reason) = &self.config.hooks_trusted {
            // It would read the file again, and run whatever hooks are in there by then.
            bail!(
                "`wg-quick down {path}` may not run: {reason} (fix: let only root write to it, or take {name} down \
                 yourself)",
                path = self.path.display()
            );
        }
        if let Some(switch) = kill_switch(&self.config.interface) {
            let mark = self.mark.unwrap_or(FIRST_MARK);
            close_kill_switch(name.as_str(), switch, Some(mark)).await?;
            self.is_closed_early = !switch.persistent;
        }
        info!("Taking {name} over from wg-quick");
        wg_quick::take_down(&self.path).await?;
        ensure!(!owner::exists(&name), "wg-quick has left {name} behind");
        Ok(())
    }

    /// Gives the tunnel its configuration: all of it, or what it lacks.
    pub(super) async fn configure(&mut self, is_new: bool) -> anyhow::Result<()> {
        self.choose_mark().await?;
        let followed = self.followed();
        let changed = self.changed.as_ref();
        let config = changed.map(|changed| changed.merged(&self.config));
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
    async fn set_up_host(&mut self) -> anyhow::Result<()> {
        // They run while the host is being changed.
        let changes = self.addresses.changes(Instant::now());
        self.tell_tunnel(changes).await?;
        self.apply().await?;
        self.addresses.settle().await;
        self.follow_addresses().await;
        Ok(())
    }

    /// Removes the peer that is this machine itself, if a hook has set the key that tells it.
    async fn find_this_machine(&mut self) -> anyhow::Result<()> {
        if self.config.interface.private_key.is_some() {
            return Ok(());
        }
        let Some(process) = self.tunnel.as_mut().and_then(KeptTunnel::process) else {
            return Ok(());
        };
        let key = process.device().await?.private_key;
        self.this_machine = key.map(|key| Identity::new(&key).public_key());
        let config = self.without_this_machine(self.config.clone());
        if config.peers.len() == self.config.peers.len() {
            return Ok(());
        }
        let mark = self.mark;
        self.become_as(config, mark);
        self.apply().await?;
        let name = &self.config.name;
        let warning =
            format!("a peer of {name} is this machine itself: it is ignored, and gets no route");
        self.applied.warnings.push(warning);
        Ok(())
    }

    /// Leaves out the peer whose key a hook has given this machine.
    pub(super) fn without_this_machine(&self, mut config: Config) -> Config {
        if config.interface.private_key.is_none() {
            let is_other = |peer: &Peer| Some(peer.public_key.value) != self.this_machine;
            config.peers.retain(is_other);
        }
        config
    }

    /// Notes that hooks may have run from now on.
    fn begin_hooks(&mut self) -> anyhow::Result<()> {
        if !self.config.interface.has_hooks() || self.state.hooks_begun {
            return Ok(());
        }
        self.state.hooks_begun = true;
        self.state.write(&self.config.name)
    }

    /// Runs hooks, and answers the questions that they raise.
    async fn run_hooks(&mut self, moment: Moment) -> anyhow::Result<()> {
        let hooks = Hooks::of(&self.config, moment, self.terminal.as_ref());
        if hooks.is_empty() {
            return Ok(());
        }
        let mut running = pin!(hooks.run());
        loop {
            tokio::select! {
                outcome = &mut running => return Ok(outcome?),
                event = super::next_of(&mut self.tunnel) => self.on_tunnel_event(event).await,
            }
        }
    }
}
