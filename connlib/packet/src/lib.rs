//! IP packets, TCP segments, UDP datagrams and ICMP messages: read from bytes and written.
//!
//! The engine `convoy-smoltcp` and the gateway call it. It is pure: it opens no socket, reads no clock and keeps no flow.
//! [`counters`] name each reason why a packet is dropped.

pub mod counters;
pub mod datagram;
pub mod icmp;
pub mod packet;
pub mod segment;
pub use convoy_tun::vnet;
