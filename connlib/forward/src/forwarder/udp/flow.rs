//! One client's datagrams to the target, and the answers.

use std::{
    pin::pin,
    sync::{Arc, OnceLock},
};

use convoy_network::{
    Datagrams, Network, Sent, Train, any_of,
    counters::Refusal,
    dial::{reason, resolve},
    expiry::{Expiry, RETRY},
    waiting::Early,
};
use tokio::{sync::mpsc, time::timeout};

use super::near::{Client, Near};

/// Datagrams that wait for the target's name to be resolved.
const MAX_EARLY: usize = 64;

/// A flow, as both of its sides see it.
pub(super) struct Flow {
    /// Towards the target, once that is known.
    socket: OnceLock<Datagrams>,
    early: mpsc::Sender<Early>,
    pub(super) expiry: Arc<Expiry>,
}

impl Flow {
    pub(super) fn new() -> (Self, mpsc::Receiver<Early>) {
        let (early, receiver) = mpsc::channel(MAX_EARLY);
        let flow = Self {
            socket: OnceLock::new(),
            early,
            expiry: Arc::new(Expiry::of_datagrams()),
        };
        (flow, receiver)
    }

    pub(super) fn is_replaced(&self) -> bool {
        self.expiry.is_replaced()
    }

    /// Sends datagrams to the target, now or as soon as that is known.
    pub(super) fn send(&self, train: &Train<'_>, near: &Near) {
        self.expiry.question();
        let counters = &near.context.counters;
        let Some(socket) = self.socket.get() else {
            return self.keep(train, near);
        };
        let Sent { bytes, lost, .. } = socket.try_send_train(train, None);
        counters.moved.count_outbound(bytes);
        counters.drop_datagrams(lost);
    }

    /// Keeps datagrams until the target is known.
    fn keep(&self, train: &Train<'_>, near: &Near) {
        let context = &near.context;
        for datagram in train.datagrams() {
            let waiting = &context.shared.waiting;
            let held = waiting.hold(context.rule, datagram, train.class());
            match held.map(|early| self.early.try_send(early)) {
                Some(Ok(())) => {}
                Some(Err(_)) => context.counters.drop_datagrams(1),
                None => context.counters.refuse(Refusal::TooMuchWaiting),
            }
        }
    }
}

/// Runs a flow until it expires or is replaced.
pub(super) async fn run(
    flow: Arc<Flow>,
    early: mpsc::Receiver<Early>,
    near: Arc<Near>,
    client: Client,
) {
    let connected = tokio::select! {
        connected = Box::pin(connect(&near, client)) => connected,
        // Names take long.
        () = flow.expiry.reached() => Err(Refusal::Replaced),
    };
    match connected {
        Ok(socket) => {
            let _open = near.context.counters.open();
            let socket = flow.socket.get_or_init(|| socket);
            exchange(&flow, socket, early, &near, client).await;
            if flow.is_replaced() {
                near.context.refuse(Refusal::Replaced, client.address);
            }
        }
        Err(refusal) => {
            near.context.refuse(refusal, client.address);
            drop(early);
            let _ = timeout(RETRY, flow.expiry.reached()).await;
        }
    }
}

/// A socket that is connected to the first address of the target that has a route.
async fn connect(near: &Near, client: Client) -> Result<Datagrams, Refusal> {
    let far = &near.context.far(client.address.ip());
    let mut refusal = Refusal::UnknownName;
    for address in resolve(far, &near.target).await? {
        let attempt = async {
            let socket = far.datagrams(any_of(&address)).await?;
            socket.prepare_for_batches();
            socket.connect(address).await?;
            Ok(socket)
        };
        match attempt.await {
            Ok(socket) => return Ok(socket),
            Err(error) => refusal = reason(&error),
        }
    }
    Err(refusal)
}

async fn exchange(
    flow: &Flow,
    socket: &Datagrams,
    mut early: mpsc::Receiver<Early>,
    near: &Near,
    client: Client,
) {
    let mut expired = pin!(flow.expiry.reached());
    loop {
        tokio::select! {
            // The flow holds a sender, so there is always another.
            Some(datagram) = early.recv() => {
                match socket.try_send_of_class(&datagram, datagram.class()) {
                    Ok(sent) => near.context.counters.moved.count_outbound(sent),
                    Err(_) => near.context.counters.drop_datagrams(1),
                }
            }
            // The error is that the target's host refuses the port: it may open later.
            _ = socket.ready() => {
                if near.answer(socket, client).is_ok() {
                    flow.expiry.answer();
                }
                tokio::task::yield_now().await;
            }
            () = &mut expired => return,
        }
    }
}
