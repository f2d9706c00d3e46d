//! Agents for callers on other hosts.

use std::io::BufReader;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use super::error::Doing as _;
use super::{Scope, TrafficError, agent};

/// A caller takes two; more callers at once would measure each other.
const MOST_CONNECTIONS: usize = 8;

/// Serves each caller of `listener` by an agent of its own that sends traffic only to that caller.
///
/// # Errors
/// When the listener fails; it does not return otherwise.
pub fn serve_connections(listener: &TcpListener) -> Result<(), TrafficError> {
    let slots = Arc::new(());
    loop {
        let (stream, from) = listener.accept().doing("accept a caller")?;
        if Arc::strong_count(&slots) > MOST_CONNECTIONS {
            tracing::warn!(%from, "refused: {MOST_CONNECTIONS} connections are being served");
            continue;
        }
        let slot = Arc::clone(&slots);
        thread::Builder::new()
            .name("agent".to_owned())
            .spawn(move || {
                tracing::info!(%from, "connected");
                match serve_one(&stream) {
                    Ok(()) => tracing::info!(%from, "done"),
                    Err(error) => tracing::warn!(%from, "{error}"),
                }
                drop(slot);
            })
            .doing("start an agent's thread")?;
    }
}

fn serve_one(stream: &TcpStream) -> Result<(), TrafficError> {
    stream.set_nodelay(true).doing("serve a caller")?;
    let local = stream.local_addr().doing("serve a caller")?.ip();
    let peer = stream.peer_addr().doing("serve a caller")?.ip();
    agent::serve(BufReader::new(stream), stream, &Scope::between(local, peer))
}
