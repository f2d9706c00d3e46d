//! Closes a connection whose client may still be sending.

use std::time::Duration;

use convoy_network::Stream;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};

/// Time limit for a client to read its last answer.
const LIMIT: Duration = Duration::from_secs(2);
/// Most bytes that it may send meanwhile.
const MOST_BYTES: usize = 1 << 20;

/// Ends this side, and discards what the client sends until it has ended its own: bytes that are left unread when a
/// socket is closed become a reset, which can overtake the last answer (RFC 9112, section 9.6).
pub(crate) async fn close(mut client: Stream) {
    let discard = async {
        client.shutdown().await?;
        let mut buffer = vec![0; 8 << 10];
        let mut discarded = 0;
        while discarded < MOST_BYTES {
            match client.read(&mut buffer).await? {
                0 => break,
                read => discarded += read,
            }
        }
        std::io::Result::Ok(())
    };
    // Whatever comes of it, the connection ends.
    let _ = timeout(LIMIT, discard).await;
}
