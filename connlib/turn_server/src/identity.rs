//! The certificate of a TURN server, and the authority that has signed it.

use std::{fmt, sync::Arc};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
};

/// A server's certificate.
#[derive(Clone)]
pub struct RelayIdentity {
    /// The authority's certificate in PEM form.
    pub authority: String,
    /// The server's certificate in PEM form.
    pub certificate: String,
    /// Its private key in PEM form.
    pub key: String,
    config: Arc<ServerConfig>,
}

impl RelayIdentity {
    /// Makes an authority, and a certificate for the host `name`, which may be an address.
    ///
    /// # Errors
    /// The reason in words: `name` is none.
    pub fn new(name: &str) -> Result<Self, String> {
        Self::make(name).map_err(|error| error.to_string())
    }

    fn make(name: &str) -> Result<Self, Box<dyn std::error::Error>> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let names = &mut params.distinguished_name;
        names.push(DnType::CommonName, "authority of the lab");
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let key = KeyPair::generate()?;
        let certificate = CertificateParams::new([name.to_owned()])?.signed_by(&key, &authority)?;
        let pem = key.serialize_pem();
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)?;
        Ok(Self {
            authority: authority.pem(),
            certificate: certificate.pem(),
            key: pem,
            config: Arc::new(config),
        })
    }

    pub(super) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config)
    }
}

impl fmt::Debug for RelayIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RelayIdentity")
    }
}
