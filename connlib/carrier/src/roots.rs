//! Authorities whose signatures on certificates count.

use std::sync::Arc;

use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
};
use tracing::{debug, warn};

use crate::error::InvalidRoots;

/// Most authorities that a file or the system may name: Debian names 150.
const MAX_ROOTS: usize = 1_000;

/// Authorities.
#[derive(Clone, Debug)]
pub struct Roots(Arc<RootCertStore>);

impl Roots {
    /// Reads the authorities that this system trusts. Without any, all certificates are refused.
    #[must_use]
    pub fn native() -> Self {
        let found = rustls_native_certs::load_native_certs();
        for error in &found.errors {
            debug!("Cannot read a certificate of the system: {error}");
        }
        let mut store = RootCertStore::empty();
        let certificates = found.certs.into_iter().take(MAX_ROOTS);
        let (added, ignored) = store.add_parsable_certificates(certificates);
        debug!(added, ignored, "Authorities of this system");
        if added == 0 {
            warn!("this system trusts no authority (fix: install ca-certificates)");
        }
        Self(Arc::new(store))
    }

    /// Reads the certificates of a file in PEM form, all of them.
    ///
    /// # Errors
    /// [`InvalidRoots`] if there is none, or one cannot be read.
    pub fn from_pem(pem: &[u8]) -> Result<Self, InvalidRoots> {
        let mut store = RootCertStore::empty();
        for (n, certificate) in CertificateDer::pem_slice_iter(pem).enumerate() {
            if n == MAX_ROOTS {
                return Err(InvalidRoots::TooMany(MAX_ROOTS));
            }
            let damaged = InvalidRoots::Damaged(n + 1);
            let certificate = certificate.map_err(|_| damaged.clone())?;
            store.add(certificate).map_err(|_| damaged)?;
        }
        match store.is_empty() {
            true => Err(InvalidRoots::Empty),
            false => Ok(Self(Arc::new(store))),
        }
    }

    pub(crate) fn store(&self) -> Arc<RootCertStore> {
        Arc::clone(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_a_certificate_or_with_a_damaged_one_is_refused() {
        let refused = |pem: &str| Roots::from_pem(pem.as_bytes()).unwrap_err();
        assert_eq!(refused(""), InvalidRoots::Empty);
        assert_eq!(refused("not PEM\n"), InvalidRoots::Empty);
        let key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
        assert_eq!(refused(key), InvalidRoots::Empty);
        let good = certificate();
        for bad in ["AAAA", "!", ""] {
            let bad = format!("-----BEGIN CERTIFICATE-----\n{bad}\n-----END CERTIFICATE-----\n");
            assert_eq!(refused(&bad), InvalidRoots::Damaged(1));
            assert_eq!(refused(&(good.clone() + &bad)), InvalidRoots::Damaged(2));
        }
        let cut = &good[..good.len() / 2];
        assert_eq!(refused(cut), InvalidRoots::Damaged(1));
    }

    #[test]
    fn all_certificates_of_a_file_count() {
        let pem = format!("# a comment\n{}{}", certificate(), certificate());
        let roots = Roots::from_pem(pem.as_bytes()).unwrap();
        assert_eq!(roots.store().len(), 2);
    }

    #[test]
    fn more_certificates_than_any_system_has_are_refused() {
        let pem = certificate().repeat(MAX_ROOTS + 1);
        let refused = Roots::from_pem(pem.as_bytes()).unwrap_err();
        assert_eq!(refused, InvalidRoots::TooMany(MAX_ROOTS));
    }

    fn certificate() -> String {
        let authority = rcgen::generate_simple_self_signed(["test".to_owned()]).unwrap();
        authority.cert.pem()
    }
}
