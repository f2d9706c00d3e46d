//! The connected clients, and the choice of which one to disconnect when there are too many.

use std::{
    io::{self, Read, Write},
    net::Shutdown,
    os::unix::net::UnixStream,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use nix::{
    sys::socket::{getsockopt, sockopt},
    unistd::Pid,
};

/// Bytes of an answer after which the client counts as active again.
const CHUNK: usize = 64 << 10;

/// All connected clients.
#[derive(Debug, Default)]
pub(super) struct Clients(Mutex<Vec<Arc<Connection>>>);

/// One client; dropping it closes the connection.
#[derive(Debug)]
pub(super) struct Client {
    connection: Arc<Connection>,
    clients: Arc<Clients>,
}

#[derive(Debug)]
struct Connection {
    stream: UnixStream,
    /// When the daemon began to wait for the client to write or read; `None` while it works.
    waiting_since: Mutex<Option<Instant>>,
}

impl Clients {
    /// Adds the client of `stream`; each write to it may take `write_time`.
    pub(super) fn admit(
        self: Arc<Self>,
        stream: UnixStream,
        write_time: Duration,
    ) -> io::Result<Client> {
        stream.set_nonblocking(false)?;
        stream.set_write_timeout(Some(write_time))?;
        let waiting_since = Mutex::new(Some(Instant::now()));
        let connection = Arc::new(Connection {
            stream,
            waiting_since,
        });
        lock(&self.0).push(Arc::clone(&connection));
        Ok(Client {
            connection,
            clients: self,
        })
    }

    /// Disconnects the client that the daemon has waited for longest; returns how long that was.
    ///
    /// A client whose request is in progress is left alone.
    pub(super) fn dismiss_one(&self) -> Option<Duration> {
        let clients = lock(&self.0);
        let waiting = clients
            .iter()
            .filter_map(|client| Some(((*lock(&client.waiting_since))?, client)));
        let (since, client) = waiting.min_by_key(|(since, _)| *since)?;
        // If this fails, the client has closed its end already.
        let _ = client.stream.shutdown(Shutdown::Both);
        Some(since.elapsed())
    }
}

impl Client {
    /// Reads once; `time` bounds the wait.
    pub(super) fn read(&self, buffer: &mut [u8], time: Option<Duration>) -> io::Result<usize> {
        let mut stream = &self.connection.stream;
        stream.set_read_timeout(time)?;
        self.connection.wait(|| stream.read(buffer))
    }

    /// The process that has connected; `None` if it cannot be seen from here.
    pub(super) fn process(&self) -> Option<Pid> {
        let credentials = getsockopt(&self.connection.stream, sockopt::PeerCredentials).ok()?;
        (credentials.pid() > 0).then(|| Pid::from_raw(credentials.pid()))
    }

    /// Writes all of `text`.
    pub(super) fn write_all(&self, text: &[u8]) -> io::Result<()> {
        let mut stream = &self.connection.stream;
        text.chunks(CHUNK)
            .try_for_each(|chunk| self.connection.wait(|| stream.write_all(chunk)))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let mut clients = lock(&self.clients.0);
        clients.retain(|other| !Arc::ptr_eq(other, &self.connection));
    }
}

impl Connection {
    fn wait<T>(&self, call: impl FnOnce() -> T) -> T {
        *lock(&self.waiting_since) = Some(Instant::now());
        let outcome = call();
        *lock(&self.waiting_since) = None;
        outcome
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEADLINE: Option<Duration> = Some(Duration::from_secs(20));

    #[test]
    fn the_client_that_was_silent_longest_is_disconnected() {
        let clients = Arc::new(Clients::default());
        let (first, second) = (admit(&clients), admit(&clients));
        assert!(clients.dismiss_one().is_some());
        let mut byte = [0];
        assert_eq!(first.0.read(&mut byte, DEADLINE).unwrap(), 0);
        drop(first);
        (&second.1).write_all(b"x").unwrap();
        assert_eq!(second.0.read(&mut byte, DEADLINE).unwrap(), 1);
    }

    #[test]
    fn a_client_whose_request_is_in_progress_stays() {
        let clients = Arc::new(Clients::default());
        let (client, other_end) = admit(&clients);
        (&other_end).write_all(b"x").unwrap();
        client.read(&mut [0], DEADLINE).unwrap();
        assert!(clients.dismiss_one().is_none());
        drop(client);
        assert!(lock(&clients.0).is_empty());
    }

    fn admit(clients: &Arc<Clients>) -> (Client, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let clients = Arc::clone(clients);
        (clients.admit(ours, Duration::from_secs(1)).unwrap(), theirs)
    }
}
