//! Certificates of authorities in PEM form.

use std::{fmt, ops::Deref, sync::Arc};

use rustls_pki_types::{CertificateDer, TrustAnchor, pem::PemObject as _};
use webpki::anchor_from_trusted_cert;

/// Most certificates of authorities in a file. Debian's bundle has 150.
const MAX_AUTHORITIES: usize = 1_000;
/// Most bytes that the names and keys of a file's authorities have together, which is all that a tunnel keeps of them.
/// Debian's have 68 KiB. `convoy-carrier` takes as many, and a message to a tunnel has room for those of eight servers.
const MAX_ANCHOR_BYTES: usize = 80 << 10;
/// Room in bytes for the lengths of an authority's fields.
const ANCHOR_HEADER: usize = 16;

/// Certificates in PEM form, each of which can be an authority's.
#[derive(Clone, PartialEq, Eq)]
pub struct Certificates(Arc<[u8]>);

impl Certificates {
    /// Checks that there is a certificate, and that a tunnel can keep all of them.
    ///
    /// # Errors
    /// The reason in words: there is none, one is damaged, or they are too many or too long.
    pub(crate) fn new(pem: &[u8]) -> Result<Self, String> {
        let (mut count, mut bytes) = (0_usize, 0);
        for certificate in CertificateDer::pem_slice_iter(pem) {
            count += 1;
            if count > MAX_AUTHORITIES {
                return Err(format!(
                    "this file has more than {MAX_AUTHORITIES} certificates"
                ));
            }
            let damaged = || format!("certificate {count} of this file is damaged");
            let certificate = certificate.map_err(|_| damaged())?;
            let anchor = anchor_from_trusted_cert(&certificate).map_err(|_| damaged())?;
            bytes += anchor_bytes(&anchor);
        }
        if count == 0 {
            let label = "expected a certificate in PEM form (-----BEGIN CERTIFICATE-----)";
            return Err(label.to_owned());
        }
        if bytes > MAX_ANCHOR_BYTES {
            let label = "the names and keys of its certificates have more than";
            return Err(format!("{label} {MAX_ANCHOR_BYTES} bytes together"));
        }
        Ok(Self(Arc::from(pem)))
    }
}

impl Deref for Certificates {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Certificates({} bytes)", self.0.len())
    }
}

/// Number of bytes that a tunnel keeps of an authority.
fn anchor_bytes(anchor: &TrustAnchor<'_>) -> usize {
    let constraints = anchor.name_constraints.as_ref().map_or(0, |it| it.len());
    ANCHOR_HEADER + anchor.subject.len() + anchor.subject_public_key_info.len() + constraints
}
