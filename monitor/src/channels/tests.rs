//! Channels: sizes, bits, who is notified, and what an end may do with what it is given.

use alloc::vec::Vec;

use abi::start::kind;
use abi::{Handle, PAGE_BYTES, Rights};
use channel::Layout;
use contracts::monitor::{ChannelPlan, End, MonitorError, Place};

use crate::tests::fake::{registry, wire};
use crate::tests::made::{found, made, plain};

#[test]
fn a_channel_is_as_large_as_its_plan_says() {
    let mut registry = registry(0);
    let layout = Layout { ring_slots: 16, bulk_bytes: 3 * 4096 };
    let plan = ChannelPlan { ring_slots: 16, bulk_bytes: 3 * 4096, ..wire(1, 0, 0) };
    registry.open(plan.clone(), None).map_err(|_| ()).unwrap();
    let segment = registry.channels[&1].segment;
    assert_eq!(registry.machine.segments[&segment.0], layout.bytes() / PAGE_BYTES);
    let id = made(&mut registry, plain("driver", &[(1, End::Server)]));
    let found = found(&registry, id);
    let record = found.record(kind::CHANNEL, "network");
    let shown = found.at(record.address);
    let told = (record.bytes, shown.pages * PAGE_BYTES, shown.segment, shown.protection);
    assert_eq!(told, (layout.bytes(), layout.bytes(), segment, 3));
    registry.open(ChannelPlan { id: 2, ..plan.clone() }, None).map_err(|_| ()).unwrap();
    assert_eq!(registry.announce(2, 0).unwrap().1.bytes, layout.bytes());
    // Between cores the client's borrows as much.
    let mut far = self::registry(1);
    let plan = ChannelPlan { client_core: 1, ..plan };
    far.open(plan, Some(Place { physical: 0x7000, slot: 3 })).map_err(|_| ()).unwrap();
    assert_eq!(far.machine.imported, [(0x7000, layout.bytes() / PAGE_BYTES)]);
}

#[test]
fn channels_of_other_cores_and_those_that_are_too_large_are_refused() {
    let mut registry = registry(0);
    let most = (16 << 20) - Layout::default().bytes() as u32;
    let plan = |id, bulk_bytes| ChannelPlan { bulk_bytes, ..wire(id, 0, 0) };
    let refused =
        [wire(1, 1, 1), plan(1, most + 1), plan(1, u32::MAX), ChannelPlan { bulk_bytes: most + 1, ..wire(1, 0, 1) }];
    for plan in refused {
        assert!(matches!(registry.open(plan, None), Err(MonitorError::NotFound)));
    }
    assert!(registry.is_empty() && registry.machine.held.is_empty());
    registry.open(plan(1, most), None).map_err(|_| ()).unwrap();
    // The same again is fine; another of that number is not.
    assert!(registry.open(plan(1, most), None).is_ok());
    assert!(matches!(registry.open(plan(1, 0), None), Err(MonitorError::Busy)));
}

#[test]
fn bits_are_counted_by_their_owner() {
    let mut registry = registry(0);
    let owned =
        |id, client: &str, server: &str| ChannelPlan { client: client.into(), server: server.into(), ..wire(id, 0, 0) };
    for (id, client, server) in [(1, "a", "b"), (2, "c", "d"), (3, "c", "b")] {
        registry.open(owned(id, client, server), None).map_err(|_| ()).unwrap();
    }
    // Its name is the same as one of another core.
    registry
        .open(ChannelPlan { server_core: 1, ..owned(4, "d", "a") }, Some(Place::default()))
        .map_err(|_| ())
        .unwrap();
    registry.open(owned(5, "e", "a"), None).map_err(|_| ()).unwrap();
    let bits = |id: u64| registry.channels[&id].halves.each_ref().map(|half| half.portal.map_or(0, |(_, badge)| badge));
    assert_eq!([1, 2, 3, 4, 5].map(bits), [[2, 2], [2, 2], [4, 4], [4, 0], [2, 4]]);
    assert!(registry.machine.own_portals.is_empty());
    // The monitor's own lead to itself.
    registry.open(owned(6, "monitor", "names"), None).map_err(|_| ()).unwrap();
    let [client, server] = registry.channels[&6].halves.each_ref().map(|half| half.portal.unwrap().0);
    assert!(registry.machine.own_portals.contains(&client.0) && !registry.machine.own_portals.contains(&server.0));
}

#[test]
fn the_other_core_is_learned_once() {
    let mut registry = registry(1);
    let there = Some(Place { physical: 0, slot: 9 });
    for place in [None, there, there] {
        registry.open(wire(1, 0, 1), place).map_err(|_| ()).unwrap();
    }
    assert_eq!(registry.machine.remotes, [(0, 9)]);
}

#[test]
fn who_holds_an_end_is_rung_when_the_channel_is_closed() {
    let mut registry = registry(0);
    for id in 1..4 {
        registry.open(wire(id, 0, 0), None).map_err(|_| ()).unwrap();
    }
    let own = ChannelPlan { server: "monitor".into(), ..wire(4, 0, 0) };
    registry.open(own, None).map_err(|_| ()).unwrap();
    let ip = made(&mut registry, plain("ip", &[(1, End::Client), (2, End::Client)]));
    let portals = |id: u64| registry.channels[&id].halves.each_ref().map(|half| half.portal.unwrap().0.0);
    let (held, monitors) = (portals(1), portals(4));
    for (id, notified) in [(1, Some(held[0])), (3, None), (4, Some(monitors[1]))] {
        registry.machine.notified.clear();
        let memory = registry.machine.memory.get_mut(&registry.channels[&id].segment.0).and_then(Vec::pop).unwrap();
        registry.close(id);
        assert_eq!(registry.machine.notified, Vec::from_iter(notified), "channel {id}");
        assert_eq!(memory.is_ended(), notified.is_some());
    }
    assert_eq!(registry.domains[&ip].channels, [(2, End::Client)], "it has the other still");
}

#[test]
fn of_calls_the_client_may_call_and_wait_and_the_server_lead_and_raise() {
    let mut registry = registry(0);
    registry.open(ChannelPlan { worker: Some(3), ..wire(7, 0, 0) }, None).map_err(|_| ()).unwrap();
    let [server, client] = [("driver", End::Server), ("ip", End::Client)].map(|(name, end)| {
        let id = made(&mut registry, plain(name, &[(7, end)]));
        let found = found(&registry, id);
        let record = found.record(kind::CALLS, "network");
        let shown = found.at(record.address);
        assert_eq!((shown.pages, record.bytes, shown.protection), (1, PAGE_BYTES, 3));
        let domain = registry.domains[&id].parts.domain;
        let rights = [record.handle, record.a].map(|handle| {
            let is_it = |(into, source, _): &&(Handle, Handle, Rights)| *into == domain && source.0 == handle;
            registry.machine.granted.iter().find(is_it).unwrap().2
        });
        (shown.segment, rights)
    });
    assert_eq!(server, (client.0, [Rights::CONTROL.union(Rights::CALL), Rights::WRITE]));
    assert_eq!(client.1, [Rights::CALL, Rights::READ]);
}
