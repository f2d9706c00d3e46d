//! The vectors of RFC 8439 that apply: whole messages (§2.8.2, A.5), and Poly1305 over whole blocks (A.3).

use convoy_aead::seam::Packet;

use crate::kernels;

#[test]
fn section_2_8_2_is_sealed_as_printed() {
    let packet = || Packet {
        key: std::array::from_fn(|n| 0x80 + n as u8),
        nonce: bytes("070000004041424344454647").try_into().unwrap(),
        aad: &[
            0x50, 0x51, 0x52, 0x53, 0xc0, 0xc1, 0xc2, 0xc3, 0xc4, 0xc5, 0xc6, 0xc7,
        ],
        text: b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip \
            for the future, sunscreen would be it.",
    };
    let ciphertext = bytes(
        "d31a8d34648e60db7b86afbc53ef7ec2a4aded51296e08fea9e2b5a736ee62d6\
         3dbea45e8ca9671282fafb69da92728b1a71de0a9e060b2905d6a5b67ecd3b36\
         92ddbd7f2d778b8c9803aee328091b58fab324e4fad675945585808b4831d7bc\
         3ff4def08e4b7a9de576d26586cec64b6116",
    );
    let tag = bytes("1ae10b594f09e26a7e902ecbd0600691");
    let packets: Vec<_> = (0..16).map(|_| packet()).collect();
    for kernel in kernels() {
        for sealed in kernel.seal(&packets) {
            assert_eq!(
                (sealed.0, sealed.1.to_vec()),
                (ciphertext.clone(), tag.clone())
            );
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "takes a minute")]
fn appendix_a_5_opens_as_printed() {
    let ciphertext = bytes(
        "64a0861575861af460f062c79be643bd5e805cfd345cf389f108670ac76c8cb2\
         4c6cfc18755d43eea09ee94e382d26b0bdb7b73c321b0100d4f03b7f355894cf\
         332f830e710b97ce98c8a84abd0b948114ad176e008d33bd60f982b1ff37c855\
         9797a06ef4f0ef61c186324e2b3506383606907b6a7c02b0f9f6157b53c867e4\
         b9166c767b804d46a59b5216cde7a4e99040c5a40433225ee282a1b0a06c523e\
         af4534d7f83fa1155b0047718cbc546a0d072b04b3564eea1b422273f548271a\
         0bb2316053fa76991955ebd63159434ecebb4e466dae5a1073a6727627097a10\
         49e617d91d361094fa68f0ff77987130305beaba2eda04df997b714d6c6f2c29\
         a6ad5cb4022b02709b",
    );
    let aad = bytes("f33388860000000000004e91");
    let packets: Vec<_> = (0..16)
        .map(|_| Packet {
            key: bytes("1c9240a5eb55d38af333888604f6b5f0473917c1402b80099dca5cbc207075c0")
                .try_into()
                .unwrap(),
            nonce: bytes("000000000102030405060708").try_into().unwrap(),
            aad: &aad,
            text: &ciphertext,
        })
        .collect();
    for kernel in kernels() {
        for (text, tag) in kernel.open(&packets) {
            assert!(text.starts_with(b"Internet-Drafts are draft documents valid for a maximum"));
            assert_eq!(tag.to_vec(), bytes("eead9d67890cbb22392336fea1851f38"));
        }
    }
}

/// r, s, message, tag.
const A_3: [[&str; 4]; 7] = [
    [
        "00000000000000000000000000000000",
        "00000000000000000000000000000000",
        "0000000000000000000000000000000000000000000000000000000000000000",
        "00000000000000000000000000000000",
    ],
    [
        "02000000000000000000000000000000",
        "00000000000000000000000000000000",
        "ffffffffffffffffffffffffffffffff",
        "03000000000000000000000000000000",
    ],
    [
        "02000000000000000000000000000000",
        "ffffffffffffffffffffffffffffffff",
        "02000000000000000000000000000000",
        "03000000000000000000000000000000",
    ],
    [
        "01000000000000000000000000000000",
        "00000000000000000000000000000000",
        "fffffffffffffffffffffffffffffffff0ffffffffffffffffffffffffffffff\
         11000000000000000000000000000000",
        "05000000000000000000000000000000",
    ],
    [
        "01000000000000000000000000000000",
        "00000000000000000000000000000000",
        "fffffffffffffffffffffffffffffffffbfefefefefefefefefefefefefefefe\
         01010101010101010101010101010101",
        "00000000000000000000000000000000",
    ],
    [
        "02000000000000000000000000000000",
        "00000000000000000000000000000000",
        "fdffffffffffffffffffffffffffffff",
        "faffffffffffffffffffffffffffffff",
    ],
    [
        "01000000000000000400000000000000",
        "00000000000000000000000000000000",
        "e33594d7505e43b900000000000000003394d7505e4379cd0100000000000000\
         0000000000000000000000000000000001000000000000000000000000000000",
        "14000000000000005500000000000000",
    ],
];

#[test]
fn appendix_a_3_gives_the_tags_printed() {
    for [r, s, message, tag] in A_3 {
        let key = [bytes(r), bytes(s)].concat().try_into().unwrap();
        for kernel in kernels() {
            let tags = kernel.poly1305(&[key; 16], [&bytes(message); 16]);
            assert_eq!(tags.map(|tag| tag.to_vec()), [(); 16].map(|()| bytes(tag)));
        }
    }
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits = |n| u8::from_str_radix(&hex[n..n + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(digits).collect()
}
