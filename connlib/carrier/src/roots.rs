//! Authorities whose signatures on certificates count.

use std::sync::Arc;

use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, Der, TrustAnchor, pem::PemObject},
};
use tracing::{debug, warn};

use crate::error::InvalidRoots;

/// Most authorities that a file or the system may name: Debian names 150.
const MAX_ROOTS: usize = 1_000;

/// Longest list of authorities, in bytes of [`Roots::to_bytes`]: Debian's is 68 KiB. A tunnel may have eight.
const MAX_ROOTS_BYTES: usize = 80 << 10;

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
        let left_out = keep_what_fits(&mut store);
        debug!(added, ignored, "Authorities of this system");
        if left_out > 0 {
            warn!(
                "{left_out} authorities of this system are left out, as they are too long together \
                 (fix: name those of a TURN server by `CaFile = PATH`)"
            );
        }
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
        let bytes: usize = store.roots.iter().map(written_bytes).sum();
        match bytes {
            0 => Err(InvalidRoots::Empty),
            1..=MAX_ROOTS_BYTES => Ok(Self(Arc::new(store))),
            _ => Err(InvalidRoots::TooLong),
        }
    }

    /// Writes the authorities for [`Self::from_bytes`], in another process of the same program.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for anchor in &self.0.roots {
            let constraints = anchor.name_constraints.as_ref();
            let fields = [
                Some(anchor.subject.as_ref()),
                Some(anchor.subject_public_key_info.as_ref()),
                constraints.map(AsRef::as_ref),
            ];
            for field in fields {
                // Without constraints, the field is absent, which an empty one is not.
                bytes.push(u8::from(field.is_some()));
                let field = field.unwrap_or_default();
                bytes.extend_from_slice(&(field.len() as u32).to_be_bytes());
                bytes.extend_from_slice(field);
            }
        }
        bytes
    }

    /// Reads what [`Self::to_bytes`] has written; `None` if it is something else.
    #[must_use]
    pub fn from_bytes(mut bytes: &[u8]) -> Option<Self> {
        let mut store = RootCertStore::empty();
        while !bytes.is_empty() {
            store.roots.push(TrustAnchor {
                subject: Der::from(take_field(&mut bytes)??.to_vec()),
                subject_public_key_info: Der::from(take_field(&mut bytes)??.to_vec()),
                name_constraints: take_field(&mut bytes)?.map(|it| Der::from(it.to_vec())),
            });
        }
        Some(Self(Arc::new(store)))
    }

    pub(crate) fn store(&self) -> Arc<RootCertStore> {
        Arc::clone(&self.0)
    }
}

/// Removes the authorities for which there is no room, and returns their number.
fn keep_what_fits(store: &mut RootCertStore) -> usize {
    let (mut bytes, all) = (0, store.len());
    store.roots.retain(|anchor| {
        bytes += written_bytes(anchor);
        bytes <= MAX_ROOTS_BYTES
    });
    all - store.len()
}

/// Number of bytes that an authority takes in [`Roots::to_bytes`].
fn written_bytes(anchor: &TrustAnchor<'_>) -> usize {
    let constraints = anchor.name_constraints.as_ref().map_or(0, |it| it.len());
    3 * (1 + 4) + anchor.subject.len() + anchor.subject_public_key_info.len() + constraints
}

/// Takes a field off the front, which may be absent; `None` if the bytes are no field.
fn take_field<'a>(bytes: &mut &'a [u8]) -> Option<Option<&'a [u8]>> {
    let (&[presence, l0, l1, l2, l3], rest) = bytes.split_first_chunk()?;
    let len = usize::try_from(u32::from_be_bytes([l0, l1, l2, l3])).ok()?;
    let (field, rest) = rest.split_at_checked(len)?;
    *bytes = rest;
    Some((presence == 1).then_some(field))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn authorities_survive_their_way_to_another_process() {
        let pem = format!("{}{}", certificate(), certificate());
        let roots = Roots::from_pem(pem.as_bytes()).unwrap();
        let bytes = roots.to_bytes();
        let arrived = Roots::from_bytes(&bytes).unwrap();
        assert_eq!(arrived.store().roots, roots.store().roots);
        let written: usize = roots.store().roots.iter().map(written_bytes).sum();
        assert_eq!(written, bytes.len());
        assert_eq!(Roots::from_bytes(&[]).unwrap().store().len(), 0);
        for cut in 1..bytes.len() {
            let part = Roots::from_bytes(&bytes[..cut]);
            assert!(part.is_none_or(|it| it.store().len() == 1), "{cut}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_reading_authorities_panic(
            bytes in prop::collection::vec(prop_oneof![0..3_u8, any::<u8>()], 0..64)
        ) {
            let _ = Roots::from_bytes(&bytes);
        }
    }

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
        let pem = certificate().repeat(MAX_ROOTS);
        let refused = Roots::from_pem(pem.as_bytes()).unwrap_err();
        assert_eq!(refused, InvalidRoots::TooLong);
    }

    #[test]
    fn authorities_beyond_the_room_are_left_out_and_counted() {
        let mut store = RootCertStore::clone(&Roots::from_pem(certificate().as_bytes()).unwrap().0);
        assert_eq!(keep_what_fits(&mut store), 0);
        let one = store.roots[0].clone();
        let room = MAX_ROOTS_BYTES / written_bytes(&one);
        store.roots = vec![one; room + 3];
        assert_eq!(keep_what_fits(&mut store), 3);
        assert_eq!(store.len(), room);
    }

    fn certificate() -> String {
        let authority = rcgen::generate_simple_self_signed(["test".to_owned()]).unwrap();
        authority.cert.pem()
    }
}
