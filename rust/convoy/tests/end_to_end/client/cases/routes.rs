//! Routes and rules of a LAN, of other programs and of files that cover too much.
