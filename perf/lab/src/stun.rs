//! A STUN server (RFC 8489): tells each client the address that it sees.

use std::{
    io,
    net::{SocketAddr, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use stun_types::{
    attribute::XorMappedAddress,
    message::{
        BINDING, Message, MessageClass, MessageWrite as _, MessageWriteExt as _, MessageWriteVec,
    },
};

use crate::{
    error::{Doing as _, LabError},
    namespace::Namespace,
};

/// Interval at which the server checks whether to end.
const LOOK: Duration = Duration::from_millis(50);

/// A STUN server; ends when dropped.
pub struct StunServer {
    /// Where it listens.
    pub address: SocketAddr,
    is_over: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl StunServer {
    /// Listens in `place`, at `address`.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub fn start(place: &Namespace, address: SocketAddr) -> Result<Self, LabError> {
        let socket = place.run(|| UdpSocket::bind(address))?;
        let step = || place.step("start a STUN server");
        let socket = socket.doing(step())?;
        socket.set_read_timeout(Some(LOOK)).doing(step())?;
        let is_over = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&is_over);
        let serve = move || {
            while !flag.load(Ordering::Relaxed) {
                // Time-outs, and errors of clients that have gone.
                let _ = answer_one(&socket);
            }
        };
        Ok(Self {
            address,
            is_over,
            thread: Some(thread::spawn(serve)),
        })
    }
}

impl Drop for StunServer {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // It does not panic.
        let _ = self.thread.take().map(thread::JoinHandle::join);
    }
}

fn answer_one(socket: &UdpSocket) -> io::Result<()> {
    let mut buffer = [0; 1500];
    let (length, from) = socket.recv_from(&mut buffer)?;
    let Ok(request) = Message::from_bytes(&buffer[..length]) else {
        return Ok(());
    };
    if !request.has_method(BINDING) || !request.has_class(MessageClass::Request) {
        return Ok(());
    }
    let mut answer = Message::builder_success(&request, MessageWriteVec::new());
    let seen = XorMappedAddress::new(from, request.transaction_id());
    if answer.add_attribute(&seen).is_ok() {
        socket.send_to(&answer.finish(), from)?;
    }
    Ok(())
}
