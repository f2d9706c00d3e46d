//! IP packets, TCP segments, UDP datagrams and ICMP messages: read from bytes and written.
//!
//! The TUN's threads ([`checksum`], [`vnet`]), the engine `convoy-smoltcp` and the gateway call it. It is pure: it opens no
//! socket, reads no clock, keeps no flow and depends on no crate of the workspace.
//! [`counters`] name each reason why a packet is dropped.

pub mod checksum;
pub mod counters;
pub mod datagram;
pub mod icmp;
pub mod packet;
pub mod segment;
pub mod vnet;
