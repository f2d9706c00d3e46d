//! Forwards datagrams. Each client has a flow: a socket of its own towards the target.

mod flow;
mod near;

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
};

use convoy_network::{Datagrams, Train, counters::Refusal, dial::Target, with_batch};
use tokio::task::JoinSet;
use tracing::debug;

use super::context::Context;
use flow::Flow;
use near::{Client, Near};

/// Forwards datagrams until it is dropped.
pub(super) async fn serve(context: Arc<Context>, socket: Datagrams, target: Target) {
    socket.prepare_for_batches();
    let near = Arc::new(Near {
        context,
        socket,
        target,
    });
    let mut flows = Flows {
        by_client: HashMap::new(),
        tasks: JoinSet::new(),
        near: Arc::clone(&near),
    };
    loop {
        tokio::select! {
            ready = near.socket.readable() => match ready {
                Ok(()) => flows.receive(),
                Err(error) => debug!("cannot receive: {error}"),
            },
            Some(ended) = flows.tasks.join_next() => {
                if let Ok((client, flow)) = ended {
                    flows.remove(client, &flow);
                }
            }
        }
        tokio::task::yield_now().await;
    }
}

/// The flows of a rule.
struct Flows {
    by_client: HashMap<Client, Arc<Flow>>,
    /// Each returns its client and itself.
    tasks: JoinSet<(Client, Arc<Flow>)>,
    near: Arc<Near>,
}

impl Flows {
    fn receive(&mut self) {
        let near = Arc::clone(&self.near);
        with_batch(|batch| {
            // The error is that there is nothing, or an ICMP error about an answer: its flow expires.
            if near.socket.try_receive(batch).is_ok() {
                batch.trains().for_each(|train| self.forward(&train));
            }
        });
    }

    fn forward(&mut self, train: &Train<'_>) {
        let client = Client {
            address: train.from(),
            asked: train.to(),
        };
        let flow = match self.by_client.get(&client) {
            Some(flow) if !flow.is_replaced() => Ok(Arc::clone(flow)),
            _ => self.open(client),
        };
        match flow {
            Ok(flow) => flow.send(train, &self.near),
            Err(refusal) => train
                .datagrams()
                .for_each(|_| self.near.context.refuse(refusal, client.address)),
        }
    }

    fn open(&mut self, client: Client) -> Result<Arc<Flow>, Refusal> {
        let context = &self.near.context;
        if !context.allows(client.address) {
            return Err(Refusal::Denied);
        }
        let (flow, early) = Flow::new();
        let flow = Arc::new(flow);
        let holder = context.holder_of_flows(client.address.ip());
        let shared = &context.shared;
        let place = shared.flows.admit(holder, &flow.expiry, shared.most_flows);
        let place = place.ok_or(Refusal::TooMany)?;
        let run = flow::run(Arc::clone(&flow), early, Arc::clone(&self.near), client);
        let ended = (client, Arc::clone(&flow));
        self.tasks.spawn(async move {
            run.await;
            drop(place);
            ended
        });
        self.by_client.insert(client, Arc::clone(&flow));
        Ok(flow)
    }

    /// Forgets a flow that has ended, unless the client has a newer one.
    fn remove(&mut self, client: Client, flow: &Arc<Flow>) {
        if let Entry::Occupied(entry) = self.by_client.entry(client)
            && Arc::ptr_eq(entry.get(), flow)
        {
            entry.remove();
        }
    }
}
