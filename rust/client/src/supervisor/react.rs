//! Reactions of the supervisor to requests, and to events of the host and the tunnel.

use std::time::{Instant, SystemTime};

use anyhow::anyhow;
use convoy_desired::kill_switch;
use convoy_host::{Event as HostEvent, HostError, end_pause};
use convoy_keeper::{KeptEvent, KeptTunnel, tunnel::TunnelEvent};
use convoy_lifecycle::{Effect, Event, KillSwitch, Refusal, State};
use convoy_proto::Outcome;
use convoy_supervision::{
    control::{Asked, Reply, Request},
    events::What,
    notify,
};
use tokio::sync::oneshot;
use tracing::{info, warn};

use super::Supervisor;

impl Supervisor {
    /// Serves a client's request that changes no state.
    pub(super) async fn on_request(&mut self, asked: Asked, state: &State) {
        let Asked {
            request,
            reply,
            subscriber,
        } = asked;
        let outcome = match request {
            Request::Status => {
                // A client that has left is not interested.
                drop(reply.send(self.status(state).await));
                return;
            }
            Request::Subscribe => self.subscribe(subscriber).await,
            Request::Reload => self.reload().await,
            Request::Log { level, seconds } => self.set_log(level, seconds).await,
            // Left to the state.
            Request::Down | Request::Pause { .. } | Request::Resume => Ok(Vec::new()),
        };
        answer(reply, outcome);
    }

    /// Phrases a refusal.
    pub(super) fn refusal(&self, refusal: Refusal) -> anyhow::Error {
        let name = &self.config.name;
        match refusal {
            Refusal::NoTime => anyhow!("a pause takes a second at least"),
            Refusal::TooLong => anyhow!("a pause takes a day at most"),
            Refusal::HasMoved => anyhow!("{name} is in another network namespace"),
            Refusal::NotPaused => anyhow!("{name} is not paused"),
            Refusal::NothingToPause => anyhow!("{name} changes nothing on this host"),
        }
    }

    /// Reads the files again on a signal.
    pub(super) async fn on_reload(&mut self, state: &State) {
        notify::reloading();
        match self.reload().await {
            Ok(warnings) => warnings.iter().for_each(|warning| warn!("{warning}")),
            Err(error) => warn!("the configuration stays as it is: {error:#}"),
        }
        notify::ready(&self.line(state));
    }

    pub(super) async fn on_host_event(
        &mut self,
        event: Result<HostEvent, HostError>,
    ) -> Option<Event> {
        match event {
            // The host has logged it.
            Ok(HostEvent::Restored(_)) => {}
            Ok(HostEvent::KillSwitchRestored) => {
                self.events.kill_switch(false);
                self.tell_kill_switch().await;
            }
            Ok(HostEvent::MtuChanged(mtu)) => {
                self.applied.mtu = mtu;
                self.path_mtu.want_all(&self.config);
            }
            Ok(HostEvent::Warnings(warnings)) => self.on_warnings(warnings),
            Ok(HostEvent::UnderlayChanged) => {
                info!("The network has changed");
                self.events.publish(What::NetworkChanged);
                self.addresses.network_changed(Instant::now());
                self.port_map.network_changed();
                self.port_forward.ask_again();
                self.forget_paths().await;
            }
            Ok(HostEvent::OwnAddresses(addresses)) => self.on_own_addresses(addresses).await,
            Ok(HostEvent::Resumed) => return Some(Event::PauseOver),
            Ok(HostEvent::Moved) => return Some(Event::InterfaceMoved),
            Ok(HostEvent::Gone) => return Some(Event::InterfaceDeleted(self.kill_switch())),
            Err(error) => {
                warn!("cannot keep the host as it should be, trying again: {error}");
                self.tell_kill_switch().await;
            }
        }
        None
    }

