//! Channels that components ask for while they run.

use super::*;

/// Two who may ask, and one who may not.
const FIRST: DomainId = (1 << 48) | 20;
const SECOND: DomainId = (1 << 48) | 30;
const OTHER: DomainId = 40;
/// As many as one may have.
const BOUND_MAX: u64 = 64;

fn begin_bound(fake: &Rc<Fake>) -> (Rc<Service>, SpawnClient) {
    let other = Component { binds: vec!["else".into()], ..on(0, "other", &[]) };
    *fake.lines.borrow_mut() = vec![line(FIRST, "first", 1), line(SECOND, "second", 1), line(OTHER, "other", 1)];
    *fake.finds.borrow_mut() = Some(Ok(driver(MADE)));
    begin_with(fake, system_of(vec![other, on(1, "first", &[]), on(1, "second", &[])], &[]), 2)
}

/// What the name server says of the server.
fn driver(domain: DomainId) -> Named {
    Named { component: "driver".into(), contract: BOUND.into(), domain, core: 0, generation: 1 }
}

/// Asks, and gives all that was asked for then.
async fn calls_for(fake: &Fake, service: &Rc<Service>, client: DomainId, contract: &str) -> Vec<Call> {
    service.clone().bind(client, 9, contract.into(), 2).await;
    fake.calls.take()
}

fn refused(client: DomainId, why: BindError) -> Call {
    Call::Refuse(spawn_core::home(client), client, 9, why)
}

/// What becomes of a request that is granted, as channel `id`.
fn connected(client: DomainId, id: ChannelId) -> [Call; 6] {
    [
        Call::Find(BOUND.into(), 1, 2),
        Call::Open(0, id, None),
        Call::Open(1, id, Some(place(0, id))),
        Call::Open(0, id, Some(place(1, id))),
        Call::Announce(0, id, 0),
        Call::Introduce(1, id, client, 9),
    ]
}

#[test]
fn who_may_ask_is_connected_and_who_may_not_is_told_so() {
    runtime::testing::run(async {
        let fake = Rc::new(Fake::default());
        let (service, _client) = begin_bound(&fake);
        let id = wiring::BOUND_CHANNELS + 1;
        assert_eq!(calls_for(&fake, &service, FIRST, BOUND).await, connected(FIRST, id));
        for (client, contract) in [(OTHER, BOUND), (FIRST, "else")] {
            let calls = calls_for(&fake, &service, client, contract).await;
            assert_eq!(calls, [refused(client, BindError::NotAllowed)], "the name server is not asked");
        }
        // One that is not there, before one that is.
        assert_eq!(calls_for(&fake, &service, FIRST - 1, BOUND).await, [refused(FIRST - 1, BindError::Failed)]);
        assert_eq!(service.bound.borrow().len(), 1);
    });
}

#[test]
fn who_asks_for_what_nobody_or_only_itself_serves_is_told_so() {
    runtime::testing::run(async {
        let fake = Rc::new(Fake::default());
        let (service, _client) = begin_bound(&fake);
        let answers = [
            (Ok(driver(FIRST)), BindError::NotFound),
            (Err(NamesError::NotFound), BindError::NotFound),
            (Err(NamesError::BadName), BindError::Failed),
        ];
        for (answer, why) in answers {
            *fake.finds.borrow_mut() = Some(answer);
            let expected = [Call::Find(BOUND.into(), 1, 2), refused(FIRST, why)];
            assert_eq!(calls_for(&fake, &service, FIRST, BOUND).await, expected);
        }
        assert!(service.bound.borrow().is_empty());
    });
}

#[test]
fn who_has_too_many_channels_gets_no_more_and_others_do() {
    runtime::testing::run(async {
        let fake = Rc::new(Fake::default());
        let (service, _client) = begin_bound(&fake);
        for id in (wiring::BOUND_CHANNELS + 1..).take(BOUND_MAX as usize) {
            assert_eq!(calls_for(&fake, &service, FIRST, BOUND).await, connected(FIRST, id));
        }
        let expected = [Call::Find(BOUND.into(), 1, 2), refused(FIRST, BindError::Failed)];
        assert_eq!(calls_for(&fake, &service, FIRST, BOUND).await, expected);
        let next = wiring::BOUND_CHANNELS + BOUND_MAX + 1;
        assert_eq!(calls_for(&fake, &service, SECOND, BOUND).await, connected(SECOND, next));
    });
}

#[test]
fn a_channel_that_its_server_does_not_take_is_closed_and_no_other() {
    runtime::testing::run(async {
        let fake = Rc::new(Fake::default());
        let (service, _client) = begin_bound(&fake);
        calls_for(&fake, &service, FIRST, BOUND).await;
        fake.takes_nothing.set(true);
        let id = wiring::BOUND_CHANNELS + 2;
        let mut expected = connected(FIRST, id)[..5].to_vec();
        expected.extend([Call::Close(1, id), Call::Close(0, id), refused(FIRST, BindError::Failed)]);
        assert_eq!(calls_for(&fake, &service, FIRST, BOUND).await, expected);
        assert_eq!(service.bound.borrow().iter().map(|(_, plan)| plan.id).collect::<Vec<_>>(), [id - 1]);
    });
}

#[test]
fn what_a_component_asked_for_is_closed_when_it_ends() {
    runtime::testing::run(async {
        let fake = Rc::new(Fake::default());
        let (service, client) = begin_bound(&fake);
        for asks in [FIRST, SECOND, FIRST] {
            calls_for(&fake, &service, asks, BOUND).await;
        }
        assert_eq!(client.kill(FIRST, 5).await, Ok(()));
        runtime::sleep(MAKING_NS).await;
        let [one, two, three] = [1, 2, 3].map(|number| wiring::BOUND_CHANNELS + number);
        let closed = [(1, one), (0, one), (1, three), (0, three)].map(|(core, id)| Call::Close(core, id));
        assert_eq!(fake.calls.take(), [&[Call::Kill(1, FIRST, 5)][..], &closed].concat());
        assert_eq!(service.bound.borrow().iter().map(|(of, plan)| (*of, plan.id)).collect::<Vec<_>>(), [(SECOND, two)]);
    });
}
