//! The two sides of a proxy.

use crate::network::Network;

/// The networks of clients and targets.
#[derive(Clone, Copy)]
pub(crate) struct Networks<'a> {
    pub(crate) near: &'a dyn Network,
    pub(crate) far: &'a dyn Network,
}