    /// Releases the host: the interface has moved to another network namespace and is no longer ours.
    pub(super) async fn release_host(&mut self) {
        let Some(host) = self.host.take() else { return };
        let name = &self.config.name;
        let stays = match self.kill_switch() {
            KillSwitch::Off => "",
            KillSwitch::On | KillSwitch::Persistent => "; the kill switch stays",
        };
        warn!("{name} has left this network namespace: its routes and rules are removed{stays}");
        if let Err(error) = host.release().await {
            warn!("{error}");
        }
        notify::status("the interface is in another network namespace");
    }

    pub(super) fn kill_switch(&self) -> KillSwitch {
        match kill_switch(&self.config.interface) {
            None => KillSwitch::Off,
            Some(switch) if switch.persistent => KillSwitch::Persistent,
            Some(_) => KillSwitch::On,
        }
    }

    pub(super) async fn on_tunnel_event(&mut self, event: KeptEvent) -> Option<Event> {
        let now = Instant::now();
        let event = match event.decided(self.kill_switch()) {
            Ok(event) => return Some(event),
            Err(event) => event,
        };
        match event {
            TunnelEvent::Changed => {
                self.port_map.forget_port();
                self.note_changes().await;
            }
            TunnelEvent::Handshake { peer, outcome } => {
                let answered = outcome == Outcome::Answered;
                self.addresses.handshake(&peer, answered, now);
                if answered {
                    self.path_mtu.handshake(&peer);
                }
                self.events.handshake(&self.config, peer, outcome, now);
            }
            TunnelEvent::Moved { peer, endpoint } => {
                self.events.endpoint(&self.config, peer, endpoint);
            }
            TunnelEvent::Path {
                peer,
                remote,
                kind,
                why,
            } => self.events.path(&self.config, peer, (remote, kind, why)),
            TunnelEvent::Relay {
                peer,
                server,
                transport,
            } => {
                self.take_way(peer, server, transport).await;
                self.events.relay(&self.config, peer, server, transport);
            }
            // Left to the state.
            TunnelEvent::Asks { .. } | TunnelEvent::Ended { .. } | TunnelEvent::Died => {}
        }
        None
    }

    /// Records that the tunnel's process has ended, and tells subscribers.
    pub(super) async fn note_death(&mut self) {
        if let Some(tunnel) = &mut self.tunnel {
            tunnel.perform(Effect::NoteDeath).await;
        }
        let reason = self.tunnel.as_ref().and_then(KeptTunnel::last_reason);
        self.events.tunnel_died(reason.map(str::to_owned));
    }

    /// Looks peers' addresses and paths up again after sleep.
    pub(super) fn look_again(&mut self) {
        info!("The machine has slept");
        self.events.publish(What::WokeUp);
        self.addresses.network_changed(Instant::now());
        self.port_map.network_changed();
        self.port_forward.ask_again();
        self.path_mtu.want_all(&self.config);
    }

    /// Records and announces a pause.
    pub(super) async fn on_paused(&mut self, seconds: u64, until: SystemTime, state: &State) {
        self.note_pause(Some(until));
        warn!("Paused for {seconds} s: packets leave outside the tunnel");
        self.events.publish(What::Paused { seconds });
        self.tell_kill_switch().await;
        notify::status(&self.line(state));
    }

    /// Records and announces the end of a pause.
    pub(super) async fn on_resumed(&mut self, is_asked: bool, state: &State) {
        self.note_pause(None);
        // A host that was let go is not there to close it.
        if self.host.is_none()
            && let Err(error) = end_pause(self.config.name.as_str()).await
        {
            warn!("{error}");
        }
        match is_asked {
            true => info!("The pause was ended"),
            false => info!("The pause is over"),
        }
        self.events.publish(What::Resumed);
        self.tell_kill_switch().await;
        notify::status(&self.line(state));
    }
}

/// Answers a client.
pub(super) fn answer(client: oneshot::Sender<Reply>, outcome: anyhow::Result<Vec<String>>) {
    let reply = match outcome {
        Ok(warnings) => Reply::Done { warnings },
        Err(error) => {
            warn!("{error:#}");
            let reason = format!("{error:#}");
            Reply::Failed { reason }
        }
    };
    // A client that has left is not interested.
    let _ = client.send(reply);
}
