//! What spawn passes on to the core of a domain, and what it knows itself.

use contracts::spawn::{DISPATCHERS_AT_ONCE, DOMAINS_AT_ONCE};

use super::*;

const DOMAIN: DomainId = (2 << 48) | MADE;
const MEMORY: MemoryId = (3 << 48) | 5;

/// Everything that is passed on: what the answers were, where `Ok` is what the monitor gave.
async fn pass_all(client: &SpawnClient) -> Vec<Result<u64, CallError<SpawnError>>> {
    vec![
        client.begin_turns(DOMAIN).await.map(|()| 0),
        client.start(DOMAIN).await.map(|()| 0),
        client.kill(DOMAIN, 9).await.map(|()| 0),
        client.discard(DOMAIN).await.map(|()| 0),
        client.common(DOMAIN, 16, 4).await,
        client.lend(MEMORY, DOMAIN, true).await,
        client.release(MEMORY).await.map(|()| 0),
    ]
}

#[test]
fn what_concerns_a_domain_is_asked_of_its_core_and_the_answer_is_given() {
    runtime::testing::run(async {
        let fake = Rc::new(Fake::default());
        let (_, client) = begin(&fake);
        assert_eq!(pass_all(&client).await, [0, 0, 0, 0, of_core(2, 16), DOMAIN + 1, 0].map(Ok));
        let calls = [
            Call::BeginTurns(2, DOMAIN),
            Call::Start(2, DOMAIN),
            Call::Kill(2, DOMAIN, 9),
            Call::Discard(2, DOMAIN),
            Call::Common(2, 16, 4),
            Call::Lend(3, MEMORY, DOMAIN, true),
            Call::Release(3, MEMORY),
        ];
        assert_eq!(fake.calls.take(), calls);
        let refusals = [
            (MonitorError::NotFound, SpawnError::NotFound),
            (MonitorError::NoMemory, SpawnError::NoMemory),
            (MonitorError::NoCore, SpawnError::NoCore),
            (MonitorError::Away, SpawnError::NoCore),
            (MonitorError::BadProgram, SpawnError::BadProgram),
            (MonitorError::Busy, SpawnError::Busy),
            (MonitorError::Failed, SpawnError::Failed),
        ];
        for (said, told) in refusals {
            fake.refuses.set(Some(said));
            assert_eq!(pass_all(&client).await, [Err(CallError::Server(told)); 7]);
            assert_eq!(fake.calls.take(), calls);
        }
    });
}

#[test]
fn the_use_of_a_domain_is_its_own_and_not_the_next_ones() {
    runtime::testing::run(async {
        let fake = Rc::new(Fake::default());
        let (_, client) = begin(&fake);
        fake.lines.borrow_mut().push(DomainLine { pages: 12, cpu_ns: 34, ..line(DOMAIN, "linux-1", 1) });
        assert_eq!(client.usage(DOMAIN).await, Ok((12, 34)));
        for other in [DOMAIN - 1, DOMAIN + 1, MADE] {
            assert_eq!(client.usage(other).await, Err(CallError::Server(SpawnError::NotFound)), "{other:#x}");
        }
    });
}

#[test]
fn linux_domains_are_told_from_one_on_so_many_at_a_time() {
    runtime::testing::run(async {
        let fake = Rc::new(Fake { counts: Cell::new(true), ..Fake::default() });
        let (_, client) = begin(&fake);
        client.ready().unwrap();
        assert_eq!(client.domains(0).await, Ok(vec![]));
        let mut all = Vec::new();
        for _ in 0..=DOMAINS_AT_ONCE {
            all.push(client.linux(None, None, 0).await.unwrap().domain);
        }
        assert_eq!(client.domains(0).await, Ok(all[..DOMAINS_AT_ONCE].into()));
        assert_eq!(client.domains(all[2] + 1).await, Ok(all[3..].into()));
    });
}

#[test]
fn the_dispatchers_of_a_program_are_told_by_core_so_many_at_a_time() {
    const CORES: usize = DISPATCHERS_AT_ONCE + 2;
    runtime::testing::run(async {
        let crew = Component { core: Placement::Every, ..on(0, "crew", &[]) };
        let fake = Rc::new(Fake::default());
        let (_, client) = begin_with(&fake, system_of(vec![crew, on(0, "fs", &[])], &[]), CORES as u32);
        let all: Vec<DomainId> = (0..CORES as u32).map(|core| of_core(core, MADE)).collect();
        assert_eq!(client.component("crew".into(), 4, 0).await, Ok(all[0]));
        assert_eq!(client.component("fs".into(), 4, 0).await, Ok(all[0]));
        assert_eq!(client.dispatchers("crew".into(), 4, 0).await, Ok(all[..DISPATCHERS_AT_ONCE].into()));
        assert_eq!(client.dispatchers("crew".into(), 4, 1).await, Ok(all[1..CORES - 1].into()));
        assert_eq!(client.dispatchers("crew".into(), 4, 5).await, Ok(all[5..].into()));
        assert_eq!(client.dispatchers("crew".into(), 4, CORES as u32).await, Ok(vec![]));
        for (name, generation) in [("crew", 3), ("fs", 4)] {
            let told = client.dispatchers(name.into(), generation, 0).await;
            assert_eq!(told, Err(CallError::Server(SpawnError::NotFound)));
        }
    });
}
