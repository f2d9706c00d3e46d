//! Certificates of authorities in PEM form.

use rustls_pki_types::{CertificateDer, pem::PemObject as _};
use webpki::anchor_from_trusted_cert;

/// Checks that there is a certificate, and that each can be an authority's.
///
/// # Errors
/// The reason in words: there is none, or one is damaged.
pub(crate) fn check_authorities(pem: &[u8]) -> Result<(), String> {
    let mut count = 0_usize;
    for certificate in CertificateDer::pem_slice_iter(pem) {
        count += 1;
        let is_good = certificate.is_ok_and(|it| anchor_from_trusted_cert(&it).is_ok());
        if !is_good {
            return Err(format!("certificate {count} of this file is damaged"));
        }
    }
    if count == 0 {
        let label = "expected a certificate in PEM form (-----BEGIN CERTIFICATE-----)";
        return Err(label.to_owned());
    }
    Ok(())
}
