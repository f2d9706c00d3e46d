use super::*;
use convoy_packet::vnet::VnetHeader;

#[test]
fn fragments_that_overlap_discard_their_packet_and_doubled_ones_do_not() {
    let counters = Counters::default();
    let mut fragments = Fragments::default();
    let mut add = |offset: usize, part: &[u8], is_last: bool| {
        let (ident, now) = (7, 0);
        let fragment = Fragment {
            ident,
            offset,
            is_last,
        };
        let packet = Packet {
            vnet: VnetHeader::default(),
            bytes: part,
            source: [10, 9, 0, 2].into(),
            destination: [198, 51, 100, 7].into(),
            protocol: 17,
            payload_at: 0,
            fragment: Some(fragment),
        };
        fragments.add(&packet, fragment, 0, now, &counters)
    };
    assert_eq!(add(0, &[1; 16], false), None);
    assert_eq!(add(0, &[1; 16], false), None);
    let whole = add(16, &[2; 8], true).unwrap();
    assert_eq!(whole[20..], [[1; 8], [1; 8], [2; 8]].concat());
    assert_eq!(counters.snapshot().dropped(Dropped::Fragment), 0);
    for (offset, part) in [(8, [3; 16]), (0, [3; 16])] {
        assert_eq!(add(0, &[1; 16], false), None);
        assert_eq!(add(offset, &part, false), None);
        assert_eq!(add(16, &[2; 8], true), None);
        // The last one has begun another packet, which this one discards.
        assert_eq!(add(16, &[4; 8], true), None);
    }
    assert_eq!(counters.snapshot().dropped(Dropped::Fragment), 4);
}
