//! What two links of one region do without a port.

use super::*;
use crate::testing::{EVENT, HASH, REPLY, SMALL, client_end, come, server_end};
use crate::{loopback_memory, loopback_wiring};

/// The client's and the server's.
fn links() -> [Link; 2] {
    let [one, two] = loopback_memory(SMALL);
    [client_end(one), server_end(two)]
}

#[test]
fn a_peer_that_says_it_is_awake_is_nudged_once_for_what_it_has_not_read() {
    let [client, server] = links();
    assert!(!server.arm(), "nothing was sent");
    server.write(EVENT, &[]).unwrap();
    assert!(server.arm() && !server.arm());
    server.write(EVENT, &[]).unwrap();
    assert_eq!(come(&client).len(), 2);
    assert!(!server.arm(), "it has read");
    // While a full ring is waited for, each time.
    while server.write(EVENT, &[]).is_ok() {}
    assert!(server.arm() && server.arm());
    come(&client);
    server.write(EVENT, &[]).unwrap();
    server.close();
    assert!(!server.arm(), "it is over");
}

#[test]
fn who_waits_for_an_answer_on_this_core_is_not_nudged_for_it() {
    for remote in [false, true] {
        let [one, two] = loopback_memory(SMALL);
        let client = client_end(one);
        let server = Link::new(Side::Server, Wiring { remote, ..loopback_wiring(two, false) });
        server.bind(HASH);
        server.write(REPLY, &[]).unwrap();
        assert_eq!(server.arm(), remote);
        server.write(EVENT, &[]).unwrap();
        server.write(REPLY, &[]).unwrap();
        assert!(server.arm(), "an event is before it");
        assert_eq!(come(&client), [REPLY, EVENT, REPLY]);
    }
}

#[test]
fn what_was_sent_in_an_earlier_generation_is_not_taken() {
    let [one, two, monitor] = loopback_memory(SMALL);
    let (client, server) = (client_end(one), server_end(two));
    server.write(EVENT, &[]).unwrap();
    monitor.raise_generation();
    assert_eq!(come(&client), []);
    assert_eq!((client.is_closed(), client.change()), (false, Change::Restarted));
}

#[test]
fn a_component_has_one_name_for_all_its_lives_and_a_program_one_for_each() {
    let link = |peer_set| {
        let [one] = loopback_memory(SMALL);
        Link::new(Side::Server, Wiring { peer_set, ..loopback_wiring(one, false) })
    };
    let (component, program) = (link(0), link(3));
    assert!(component.peer_was(0) && !component.peer_was(client_id(3, 1)));
    assert_eq!((program.set(), program.peer_id()), (3, client_id(3, 1)));
    assert!(program.peer_was(client_id(3, 2)) && !program.peer_was(client_id(4, 2)));
    assert!(!program.peer_was(program.peer_id()), "it is there");
    program.close();
    assert!(program.peer_was(program.peer_id()));
}
