use std::cell::Cell;

use proptest::{collection::vec, prelude::*};

use super::MssClamp;
use segment::*;

mod segment;

const ON: MssClamp = MssClamp {
    is_on: true,
    mtu: 1420,
};

#[test]
fn a_syn_and_its_answer_announce_what_the_tunnel_carries() {
    for (is_v4, most) in [(true, 1380), (false, 1360)] {
        for flags in [SYN, SYN | ACK] {
            let syn = |mss| Segment {
                is_v4,
                flags,
                ..Segment::announcing(mss)
            };
            for (announced, expected) in [(1460, most), (u16::MAX, most), (most + 1, most)] {
                assert_eq!(clamped(syn(announced).bytes()), syn(expected).bytes());
            }
            for fitting in [0, 1, 536, most - 1, most] {
                unchanged(syn(fitting).bytes());
            }
        }
    }
}

#[test]
fn the_size_follows_the_mtu() {
    for mtu in [68, 1280, 8920, u16::MAX] {
        for (is_v4, headers) in [(true, 40), (false, 60)] {
            let syn = |mss| Segment {
                is_v4,
                ..Segment::announcing(mss)
            };
            let mut packet = syn(u16::MAX).bytes();
            MssClamp { is_on: true, mtu }.apply(&mut packet);
            assert_eq!(packet, syn(mtu - headers).bytes());
        }
    }
}

#[test]
fn nothing_is_clamped_unless_it_is_on_and_the_mtu_carries_a_segment() {
    for (is_on, mtu) in [(false, 1420), (true, 0), (true, 39), (true, 40)] {
        let mut packet = Segment::announcing(1460).bytes();
        MssClamp { is_on, mtu }.apply(&mut packet);
        assert_eq!(packet, Segment::announcing(1460).bytes());
    }
}

#[test]
fn only_segments_with_syn_are_clamped() {
    for flags in [0, ACK, FIN | ACK, RST, !SYN] {
        let other = Segment {
            flags,
            ..Segment::announcing(1460)
        };
        unchanged(other.bytes());
    }
}

#[test]
fn a_syn_without_the_option_does_not_get_one() {
    let options = [vec![], vec![3, 3, 7, NOP], vec![4, 2, NOP, NOP]];
    for options in options {
        unchanged(Segment::with(options).bytes());
    }
}

#[test]
fn the_option_is_found_wherever_it_stands() {
    let cookie = [COOKIE, 7, 1, 2, 3, 4, 5];
    for before in [&[][..], &[NOP], &[NOP, NOP, NOP], &cookie, &[4, 2, 3, 3, 9]] {
        for after in [&[][..], &[NOP, 3, 3, 7], &[END, 2, MSS, 4, 0xff, 0xff]] {
            let option = |mss: u16| [before, &announcement(mss), after].concat();
            let expected = Segment::with(option(1380)).bytes();
            assert_eq!(clamped(Segment::with(option(1460)).bytes()), expected);
        }
    }
}

#[test]
fn every_one_of_several_options_is_clamped() {
    let sizes = |sizes: [u16; 3]| sizes.map(announcement).concat();
    assert_eq!(
        clamped(Segment::with(sizes([1460, 1000, 9000])).bytes()),
        Segment::with(sizes([1380, 1000, 1380])).bytes()
    );
}

#[test]
fn every_checksum_is_updated() {
    // At the odd offset, the lower value counts more.
    for (before, announced, most) in [(&[][..], 1460, 1380), (&[NOP], 0x0600, 0x05ff)] {
        let is_on = true;
        let mtu = most + 40;
        for payload in 0..=u16::MAX {
            let syn = |mss| Segment {
                payload: payload.to_be_bytes().to_vec(),
                ..Segment::with([before, &announcement(mss)].concat())
            };
            let mut packet = syn(announced).bytes();
            MssClamp { is_on, mtu }.apply(&mut packet);
            assert_eq!(packet, syn(most).bytes());
        }
    }
}

