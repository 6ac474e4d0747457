//! Domains of Linux programs: when they are made, and what becomes of their channels.

use super::*;

/// How long one waits for the components.
const READY_LIMIT_NS: u64 = 30 * SECOND_NS;

/// Linux programs have channels to two servers.
fn begin_linux(fake: &Rc<Fake>) -> (Rc<Service>, SpawnClient) {
    fake.counts.set(true);
    fake.console.set(Some(1));
    begin_with(fake, system_of(vec![on(0, "fs", &[]), on(0, CONSOLE, &[])], &["fs", CONSOLE]), 1)
}

fn created(number: u32) -> Call {
    Call::Create(0, format!("linux-{number}"), 1, 768)
}

/// The supervisor says so, on a channel of its own.
#[test]
fn a_program_waits_until_the_components_are_ready() {
    runtime::testing::run(async {
        let fake = Rc::new(Fake::default());
        let (service, client) = begin(&fake);
        let (supervisor, served) = channel::loopback(Layout::default());
        runtime::spawn(serve_spawn(Rc::new(Shared(service)), served));
        let mut program = client.linux(None, None, 0);
        // The executor wakes all tasks after the first wait, and none after the second.
        for waited_ns in [READY_LIMIT_NS - SECOND_NS, MAKING_NS] {
            assert!(runtime::timeout(waited_ns, &mut program).await.is_err());
        }
        assert_eq!(fake.calls.take(), []);
        SpawnClient::new(supervisor).ready().unwrap();
        let answer = runtime::timeout(2 * MAKING_NS, program).await;
        assert_eq!(answer.map(|made| made.map(|made| made.domain)), Ok(Ok(MADE)));
    });
}

#[test]
fn a_program_does_not_wait_for_ever() {
    runtime::testing::run(async {
        let fake = Rc::new(Fake::default());
        let (_, client) = begin(&fake);
        let begun_ns = runtime::now_ns();
        let refused = runtime::timeout(2 * READY_LIMIT_NS, client.linux(None, None, 0)).await;
        assert!(matches!(refused, Ok(Err(CallError::Server(SpawnError::Failed)))), "{refused:?}");
        assert!(runtime::now_ns() - begun_ns >= READY_LIMIT_NS);
        assert_eq!(fake.calls.take(), []);
    });
}

#[test]
fn no_two_sets_have_a_channel_number_in_common() {
    runtime::testing::run(async {
        let fake = Rc::new(Fake::default());
        let (_, client) = begin_linux(&fake);
        client.ready().unwrap();
        for number in 1..=3 {
            assert!(client.linux(None, None, 0).await.is_ok());
            let ids = [2, 3].map(|use_of| wiring::RUN_TIME_CHANNELS + 2 * (u64::from(number) - 1) + use_of);
            let opened = ids.map(|id| Call::Open(0, id, None));
            let brought = ids.map(|id| Call::Announce(0, id, number));
            assert_eq!(fake.calls.take(), [&opened[..], &brought, &[created(number)]].concat());
        }
    });
}

/// A fork that comes after a program ended makes no channels.
#[test]
fn the_channels_of_a_program_that_ended_serve_the_next() {
    runtime::testing::run(async {
        let fake = Rc::new(Fake::default());
        let (service, client) = begin_linux(&fake);
        client.ready().unwrap();
        let first = client.linux(None, None, 0).await.unwrap().domain;
        fake.calls.take();
        service.clone().domain_died(death(first, 0, 0)).await;
        assert_eq!(fake.calls.take(), []);
        let second = client.linux(None, None, 0).await.unwrap().domain;
        assert_eq!(fake.calls.take(), [created(1)]);
        assert_ne!(first, second);
        // Those with a core that was lost serve nobody.
        service.clone().core_lost(0);
        service.clone().domain_died(death(second, 0, 0)).await;
        let closed = [2, 3].map(|id| Call::Close(0, wiring::RUN_TIME_CHANNELS + id));
        assert_eq!(fake.calls.take(), closed);
    });
}

#[test]
fn the_channels_of_a_program_that_could_not_be_made_serve_the_next() {
    runtime::testing::run(async {
        let fake = Rc::new(Fake { is_full: Cell::new(true), has_no_room: Cell::new(true), ..Fake::default() });
        let (_, client) = begin_linux(&fake);
        client.ready().unwrap();
        let refused = client.linux(None, None, 0).await;
        assert_eq!(refused.map(drop), Err(CallError::Server(SpawnError::NoMemory)));
        fake.calls.take();
        fake.is_full.set(false);
        assert!(client.linux(None, None, 0).await.is_ok());
        assert_eq!(fake.calls.take(), [created(1)]);
    });
}
