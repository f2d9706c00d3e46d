//! How a server must prove its name.

use std::{fmt, sync::Arc};

use rustls::{
    ClientConfig, ClientConnection, client::Resumption, crypto::ring, pki_types::ServerName,
};

use crate::{
    error::{Closed, InvalidName},
    roots::Roots,
};

/// The name of a server, and the authorities that may vouch for it. Cheap to clone.
#[derive(Clone)]
pub struct Tls {
    name: ServerName<'static>,
    config: Arc<ClientConfig>,
}

impl Tls {
    /// Asks for a certificate for `name`, a host's name or address, by one of `roots`.
    ///
    /// # Errors
    /// [`InvalidName`].
    pub fn new(name: &str, roots: &Roots) -> Result<Self, InvalidName> {
        let server_name = ServerName::try_from(name.to_owned()).map_err(|_| InvalidName)?;
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        // The provider has cipher suites for both versions.
        let builder = builder.with_safe_default_protocol_versions();
        let builder = builder.map_err(|_| InvalidName)?;
        let mut config = builder
            .with_root_certificates(roots.store())
            .with_no_client_auth();
        config.resumption = Resumption::disabled();
        Ok(Self {
            name: server_name,
            config: Arc::new(config),
        })
    }

    pub(crate) fn name(&self) -> String {
        self.name.to_str().into_owned()
    }

    pub(crate) fn connection(self) -> Result<ClientConnection, Closed> {
        let Self { name, config } = self;
        let words = name.to_str().into_owned();
        ClientConnection::new(config, name).map_err(|error| Closed::tls(&words, &error))
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tls").field(&self.name).finish()
    }
}
