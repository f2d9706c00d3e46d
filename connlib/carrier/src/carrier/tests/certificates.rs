//! Certificates that must not be accepted, and the words for it.

use rcgen::CustomExtension;

use super::*;

#[tokio::test]
async fn a_certificate_for_another_name_is_refused() {
    let authority = Authority::new();
    let why = refused(&authority, &authority.tls("other.test"), valid()).await;
    assert_eq!(why, Closed::WrongName("other.test".to_owned()));
    assert_eq!(
        why.to_string(),
        "the certificate of other.test is not valid for that name"
    );
}

#[tokio::test]
async fn a_certificate_for_a_name_is_refused_for_an_address() {
    let authority = Authority::new();
    let why = refused(&authority, &authority.tls("127.0.0.1"), valid()).await;
    assert_eq!(why, Closed::WrongName("127.0.0.1".to_owned()));
}

#[tokio::test]
async fn a_certificate_of_an_authority_that_nobody_trusts_is_refused() {
    let stranger = Authority::named("stranger");
    let why = refused(&stranger, &Authority::new().tls(NAME), valid()).await;
    assert_eq!(why, Closed::Untrusted(NAME.to_owned()));
    // Of the same name, but without the key.
    let why = refused(&Authority::new(), &Authority::new().tls(NAME), valid()).await;
    assert!(
        matches!(why, Closed::Untrusted(_) | Closed::Certificate(..)),
        "{why:?}"
    );
}

#[tokio::test]
async fn a_certificate_outside_its_time_is_refused() {
    let authority = Authority::new();
    let mut expired = valid();
    expired.not_before = date_time_ymd(2001, 1, 1);
    expired.not_after = date_time_ymd(2002, 1, 1);
    let why = refused(&authority, &authority.tls(NAME), expired).await;
    assert_eq!(why, Closed::Expired(NAME.to_owned()));
    let mut early = valid();
    early.not_before = date_time_ymd(3001, 1, 1);
    early.not_after = date_time_ymd(3002, 1, 1);
    let why = refused(&authority, &authority.tls(NAME), early).await;
    assert_eq!(why, Closed::NotYetValid(NAME.to_owned()));
}

#[tokio::test]
async fn an_address_in_a_certificate_is_accepted() {
    let authority = Authority::new();
    let (server, _) = serve_tls(&authority, "127.0.0.1", echo);
    let tls = authority.tls("127.0.0.1");
    opened(&mut Carrier::open(server, Some(&tls), None)).await;
}

#[test]
fn a_name_that_no_certificate_can_have_is_refused() {
    let roots = Roots::from_pem(Authority::new().0.pem().as_bytes()).unwrap();
    for name in ["", "a b", "..", "turn:host"] {
        assert_eq!(Tls::new(name, &roots).unwrap_err(), crate::InvalidName);
    }
}

#[tokio::test]
async fn a_chain_of_certificates_is_taken_as_long_as_it_fits_into_a_message() {
    let authority = Authority::new();
    for (length, is_taken) in [(20 << 10, true), (50 << 10, false)] {
        let mut stuffed = CertificateParams::default();
        let stuffing = CustomExtension::from_oid_content(&[1, 3, 6, 1], vec![0; length]);
        stuffed.custom_extensions.push(stuffing);
        let stuffed = stuffed.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let others = vec![stuffed.der().clone(); 2];
        let config = authority.server_with_chain(valid(), others);
        let (server, _) = serve(move |stream| {
            let connection = ServerConnection::new(config).unwrap();
            echo(StreamOwned::new(connection, stream));
        });
        let mut carrier = Carrier::open(server, Some(&authority.tls(NAME)), None);
        if is_taken {
            opened(&mut carrier).await;
        } else {
            let why = closed(&mut carrier).await;
            let expected = "no TLS with relay.test: the server answers with something else";
            assert_eq!(why.to_string(), expected);
        }
    }
}

fn valid() -> CertificateParams {
    CertificateParams::new([NAME.to_owned()]).unwrap()
}

async fn refused(authority: &Authority, tls: &Tls, certificate: CertificateParams) -> Closed {
    let config = authority.server(certificate);
    let (server, heard) = serve(move |stream| {
        let connection = ServerConnection::new(config).unwrap();
        let mut stream = StreamOwned::new(connection, stream);
        stream.read(&mut [0; 100]).is_ok_and(|count| count > 0)
    });
    let mut carrier = Carrier::open(server, Some(tls), None);
    let why = closed(&mut carrier).await;
    assert_eq!(carrier.append(&frame(0, 8)), Err(Full));
    drop(carrier);
    let heard = heard.join().unwrap();
    assert!(!heard, "the server got a frame");
    why
}
