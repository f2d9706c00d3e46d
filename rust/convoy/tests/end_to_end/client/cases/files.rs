//! Configuration files, keys, name servers and messages.
