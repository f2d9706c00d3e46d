use super::*;

#[test]
fn the_answer_quotes_the_packet_and_has_right_checksums() {
    let packet = ipv4(1400, 17);
    let answer = too_big(&packet, 1300).unwrap();
    assert_eq!(answer.len(), IPV4_MINIMUM);
    assert_eq!(packet::destination(&answer), packet::source(&packet));
    assert_eq!(answer[20..22], [3, 4]);
    assert_eq!(answer[26..28], 1300u16.to_be_bytes());
    assert_eq!(answer[28..], packet[..IPV4_MINIMUM - 28]);
    assert_eq!(sum(&answer[..20], 0), 0xffff);
    assert_eq!(sum(&answer[20..], 0), 0xffff);
}

#[test]
fn ipv6_has_its_own_message() {
    let packet = ipv6(1401, 17);
    let answer = too_big(&packet, 1300).unwrap();
    assert_eq!(answer.len(), IPV6_MINIMUM);
    assert_eq!(packet::destination(&answer), packet::source(&packet));
    assert_eq!(answer[40], 2);
    assert_eq!(answer[44..48], 1300u32.to_be_bytes());
    let pseudo = u32::from(sum(&answer[8..40], 0)) + (1280 - 40) + 58;
    assert_eq!(sum(&answer[40..], pseudo), 0xffff);
}

#[test]
fn errors_fragments_and_senders_that_allow_fragmentation_get_no_answer() {
    let mut error = ipv4(1400, ICMPV4);
    error[20] = 3;
    assert_eq!(too_big(&error, 1300), None);
    let mut fragment = ipv4(1400, 17);
    fragment[7] = 9;
    assert_eq!(too_big(&fragment, 1300), None);
    let mut lenient = ipv4(1400, 17);
    lenient[6] = 0;
    assert_eq!(too_big(&lenient, 1300), None);
    let mut error = ipv6(1400, ICMPV6);
    error[40] = 1;
    assert_eq!(too_big(&error, 1300), None);
}

#[test]
fn an_error_behind_extension_headers_gets_no_answer() {
    let in_extension = [ICMPV6, 0, 1, 4, 0, 0, 0, 0];
    for (first, extensions) in [
        (0, &[ICMPV6, 0, 5, 2, 0, 0, 0, 0][..]),
        (43, &[60, 1, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2]),
        (FRAGMENT, &[ICMPV6, 0, 0, 1, 7, 7, 7, 7]),
        (FRAGMENT, &[60, 0xff, 0, 1, 7, 7, 7, 7]),
    ] {
        let mut packet = ipv6(1400, first);
        let mut at = IPV6_HEADER + extensions.len();
        packet[IPV6_HEADER..at].copy_from_slice(extensions);
        if extensions[0] == 60 {
            packet[at..at + 8].copy_from_slice(&in_extension);
            at += 8;
        }
        packet[at] = 1;
        assert_eq!(too_big(&packet, 1300), None, "{first}");
        packet[at] = 128;
        assert!(too_big(&packet, 1300).is_some(), "a request behind {first}");
    }
    let mut later_fragment = ipv6(1400, FRAGMENT);
    later_fragment[40..48].copy_from_slice(&[ICMPV6, 0, 0, 9, 7, 7, 7, 7]);
    later_fragment[48] = 1;
    assert!(too_big(&later_fragment, 1300).is_some());
}

#[test]
fn a_destination_without_a_peer_is_unreachable_unless_multicast() {
    let packet = ipv4(100, 17);
    let answer = unreachable(&packet).unwrap();
    assert_eq!(answer[20..22], [3, 1]);
    assert_eq!(answer[24..28], [0; 4]);
    assert_eq!(answer[28..], packet);
    let packet = ipv6(100, 17);
    let answer = unreachable(&packet).unwrap();
    assert_eq!(answer[40..42], [1, 3]);
    assert_eq!(answer[48..], packet);
    let mut multicast = ipv6(100, ICMPV6);
    multicast[40] = 133;
    multicast[24] = 0xff;
    assert_eq!(unreachable(&multicast), None);
}

fn ipv4(len: usize, protocol: u8) -> Vec<u8> {
    let mut packet = vec![7; len];
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&(len as u16).to_be_bytes());
    packet[6..8].copy_from_slice(&[0x40, 0]);
    packet[9] = protocol;
    packet[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    packet
}

fn ipv6(len: usize, protocol: u8) -> Vec<u8> {
    let mut packet = vec![7; len];
    packet[0] = 0x60;
    packet[4..6].copy_from_slice(&((len - 40) as u16).to_be_bytes());
    packet[6] = protocol;
    packet[8..40].fill(0x20);
    packet[39] = 9;
    packet
}
