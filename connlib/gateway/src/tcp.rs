//! Connections: a SYN waits until its target has answered, and only then is it accepted inside.
//!
//! ```text
//!  SYN ──▶ Connecting ── the target accepts ──▶ Accepting ── the handshake inside is over ──▶ Open
//!              └── it refuses: RST; no way, no answer: ICMP
//! ```

use std::{io, sync::Arc, time::Duration};

use tokio::{
    sync::oneshot,
    task::JoinSet,
    time::{sleep, timeout},
};
use tracing::debug;

use super::{
    connections::State,
    ends::Ends,
    pending::Ticket,
    shared::{CONNECT_LIMIT, Shared, refused},
};
use convoy_network::shares::Share;
use convoy_network::{Listener, Stream, counters::Refusal, dial::reason, waiting::Early};
use convoy_packet::{
    counters::Dropped,
    icmp::Unreachable,
    packet::Packet,
    segment::{ACK, FIN, RST, SYN, Segment},
    vnet::VnetHeader,
};

/// Time limit for a peer to complete its handshake. Linux repeats its answer after one, three and seven seconds.
const ACCEPT_LIMIT: Duration = Duration::from_secs(15);
/// The pause after a call of accept(2) that failed.
const PAUSE: Duration = Duration::from_millis(100);

/// A connection's place among all; dropping it makes it free.
struct Place {
    shared: Arc<Shared>,
    ends: Ends,
    peer: u32,
}

/// A SYN that waits.
struct Syn {
    packet: Early,
    segment: Segment,
}

/// Begins the connection that a SYN asks for.
pub(super) fn begin(
    shared: &Arc<Shared>,
    flows: &mut JoinSet<()>,
    packet: &Packet<'_>,
) -> Result<(), Dropped> {
    let segment = Segment::parse(packet.payload()).ok_or(Dropped::Malformed)?;
    let ends = Ends {
        peer: (packet.source, segment.source_port).into(),
        target: (packet.destination, segment.destination_port).into(),
    };
    match shared.connections.all().get(&ends) {
        // Other segments come this way if they were fragments.
        None if !is_syn(&segment) => return Err(Dropped::NobodyListens),
        None => {}
        // Sent again, as there was no answer yet.
        Some(State::Connecting) => return Ok(()),
        Some(State::Accepting(_) | State::Open) => {
            shared.answers.admit(packet.bytes);
            return Ok(());
        }
    }
    if !packet.has_right_checksum() {
        return Err(Dropped::BadChecksum);
    }
    let pending = &shared.connections.pending;
    match shared.admission.admit(ends, pending) {
        Ok((share, setting_up)) => {
            let peer = setting_up.peer();
            let Some(kept) = shared.syns.hold(peer, packet.bytes, packet.class()) else {
                // The peer sends it again.
                refused(&shared.tcp, ends, Refusal::TooMuchWaiting);
                return Ok(());
            };
            let ticket = pending.add(setting_up);
            shared.connections.all().insert(ends, State::Connecting);
            let place = Place {
                shared: Arc::clone(shared),
                ends,
                peer,
            };
            let syn = Syn {
                packet: kept,
                segment,
            };
            flows.spawn(place.serve(syn, share, ticket));
        }
        Err(refusal) => {
            refused(&shared.tcp, ends, refusal);
            shared.answers.reset(ends, &segment);
        }
    }
    Ok(())
}

fn is_syn(segment: &Segment) -> bool {
    segment.has(SYN) && ![ACK, RST, FIN].iter().any(|flag| segment.has(*flag))
}

impl Place {
    async fn serve(self, syn: Syn, _share: Share, ticket: Ticket) {
        // Boxed, so that a connection that only waits for bytes holds no memory for its beginning.
        match Box::pin(self.establish(syn, ticket)).await {
            Ok((inner, outer)) => {
                let Shared { tcp, relay, .. } = &*self.shared;
                let tenant = self.shared.tenant(self.peer);
                let _open = tcp.open();
                let ended = relay.run(inner, outer, tenant, &tcp.moved).await;
                debug!(peer = %self.ends.peer, ?ended, "a connection has ended");
            }
            Err(refusal) => refused(&self.shared.tcp, self.ends, refusal),
        }
    }

    /// Connects to the target, then to the peer; answers the SYN if the former fails.
    async fn establish(&self, syn: Syn, mut ticket: Ticket) -> Result<(Stream, Stream), Refusal> {
        let Shared {
            outside,
            answers,
            connections,
            admission,
            ..
        } = &*self.shared;
        if let Err(refusal) = admission.settle(self.ends).await {
            self.refuse(&syn, refusal);
            return Err(refusal);
        }
        let connecting = timeout(CONNECT_LIMIT, outside.connect(self.ends.target));
        let connected = tokio::select! {
            connected = connecting => connected,
            // Without a word: an error would have the peer try at once.
            () = ticket.gives_way() => return Err(Refusal::TooManyOfPeer),
        };
        ticket.answered();
        let connected = match connected {
            Ok(connected) => connected.map_err(|error| reason(&error)),
            Err(_) => Err(Refusal::TimedOut),
        };
        let mut outer = match connected {
            Ok(outer) => outer,
            Err(refusal) => {
                self.refuse(&syn, refusal);
                return Err(refusal);
            }
        };
        let (sender, accepted) = oneshot::channel();
        let state = State::Accepting(sender);
        connections.all().insert(self.ends, state);
        answers.admit(&syn.packet);
        drop(syn);
        match timeout(ACCEPT_LIMIT, accepted).await {
            Ok(Ok(inner)) => Ok((inner, outer)),
            _ => {
                outer.close_by_reset();
                Err(Refusal::Silent)
            }
        }
    }

    fn refuse(&self, syn: &Syn, refusal: Refusal) {
        let answers = &self.shared.answers;
        let why = match refusal {
            Refusal::TimedOut => Unreachable::Silent,
            Refusal::Unreachable | Refusal::NoSource => Unreachable::Host,
            Refusal::NoRoute => Unreachable::Network,
            Refusal::Prohibited => Unreachable::Prohibited,
            _ => return answers.reset(self.ends, &syn.segment),
        };
        // It was parsed before.
        if let Ok(packet) = Packet::parse(VnetHeader::default(), &syn.packet) {
            answers.unreachable(why, &packet);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.shared.connections.all().remove(&self.ends);
    }
}

/// Accepts what was admitted.
pub(super) async fn accept(shared: Arc<Shared>, listener: Listener) {
    loop {
        let accepted = listener.accept().await;
        let (mut stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
            Err(error) => {
                shared.tcp.refuse(reason(&error));
                sleep(PAUSE).await;
                continue;
            }
        };
        // Who connects to the listener's own port was not admitted.
        let target = stream.local_address();
        let waiting = target.and_then(|target| {
            let ends = Ends { peer, target };
            shared.connections.accepted(ends)
        });
        match waiting {
            // It may have waited too long.
            Some(waiting) => drop(waiting.send(stream)),
            None => stream.close_by_reset(),
        }
    }
}
