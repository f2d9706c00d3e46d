//! Namespaces, veth and traffic generators for the speed test, the tests and the benches.

pub mod traffic;
