//! Accepts connections and serves each in a task of its own.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use convoy_network::{
    Listener, Stream,
    counters::Refusal,
    dial::{dial, reason},
    shares::Share,
    waiting::Part,
};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};
use tracing::{debug, warn};

use super::{
    clients::Place,
    context::{Context, Shared},
    service::Service,
};
use crate::{http_connect, socks};

/// The pause after a call of accept(2) that failed.
const PAUSE: Duration = Duration::from_millis(100);
/// Such failures are logged no more often: connections that end make room for others, time and again.
const SILENCE: Duration = Duration::from_secs(60);

/// Accepts connections until it is dropped, which closes those accepted.
pub(super) async fn serve(context: Arc<Context>, listener: Listener) {
    let mut connections = JoinSet::new();
    let mut said: Option<Instant> = None;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
        };
        match accepted {
            Ok((mut client, address)) => {
                if let Some(held) = context.admit(&mut client, address) {
                    connections.spawn(Arc::clone(&context).connection(client, address, held));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                if said.is_none_or(|said| said.elapsed() >= SILENCE) {
                    warn!("cannot accept connections, and will try again: {error}");
                    said = Some(Instant::now());
                }
                context.counters.refuse(reason(&error));
                sleep(PAUSE).await;
            }
        }
    }
}

/// Parts of its rule and of its client that a connection holds until it ends.
struct Admitted {
    _share: Share,
    _place: Place,
}

impl Context {
    /// Resets a connection that is one too many, or that comes from a client that is not allowed.
    fn admit(&self, client: &mut Stream, address: SocketAddr) -> Option<Admitted> {
        let share = match self.allows(address) {
            false => Err(Refusal::Denied),
            true => self.take_share(address),
        };
        let refused = share.as_ref().err().copied();
        if let Some(refusal) = refused {
            self.refuse(refusal, address);
            client.close_by_reset();
        }
        share.ok()
    }

    fn take_share(&self, client: SocketAddr) -> Result<Admitted, Refusal> {
        let Shared {
            connections,
            clients,
            ..
        } = self.shared.as_ref();
        let free = connections.free(self.rule);
        let share = connections.take(self.rule);
        let share = share.map_err(|_| Refusal::TooMany)?;
        let address = client.ip();
        let place = clients.admit(self.holder(address), address, free);
        let place = place.ok_or(Refusal::TooManyOfPeer)?;
        Ok(Admitted {
            _share: share,
            _place: place,
        })
    }

    async fn connection(self: Arc<Self>, client: Stream, address: SocketAddr, _held: Admitted) {
        // Boxed, so that a connection that only waits for bytes holds no memory for its beginning.
        match Box::pin(self.establish(client, address)).await {
            Ok(Some((client, target))) => {
                let _open = self.counters.open();
                let ended = self
                    .shared
                    .relay
                    .run(client, target, &self.tenant, &self.counters.moved)
                    .await;
                debug!(%address, ?ended, "a connection has ended");
            }
            Ok(None) => {}
            Err(refusal) => self.refuse(refusal, address),
        }
    }

    /// Learns where the client wants to go and connects; `None` if it was served already.
    async fn establish(
        &self,
        mut client: Stream,
        address: SocketAddr,
    ) -> Result<Option<(Stream, Stream)>, Refusal> {
        let far = &self.far(address.ip());
        match &self.service {
            Service::Tcp(target) | Service::Udp(target) => match dial(far, target).await {
                Ok(target) => Ok(Some((client, target))),
                Err(refusal) => {
                    client.close_by_reset();
                    Err(refusal)
                }
            },
            Service::Socks5(login) => {
                let networks = socks::Networks {
                    near: self.near.as_ref(),
                    far,
                };
                let rule = socks::Rule {
                    counters: &self.counters,
                    early: Part {
                        waiting: &self.shared.waiting,
                        group: self.rule,
                    },
                    flows: socks::Flows {
                        all: &self.shared.flows,
                        client: self.holder_of_flows(address.ip()),
                        most: self.shared.most_flows,
                        targets: &self.shared.targets,
                    },
                };
                socks::serve(client, address.ip(), login.as_ref(), networks, rule).await
            }
            Service::HttpConnect(login) => http_connect::serve(client, login.as_ref(), far)
                .await
                .map(Some),
        }
    }

    pub(super) fn allows(&self, client: SocketAddr) -> bool {
        self.access.iter().all(|access| access.allows(client.ip()))
    }

    pub(super) fn refuse(&self, refusal: Refusal, client: SocketAddr) {
        self.counters.refuse(refusal);
        debug!(%client, reason = refusal.name(), "refused");
    }
}