#[test]
fn malformed_options_are_left_alone() {
    for options in [
        vec![MSS, 3, 0xff, 0xff],
        vec![MSS, 5, 0xff, 0xff, 0xff],
        vec![MSS, 0, 0xff, 0xff],
        vec![MSS, 1, 0xff, 0xff],
        vec![NOP, MSS, 4, 0xff],
        vec![NOP, NOP, MSS, 4],
        vec![NOP, NOP, NOP, MSS],
        // A receiver stops here and does not find the MSS behind it.
        vec![COOKIE, 1, NOP, NOP, MSS, 4, 0xff, 0xff],
        vec![COOKIE, 60, NOP, NOP, MSS, 4, 0xff, 0xff],
    ] {
        unchanged(Segment::with(options).bytes());
    }
}

#[test]
fn an_authenticated_segment_is_left_alone() {
    let signature = [&[AUTHENTICATION, 16][..], &[9; 14]].concat();
    for options in [
        [&announcement(1460)[..], &signature].concat(),
        [&signature[..], &announcement(1460)].concat(),
    ] {
        unchanged(Segment::with(options).bytes());
    }
    let ipsec = Segment {
        is_v4: false,
        extensions: vec![IPSEC_AUTHENTICATION],
        ..Segment::announcing(1460)
    };
    unchanged(ipsec.bytes());
}

#[test]
fn headers_that_are_cut_short_are_left_alone() {
    for is_v4 in [true, false] {
        let syn = Segment {
            is_v4,
            network_options: 2,
            extensions: vec![DESTINATION],
            ..Segment::announcing(1460)
        };
        let whole = syn.bytes();
        for len in 0..whole.len() {
            unchanged(whole[..len].to_vec());
            if len >= 40 {
                unchanged(claiming(whole[..len].to_vec(), len));
                // Bytes behind the packet, such as padding, are not part of it.
                unchanged(claiming(whole.clone(), len));
            }
        }
        let tcp = whole.len() - 24;
        for words in [0, 4, 7, 15] {
            let mut wrong_offset = whole.clone();
            wrong_offset[tcp + 12] = words << 4;
            unchanged(wrong_offset);
        }
    }
}

#[test]
fn a_fragment_without_the_header_is_left_alone() {
    let mut first = Segment::announcing(1460).bytes();
    first[6] = 0x20;
    let mut later = first.clone();
    (later[6], later[7]) = (0x20, 1);
    unchanged(later);
    assert_ne!(clamped(first.clone()), first);
    let fragment = Segment {
        is_v4: false,
        extensions: vec![FRAGMENT],
        ..Segment::announcing(1460)
    };
    unchanged(fragment.bytes());
}

#[test]
fn extension_headers_are_walked_as_far_as_tcp_may_have_them() {
    let syn = |extensions: &[u8], mss| Segment {
        is_v4: false,
        extensions: extensions.to_vec(),
        ..Segment::announcing(mss)
    };
    let most = [HOP_BY_HOP, DESTINATION, ROUTING, DESTINATION];
    for extensions in (1..=most.len()).map(|n| &most[..n]) {
        assert_eq!(
            clamped(syn(extensions, 1460).bytes()),
            syn(extensions, 1360).bytes()
        );
    }
    unchanged(syn(&[DESTINATION; 5], 1460).bytes());
    // An IPv4 packet has no extension headers.
    let mut v4 = Segment::announcing(1460).bytes();
    v4[9] = DESTINATION;
    unchanged(v4);
}

