//! One stream to a TURN server, over TCP or TLS: whole frames in, whole frames out, and nothing that waits.
//!
//! ```text
//!  append ──▶ outbound buffer ──flush──▶ TLS records ──▶ socket
//!  frames ◀── inbound buffer ◀─receive── TLS records ◀── socket
//! ```
//!
//! The driving loop of whoever owns the runtime and its thread:
//! 1. [`Carrier::open`]. It cannot fail at once: a failure closes the stream.
//! 2. Each tick, [`Carrier::receive`] connects, shakes hands and reads, as far as this is possible now.
//! 3. Take [`Carrier::frames`] and [`Carrier::advance`]; then, if [`Carrier::phase`] is [`Phase::Closed`], drop it.
//! 4. [`Carrier::append`] frames: they wait until [`Carrier::flush`] sends them, many by one call and one record.
//! 5. If a tick found nothing to do, wait for [`Carrier::ready`].
//!
//! All of it runs on the event loop's own thread. A handshake costs one to two milliseconds, once. Sealing and opening
//! are bounded by the buffers: at 1 GB/s, [`MAX_OUTBOUND`] takes a quarter of a millisecond. A thread of its own would
//! cost two wake-ups for each of them. Only the firewall mark is set on another thread, as another process may have to
//! do so.
//!
//! The event loop of a tunnel may call it. It connects to the address that it is given, and to no other; it looks up no
//! name, reads no file but in [`Roots::native`], and knows nothing of TURN beyond the length of a frame. Certificates
//! are always verified. Deliberately absent: timers (a relay's client has them), client certificates, resumption of TLS
//! sessions, whose secrets would outlive the stream.

mod carrier;
mod error;
mod inbound;
mod opening;
mod outbound;
mod records;
mod roots;
mod socket;
mod tls;
mod wire;

pub use carrier::{Carrier, Left, Phase};
pub use error::{Closed, InvalidName, InvalidRoots};
pub use inbound::MAX_INBOUND;
pub use opening::Prepare;
pub use outbound::{Full, MAX_OUTBOUND};
pub use roots::Roots;
pub use tls::Tls;

/// Upper bound of a stream's buffers, in bytes.
pub const STREAM_BYTES: usize = MAX_INBOUND + MAX_OUTBOUND + wire::BUFFER_BYTES;
