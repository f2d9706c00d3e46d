//! Datagrams that are received together.

use std::{cell::RefCell, io, net::SocketAddr};

use super::{
    kernel::messages::{DISTANCE, Headers, MESSAGES},
    train::{Message, Received, Train, join},
};

/// Messages that one call has received.
#[derive(Debug)]
pub struct Batch {
    /// Written to only where messages are, so that most of it never becomes memory.
    storage: Box<[u8]>,
    messages: Vec<Message>,
    headers: Headers,
    /// Single datagrams, or parts of them, in the storage or in `prefixed`.
    parts: Vec<Message>,
    /// The datagrams of one train, each behind its prefix.
    prefixed: Vec<u8>,
}

thread_local! {
    // One for each flow would be most of its memory.
    static BATCH: RefCell<Batch> = RefCell::new(Batch::new());
}

/// Lends this thread's batch to a function, which must not ask for it again.
pub fn with_batch<T>(with: impl FnOnce(&mut Batch) -> T) -> T {
    BATCH.with_borrow_mut(with)
}

impl Batch {
    fn new() -> Self {
        Self {
            storage: vec![0; MESSAGES * DISTANCE].into(),
            messages: Vec::with_capacity(MESSAGES),
            headers: Headers::default(),
            parts: Vec::new(),
            prefixed: Vec::new(),
        }
    }

    pub(super) fn clear(&mut self) {
        self.messages.clear();
    }

    /// Fills an empty batch; whether there may be more.
    pub(super) fn fill(
        &mut self,
        receive: impl FnOnce(&mut Headers, &mut [u8], &mut Vec<Message>) -> io::Result<()>,
    ) -> io::Result<bool> {
        receive(&mut self.headers, &mut self.storage, &mut self.messages)?;
        Ok(self.messages.len() == MESSAGES)
    }

    /// The same, one datagram after another, until there is no more room or none for now.
    pub(super) fn fill_one_by_one(
        &mut self,
        mut receive: impl FnMut(&mut [u8]) -> io::Result<Received>,
    ) -> io::Result<bool> {
        self.fill(|_, storage, messages| {
            for (index, room) in storage.chunks_exact_mut(DISTANCE).enumerate() {
                match receive(room) {
                    Ok(Received {
                        length,
                        from,
                        class,
                    }) => {
                        let message = Message::one(from, index * DISTANCE, length);
                        messages.push(message.with_class(class));
                    }
                    Err(error) if index == 0 => return Err(error),
                    Err(_) => break,
                }
            }
            Ok(())
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// All datagrams, sender by sender.
    pub fn trains(&mut self) -> impl Iterator<Item = Train<'_>> {
        // The sort is stable: each sender's datagrams keep their order.
        self.messages
            .sort_by_key(|message| (message.from, message.to));
        join(&self.storage, &self.messages)
    }

    /// All datagrams that `route` finds a destination for, given sender, bytes and traffic class, destination by
    /// destination. Each begins behind as many of its bytes as `route` says; a train is from its destination.
    pub fn routed(
        &mut self,
        mut route: impl FnMut(SocketAddr, &[u8], u8) -> Option<(SocketAddr, usize)>,
    ) -> impl Iterator<Item = Train<'_>> {
        self.parts.clear();
        for message in &self.messages {
            let end = message.start + message.length;
            for start in message.datagrams() {
                let whole = &self.storage[start..end.min(start + message.segment_len)];
                let routed = route(message.from, whole, message.class);
                self.parts.extend(routed.map(|(to, header)| {
                    let length = whole.len() - header;
                    Message::one(to, start + header, length).with_class(message.class)
                }));
            }
        }
        self.parts.sort_by_key(|part| part.from);
        join(&self.storage, &self.parts)
    }

    /// Gives `send` all datagrams in trains, sender by sender, each datagram behind the bytes that `prefix` returns for
    /// its train; those for which it returns none are left out.
    pub fn send_prefixed(
        &mut self,
        mut prefix: impl FnMut(&Train<'_>) -> Option<Vec<u8>>,
        mut send: impl FnMut(&Train<'_>, &[u8]),
    ) {
        self.messages.sort_by_key(|message| message.from);
        for train in join(&self.storage, &self.messages) {
            let Some(prefix) = prefix(&train) else {
                continue;
            };
            self.prefixed.clear();
            self.parts.clear();
            for datagram in train.datagrams() {
                let start = self.prefixed.len();
                self.prefixed.extend(&prefix);
                self.prefixed.extend(datagram);
                let length = self.prefixed.len() - start;
                let part = Message::one(train.from(), start, length);
                self.parts.push(part.with_class(train.class()));
            }
            join(&self.prefixed, &self.parts).for_each(|train| send(&train, &prefix));
        }
    }
}
