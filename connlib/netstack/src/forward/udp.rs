//! Forwards datagrams. Each client has a flow: a socket of its own towards the target.

mod flow;

use std::{
    collections::HashMap,
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::task::JoinSet;
use tracing::debug;

use super::Context;
use crate::{counters::Refusal, dial::Target, network::Datagrams};
use flow::Flow;

/// Datagrams received before other tasks have their turn.
const BATCH: usize = 64;
const LONGEST_DATAGRAM: usize = 65_535;

/// The clients' side of a rule.
struct Near {
    context: Arc<Context>,
    socket: Datagrams,
    target: Target,
    /// Where answers are received, one at a time: a buffer for each flow would be most of its memory.
    scratch: Mutex<Box<[u8]>>,
}

/// Forwards datagrams until it is dropped.
pub(super) async fn serve(context: Arc<Context>, socket: Datagrams, target: Target) {
    let near = Arc::new(Near {
        context,
        socket,
        target,
        scratch: Mutex::new(vec![0; LONGEST_DATAGRAM].into()),
    });
    let mut flows = Flows {
        by_client: HashMap::new(),
        tasks: JoinSet::new(),
        near: Arc::clone(&near),
    };
    let mut buffer = vec![0; LONGEST_DATAGRAM];
    loop {
        tokio::select! {
            ready = near.socket.readable() => match ready {
                Ok(()) => flows.receive(&mut buffer),
                Err(error) => debug!("cannot receive: {error}"),
            },
            Some(ended) = flows.tasks.join_next() => {
                if let Ok(client) = ended {
                    flows.by_client.remove(&client);
                }
            }
        }
        tokio::task::yield_now().await;
    }
}

/// The flows of a rule.
struct Flows {
    by_client: HashMap<SocketAddr, Arc<Flow>>,
    /// Each returns its client.
    tasks: JoinSet<SocketAddr>,
    near: Arc<Near>,
}

impl Flows {
    fn receive(&mut self, buffer: &mut [u8]) {
        for _ in 0..BATCH {
            match self.near.socket.try_recv_from(buffer) {
                Ok((length, client)) => self.forward(client, &buffer[..length]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // An ICMP error about an answer: its flow expires.
                Err(_) => {}
            }
        }
    }

    fn forward(&mut self, client: SocketAddr, datagram: &[u8]) {
        let flow = match self.by_client.get(&client) {
            Some(flow) => Some(Arc::clone(flow)),
            None => self.open(client),
        };
        if let Some(flow) = flow
            && flow.send(datagram, &self.near).is_err()
        {
            self.near.context.counters.drop_datagram();
        }
    }

    fn open(&mut self, client: SocketAddr) -> Option<Arc<Flow>> {
        let context = &self.near.context;
        let permit = match context.allows(client) {
            false => Err(Refusal::Denied),
            true => Arc::clone(&context.shared.flows)
                .try_acquire_owned()
                .map_err(|_| Refusal::TooMany),
        };
        let permit = permit
            .map_err(|refusal| context.refuse(refusal, client))
            .ok()?;
        let (flow, early) = Flow::new();
        let flow = Arc::new(flow);
        let run = flow::run(Arc::clone(&flow), early, Arc::clone(&self.near), client);
        self.tasks.spawn(async move {
            run.await;
            drop(permit);
            client
        });
        self.by_client.insert(client, Arc::clone(&flow));
        Some(flow)
    }
}

impl Near {
    /// Passes answers on to a client; fails when there are none for now.
    fn answer(&self, from: &Datagrams, client: SocketAddr) -> io::Result<()> {
        let mut scratch = self.scratch.lock().unwrap_or_else(PoisonError::into_inner);
        let length = from.try_recv(&mut scratch)?;
        let counters = &self.context.counters;
        match self.socket.try_send_to(&scratch[..length], client) {
            Ok(sent) => counters.moved.count_inbound(sent),
            Err(_) => counters.drop_datagram(),
        }
        Ok(())
    }
}
