//! Fuzzes a client: honest, altered, forged and late messages, in any order with what its owner does.

use convoy_fuzz::{Result, Unstructured};

use super::*;

/// Lengths of the time that passes at once, in milliseconds.
const TIMES: [u64; 6] = [0, 10, 600, 3_000, 20_000, 700_000];

#[test]
fn fuzz_turn_messages() {
    convoy_fuzz::run("turn_messages", 200, 600, messages);
}

fn messages(input: &mut Unstructured<'_>) -> Result<()> {
    let mut world = World::new();
    if input.arbitrary()? {
        let server = Server {
            transport: Transport::Stream,
            ..world.client.server()
        };
        world.client = Client::new(server, credentials("secret"));
    }
    world.has = *input.choose(&[Families::BOTH, Families::V4, Families::V6])?;
    world.is_old = input.arbitrary()?;
    let mut peers: Vec<_> = Vec::new();
    let mut seen: Vec<Vec<u8>> = Vec::new();
    for _ in 0..60 {
        if input.is_empty() {
            break;
        }
        match input.int_in_range(0..=9)? {
            0 => {
                let all = [peer(1), peer_v6(), peer(2), peer(3)];
                let first = input.int_in_range(0..=2)?;
                peers = all[first..input.int_in_range(first..=4)?].to_vec();
                world.client.set_peers(&peers, world.now).unwrap();
            }
            1..=3 => {
                let time = Duration::from_millis(*input.choose(&TIMES)?);
                world.run(time);
            }
            4 => world.client.handle_connected(world.now),
            5 => world.client.handle_closed(world.now),
            6 => {
                let message: Vec<u8> = input.arbitrary()?;
                world.client.handle_message(&message, world.now);
            }
            7 => {
                // The server never sees the request; somebody else answers it, or it comes back.
                seen.extend(world.client.poll_transmit());
                if !seen.is_empty() {
                    let mut message = input.choose(&seen)?.clone();
                    message[0] |= input.int_in_range(0..=1)?;
                    for _ in 0..input.int_in_range(0..=3)? {
                        let at = input.choose_index(message.len())?;
                        message[at] = input.arbitrary()?;
                    }
                    world.client.handle_message(&message, world.now);
                }
            }
            8 => world.send(*input.choose(&[peer(1), peer_v6(), peer(4)])?, b"datagram"),
            _ => world.client.renew(world.now),
        }
    }
    let numbers = (0x4000..=0x4FFF).filter_map(crate::ChannelNumber::new);
    for bound in numbers.filter_map(|it| world.client.peer(it)) {
        assert!(peers.contains(&bound), "{bound} was not named");
        let Phase::Ready(relayed) = world.client.phase() else {
            panic!("{bound} has a channel of no allocation");
        };
        assert!(relayed.reaching(bound).is_some(), "{bound}");
    }
    Ok(())
}
