//! Forwards datagrams. Each client has a flow: a socket of its own towards the target.

mod flow;

use std::{collections::HashMap, io, net::SocketAddr, sync::Arc};

use tokio::task::JoinSet;
use tracing::debug;

use super::Context;
use crate::{
    counters::Refusal,
    dial::Target,
    network::{Datagrams, Sent, Train, with_batch},
};
use flow::Flow;

/// The clients' side of a rule.
struct Near {
    context: Arc<Context>,
    socket: Datagrams,
    target: Target,
}

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
        let client = train.from();
        let flow = match self.by_client.get(&client) {
            Some(flow) => Ok(Arc::clone(flow)),
            None => self.open(client),
        };
        match flow {
            Ok(flow) => flow.send(train, &self.near),
            Err(refusal) => train
                .datagrams()
                .for_each(|_| self.near.context.refuse(refusal, client)),
        }
    }

    fn open(&mut self, client: SocketAddr) -> Result<Arc<Flow>, Refusal> {
        let context = &self.near.context;
        if !context.allows(client) {
            return Err(Refusal::Denied);
        }
        let permit = Arc::clone(&context.shared.flows)
            .try_acquire_owned()
            .map_err(|_| Refusal::TooMany)?;
        let (flow, early) = Flow::new();
        let flow = Arc::new(flow);
        let run = flow::run(Arc::clone(&flow), early, Arc::clone(&self.near), client);
        self.tasks.spawn(async move {
            run.await;
            drop(permit);
            client
        });
        self.by_client.insert(client, Arc::clone(&flow));
        Ok(flow)
    }
}

impl Near {
    /// Passes answers on to a client; fails if there are none for now.
    fn answer(&self, from: &Datagrams, client: SocketAddr) -> io::Result<()> {
        with_batch(|batch| {
            from.try_receive(batch)?;
            for train in batch.trains() {
                let Sent { bytes, lost, .. } = self.socket.try_send_train(&train, Some(client));
                self.context.counters.moved.count_inbound(bytes);
                self.context.counters.drop_datagrams(lost);
            }
            Ok(())
        })
    }
}
