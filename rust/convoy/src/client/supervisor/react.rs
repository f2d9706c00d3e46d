//! Reactions of the supervisor to requests, events and signals.

use std::time::Instant;

use convoy_host::{Event, HostError};
use convoy_proto::Outcome;
use tracing::{info, warn};

use super::{Ending, Supervisor};
use crate::client::{
    control::{Asked, Reply, Request},
    desired::kill_switch,
    events::What,
    kept::{KeptEvent, KeptTunnel},
    metrics::Metrics,
    notify,
    signals::SignalEvent,
    tunnel::TunnelEvent,
};

impl Supervisor {
    pub(super) async fn on_request(&mut self, asked: Asked) {
        let outcome = match asked.request {
            Request::Down => {
                self.ending = Some(Ending::Requested(asked.reply));
                return;
            }
            Request::Status => {
                let status = self.status().await;
                // A client that has left is not interested; nor below.
                let _ = asked.reply.send(status);
                return;
            }
            Request::Subscribe => self.subscribe(asked.subscriber).await,
            Request::Reload => self.reload().await,
            Request::Pause { seconds } => self.pause(seconds).await,
            Request::Resume => self.resume().await,
            Request::Log { level, seconds } => self.set_log(level, seconds).await,
        };
        let reply = match outcome {
            Ok(warnings) => Reply::Done { warnings },
            Err(error) => {
                warn!("{error:#}");
                let reason = format!("{error:#}");
                Reply::Failed { reason }
            }
        };
        let _ = asked.reply.send(reply);
    }

    pub(super) async fn on_host_event(&mut self, event: Result<Event, HostError>) {
        match event {
            // The host has logged it.
            Ok(Event::Restored(_)) => {}
            Ok(Event::KillSwitchRestored) => {
                self.events.kill_switch(false);
                self.tell_kill_switch().await;
            }
            Ok(Event::MtuChanged(mtu)) => {
                self.applied.mtu = mtu;
                self.path_mtu.want_all(&self.config);
            }
            Ok(Event::Warnings(warnings)) => self.on_warnings(warnings),
            Ok(Event::UnderlayChanged) => {
                info!("The network has changed");
                self.events.publish(What::NetworkChanged);
                self.addresses.network_changed(Instant::now());
                self.forget_paths().await;
            }
            Ok(Event::Resumed) => {
                info!("The pause is over");
                self.note_pause(None);
                self.events.publish(What::Resumed);
                self.tell_kill_switch().await;
                notify::status(&self.line());
            }
            Ok(Event::Moved) => self.on_move().await,
            Ok(Event::Gone) => self.on_deletion(),
            Err(error) => {
                warn!("cannot keep the host as it should be, trying again: {error}");
                self.tell_kill_switch().await;
            }
        }
    }

    /// Lets the host go: the interface is in another network namespace, where it is somebody else's.
    async fn on_move(&mut self) {
        let Some(host) = self.host.take() else { return };
        let name = &self.config.name;
        let stays = match kill_switch(&self.config.interface) {
            Some(_) => "; the kill switch stays",
            None => "",
        };
        warn!("{name} has left this network namespace: its routes and rules are removed{stays}");
        if let Err(error) = host.release().await {
            warn!("{error}");
        }
        notify::status("the interface is in another network namespace");
    }

    /// Ends the tunnel, as wg-quick does, unless a kill switch is to stay closed: then the tunnel gets another
    /// interface.
    fn on_deletion(&mut self) {
        if !self.has_kill_switch() {
            self.ending = Some(Ending::InterfaceDeleted);
            return;
        }
        let Some(tunnel) = &mut self.tunnel else {
            return;
        };
        // The news may be of an interface that has a successor.
        if !tunnel.has_interface() {
            tunnel.interface_deleted(Instant::now());
        }
    }

    /// Ends the tunnel if its process says that it ends. With a kill switch, nobody's word opens that: if the process
    /// does end, another one is started.
    fn on_announced_end(&mut self, reason: String) {
        if !self.has_kill_switch() {
            self.ending = Some(Ending::Tunnel(reason));
        } else if self.host.is_none() {
            // The interface is in another namespace, and no longer this process's to make again.
            self.ending = Some(Ending::Failed(reason));
        } else if let Some(tunnel) = &mut self.tunnel {
            warn!("The tunnel process says that it ends: {reason}");
            tunnel.note_reason(reason);
        }
    }

    fn has_kill_switch(&self) -> bool {
        kill_switch(&self.config.interface).is_some()
    }

    pub(super) async fn on_tunnel_event(&mut self, event: KeptEvent) {
        let now = Instant::now();
        match event {
            KeptEvent::Tunnel(TunnelEvent::Asks { id, fwmark, .. }) => {
                self.on_question(id, fwmark).await;
            }
            KeptEvent::Tunnel(TunnelEvent::Changed) => self.note_changes().await,
            KeptEvent::Tunnel(TunnelEvent::Handshake { peer, outcome }) => {
                let answered = outcome == Outcome::Answered;
                self.addresses.handshake(&peer, answered, now);
                if answered {
                    self.path_mtu.handshake(&peer);
                }
                self.events.handshake(&self.config, peer, outcome, now);
            }
            KeptEvent::Tunnel(TunnelEvent::Moved { peer, endpoint }) => {
                self.events.endpoint(&self.config, peer, endpoint);
            }
            KeptEvent::Tunnel(TunnelEvent::Ended { reason }) => {
                self.on_announced_end(reason);
            }
            KeptEvent::Tunnel(TunnelEvent::Died) => {
                if let Some(tunnel) = &mut self.tunnel {
                    tunnel.died(now);
                }
                let reason = self.tunnel.as_ref().and_then(KeptTunnel::last_reason);
                self.events.tunnel_died(reason.map(str::to_owned));
            }
            KeptEvent::StartDue => {
                if let Some(tunnel) = &mut self.tunnel {
                    tunnel.start_again();
                }
            }
            KeptEvent::Started => self.configure_again().await,
        }
    }

    pub(super) async fn on_signal(&mut self, signal: SignalEvent, metrics: &mut Option<Metrics>) {
        match signal {
            SignalEvent::End(signal) => self.ending = Some(Ending::Signal(signal)),
            SignalEvent::Reload => {
                notify::reloading();
                match self.reload().await {
                    Ok(warnings) => warnings.iter().for_each(|warning| warn!("{warning}")),
                    Err(error) => warn!("the configuration stays as it is: {error:#}"),
                }
                notify::ready(&self.line());
            }
            SignalEvent::Replace => {
                let Err(error) = self.replace(metrics).await;
                warn!("this version stays: {error:#}");
            }
        }
    }

    pub(super) fn on_resume(&mut self) {
        info!("The machine has slept");
        self.events.publish(What::WokeUp);
        self.addresses.network_changed(Instant::now());
        self.path_mtu.want_all(&self.config);
    }
}
