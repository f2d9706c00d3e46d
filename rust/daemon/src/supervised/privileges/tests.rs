use std::{
    net::{TcpListener, UdpSocket},
    thread,
};

use super::*;

/// Far longer than anything here takes.
const LONG: Duration = Duration::from_secs(20);

const MARK: u32 = 7;

#[test]
fn without_a_supervisor_only_a_mark_is_waited_for_and_not_for_long() {
    let privileges = SupervisorsPrivileges::new().with_time(LONG);
    let socket = socket();
    privileges.prepare(&[socket.as_fd()], 0).unwrap();
    let privileges = privileges.with_time(Duration::from_millis(1));
    let refused = privileges.prepare(&[socket.as_fd()], MARK).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::TimedOut);
    assert!(refused.to_string().contains("(fix: "), "{refused}");
}

#[test]
fn the_next_supervisor_answers_what_the_former_one_has_left() {
    let privileges = SupervisorsPrivileges::new().with_time(LONG);
    let former = privileges.another().unwrap();
    let asking = thread::spawn({
        let privileges = privileges.clone();
        move || privileges.prepare(&[socket().as_fd()], MARK)
    });
    assert_eq!(asked(&former).1, 1, "one socket");
    drop(former);
    let next = privileges.another().unwrap();
    let (id, _) = asked(&next);
    // To somebody who has stopped waiting.
    say(&next, id - 1, None);
    say(&next, id, Some(libc::ENOSPC));
    let refused = asking.join().unwrap().unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::ENOSPC));
}

#[test]
fn a_supervisor_that_hangs_costs_the_time_and_serves_later() {
    let privileges = SupervisorsPrivileges::new().with_time(Duration::from_millis(1));
    let line = privileges.another().unwrap();
    let socket = socket();
    // Its buffers grow without anybody's help.
    privileges.prepare(&[socket.as_fd()], 0).unwrap();
    let refused = privileges.prepare(&[socket.as_fd()], MARK).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::TimedOut);
    let privileges = privileges.with_time(LONG);
    let asking = thread::spawn(move || privileges.prepare(&[socket.as_fd()], MARK));
    for _ in 0..3 {
        say(&line, asked(&line).0, None);
    }
    asking.join().unwrap().unwrap();
}

#[test]
fn a_request_that_fails_leaves_the_supervisor_to_later_ones() {
    let privileges = SupervisorsPrivileges::new().with_time(LONG);
    let line = privileges.another().unwrap();
    let sockets = [socket()];
    let too_many = [sockets[0].as_fd(); descriptors::MOST + 1];
    let quick = privileges.clone().with_time(Duration::from_millis(1));
    let refused = quick.prepare(&too_many, MARK).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
    let asking = thread::spawn(move || privileges.prepare(&[sockets[0].as_fd()], MARK));
    say(&line, asked(&line).0, None);
    asking.join().unwrap().unwrap();
}

#[test]
fn only_a_closed_line_is_given_up() {
    let errors = [libc::EPIPE, libc::ECONNRESET, libc::ENOBUFS, libc::ENOMEM];
    let given_up = errors.map(|errno| is_closed(&io::Error::from_raw_os_error(errno)));
    assert_eq!(given_up, [true, true, false, false]);
    assert!(is_closed(&io::ErrorKind::UnexpectedEof.into()));
}

#[test]
fn threads_that_ask_at_once_each_get_their_own_answer() {
    const THREADS: usize = 4;
    const WISHES: usize = 50;
    let privileges = SupervisorsPrivileges::new().with_time(LONG);
    let line = privileges.another().unwrap();
    let asking = (0..THREADS).map(|_| {
        let privileges = privileges.clone();
        thread::spawn(move || {
            let socket = TcpListener::bind("127.0.0.1:0").unwrap();
            (0..WISHES).try_for_each(|_| privileges.prepare_stream(socket.as_fd(), MARK))
        })
    });
    let asking: Vec<_> = asking.collect();
    for _ in 0..THREADS * WISHES {
        say(&line, asked(&line).0, None);
    }
    for thread in asking {
        thread.join().unwrap().unwrap();
    }
}

#[test]
fn forgetting_an_mtu_never_waits() {
    let privileges = SupervisorsPrivileges::new().with_time(LONG);
    let flow = Flow {
        to: ([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1], 7).into(),
        source: (None, 9),
        mark: MARK,
    };
    privileges.forget_learnt_mtu(&flow);
    let _line = privileges.another().unwrap();
    // More than there is room for.
    for _ in 0..10_000 {
        privileges.forget_learnt_mtu(&flow);
    }
}

fn socket() -> UdpSocket {
    UdpSocket::bind("127.0.0.1:0").unwrap()
}

/// Waits for a wish; returns its number and how many sockets came with it.
fn asked(line: &OwnedFd) -> (u64, usize) {
    let deadline = Instant::now() + LONG;
    let mut buffer = [0; MAX_BYTES];
    await_ready(line, PollFlags::IN, deadline).unwrap();
    let (length, sockets) = descriptors::receive(line, &mut buffer).unwrap();
    match serde_json::from_slice(&buffer[..length]).unwrap() {
        Wish::Prepare { id, .. } | Wish::PrepareStream { id, .. } => (id, sockets.unwrap().len()),
        wish => panic!("{wish:?}"),
    }
}

fn say(line: &OwnedFd, id: u64, error: Option<i32>) {
    let answer = serde_json::to_vec(&Prepared { id, error }).unwrap();
    send(line, &answer, SendFlags::NOSIGNAL).unwrap();
}
