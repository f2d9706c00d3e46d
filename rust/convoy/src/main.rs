//! The daemon and its tools.
fn main() {}