#[test]
fn encapsulated_packets_are_left_alone() {
    let inner = Segment::announcing(1460).bytes();
    for protocol in [4, 17, 41, 47, 50] {
        let mut outer = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0];
        outer.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        outer.extend(&inner);
        let len = outer.len();
        unchanged(claiming(outer, len));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Compares with the packet that etherparse makes with the expected options: so no other byte may
    /// change, and the checksum must be right.
    #[test]
    fn the_options_are_lowered_and_the_checksum_stays_as_right_as_it_was(
        is_v4: bool,
        flags in prop_oneof![Just(SYN), Just(SYN | ACK), any::<u8>()],
        options in vec(any_option(), 0..6),
        (network_options, extensions) in (0..4_usize, vec(any_extension(), 0..6)),
        payload in vec(any::<u8>(), 0..40),
        (mtu, is_on) in (prop_oneof![Just(1420), any::<u16>()], prop::bool::weighted(0.9)),
        error in prop_oneof![Just(0), any::<u16>()],
        padding in 0..16_usize,
    ) {
        let fitting = Cell::new(40);
        let fits = |option: &&Vec<u8>| {
            fitting.set(fitting.get() - option.len() as i32);
            fitting.get() >= 0
        };
        let options: Vec<_> = options.iter().take_while(fits).cloned().collect();
        let segment = |options: &[Vec<u8>]| {
            let extensions = extensions.clone();
            let segment = Segment {
                is_v4, flags, network_options, extensions, payload: payload.clone(),
                options: options.concat(),
            };
            let mut packet = segment.bytes();
            let checksum = segment.checksum_at();
            packet[checksum] ^= error.to_be_bytes()[0];
            packet[checksum + 1] ^= error.to_be_bytes()[1];
            packet.resize(packet.len() + padding, 0);
            (packet, checksum)
        };
        let headers = if is_v4 { 40 } else { 60 };
        let is_reached = is_v4 || extensions.len() <= 4;
        let is_clamped = is_on && flags & SYN != 0 && is_reached && mtu > headers;
        let most = if is_clamped { mtu - headers } else { u16::MAX };
        let lowered: Vec<_> = options.iter().map(|option| lowered(option, most)).collect();

        let (mut packet, checksum) = segment(&options);
        let was_right = is_right(&packet[..packet.len() - padding]);
        MssClamp { is_on, mtu }.apply(&mut packet);
        let (mut expected, _) = segment(&lowered);
        prop_assert_eq!(is_right(&packet[..packet.len() - padding]), was_right);
        if error != 0 {
            packet[checksum..checksum + 2].fill(0);
            expected[checksum..checksum + 2].fill(0);
        }
        prop_assert_eq!(packet, expected);
    }

    #[test]
    fn any_bytes_keep_their_length_and_are_clamped_once(
        mut packet in vec(any::<u8>(), 0..120),
        header in prop_oneof![Just(0x45), Just(0x46), Just(0x60), any::<u8>()],
        protocol in prop_oneof![Just(6), any_extension(), any::<u8>()],
        is_whole: bool,
    ) {
        if packet.len() >= 40 {
            packet[0] = header;
            packet[if header >> 4 == 4 { 9 } else { 6 }] = protocol;
            if is_whole {
                let len = packet.len();
                packet = claiming(packet, len);
            }
        }
        let once = clamped(packet.clone());
        prop_assert_eq!(once.len(), packet.len());
        prop_assert_eq!(clamped(once.clone()), once);
    }
}

fn any_option() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        any::<u16>().prop_map(|mss| announcement(mss).to_vec()),
        (1300..1500_u16).prop_map(|mss| announcement(mss).to_vec()),
        Just(vec![NOP]),
        Just(vec![MSS, 2]),
        (3..28_u8, vec(any::<u8>(), 0..10))
            .prop_map(|(kind, value)| { [&[kind, value.len() as u8 + 2], &value[..]].concat() }),
    ]
}

fn any_extension() -> impl Strategy<Value = u8> {
    prop::sample::select(vec![HOP_BY_HOP, ROUTING, DESTINATION])
}

fn lowered(option: &[u8], most: u16) -> Vec<u8> {
    match *option {
        [MSS, 4, high, low] => announcement(u16::from_be_bytes([high, low]).min(most)).to_vec(),
        _ => option.to_vec(),
    }
}

fn clamped(mut packet: Vec<u8>) -> Vec<u8> {
    ON.apply(&mut packet);
    packet
}

#[track_caller]
fn unchanged(packet: Vec<u8>) {
    assert_eq!(clamped(packet.clone()), packet);
}
