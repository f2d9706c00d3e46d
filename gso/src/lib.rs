//! The GSO queue and the UDP sockets it is flushed to.
