//! System V shared memory: parts are made once, lent to who has the segment, and released.

use super::*;
use contracts::shared_memory::*;

/// Another program's client, a child of the first.
fn program(server: &Rc<Server>, number: u64) -> ProcessClient {
    let [client, served] = loopback_memory(Layout::default());
    let client = ClientChannel::new(loopback_wiring(client, true));
    let served = ServerChannel::new(Wiring { peer_set: 10 + number as u32, ..loopback_wiring(served, false) });
    let child = server.table.borrow_mut().prepare(FIRST, DOMAIN + number, served.peer().id()).unwrap();
    server.table.borrow_mut().start(child);
    runtime::spawn(serve_process(Rc::new(Service(server.clone())), served));
    ProcessClient::new(client)
}

fn ended(server: &Rc<Server>, domain: DomainId) {
    let (cause, status) = (DeathCause::Killed as u64, 0);
    server.domain_died(&Death { domain, cause, status, address: 0, rip: 0, cpu_ns: 0 });
}

const BYTES: u64 = PART_PAGES * 4096 + 1;

#[test]
fn parts_are_made_once_and_released_with_the_last_program_that_has_them() {
    runtime::testing::run(async {
        let fake = Rc::new(Fake { room_pages: Cell::new(PART_PAGES), ..Fake::default() });
        let (server, _spawn) = begin(&fake);
        let [first, second] = [1, 2].map(|number| program(&server, number));
        let wish = SegmentWish { key: 8, bytes: BYTES, creates: true, is_new: true, mode: 0o600 };
        let id = first.segment(wish).await.unwrap();
        assert_eq!(second.segment(wish).await, Err(CallError::Server(SegmentError::Exists)));
        let number = first.attach_segment(id, true).await.unwrap().number;
        // There is room for one part, but not for all.
        assert_eq!(first.segment_part(number, 0).await, Err(CallError::Server(SegmentError::NoMemory)));
        assert!(fake.memory.borrow().is_empty());
        fake.room_pages.set(2 * PART_PAGES);
        // Two ask at once: one memory is entered, the other released.
        assert_eq!(second.attach_segment(id, false).await.unwrap().number, number);
        let (one, other) = (first.segment_part(number, 0), second.segment_part(number, 0));
        assert_eq!(one.await, Ok(1 << 32 | (DOMAIN + 1) << 1 | 1));
        assert_eq!(other.await, Ok(1 << 32 | (DOMAIN + 2) << 1 | 1), "who may write may so whatever it asked for");
        runtime::sleep(SOON_NS).await;
        let surplus = fake.released.take();
        assert!(surplus.len() == fake.memory.borrow().len() - 1 && !surplus.contains(&1));
        let rest = first.segment_part(number, 1).await.unwrap() >> 32;
        assert_eq!(fake.memory.borrow()[&rest], (DOMAIN + 1, 1), "the rest of a page");
        assert_eq!(first.segment_part(number, 2).await, Err(CallError::Server(SegmentError::Invalid)));
        assert_eq!(first.segment_part(number ^ 1 << 40, 0).await, Err(CallError::Server(SegmentError::Invalid)));

        // A child that is being made has what its parent has, one that is thrown away has not.
        server.shared_memory.borrow_mut().inherit(FIRST + 1, 77);
        assert_eq!(first.segment_state(SegmentName::Id(id)).await.unwrap().attaches, 3);
        server.cancel(77);
        second.change_segment(id, SegmentChange::Remove).await.unwrap();
        first.detach_segment(number).unwrap();
        runtime::sleep(SOON_NS).await;
        assert_eq!(fake.released.take(), []);
        assert_eq!(first.segments().await.unwrap().0.segments, 1);
        ended(&server, DOMAIN + 2);
        runtime::sleep(SOON_NS).await;
        assert_eq!(fake.released.take(), [1, rest]);
        assert_eq!(first.segments().await.unwrap().0.segments, 0);
    });
}

#[test]
fn a_segment_tells_the_second_of_its_last_change() {
    runtime::testing::run(async {
        let fake = Rc::new(Fake::default());
        let (server, _spawn) = begin(&fake);
        let first = program(&server, 1);
        runtime::sleep(7 * SOON_NS).await;
        let wish = SegmentWish { key: 8, bytes: 1, creates: true, is_new: true, mode: 0o600 };
        let id = first.segment(wish).await.unwrap();
        let told = first.segment_state(SegmentName::Id(id)).await.unwrap();
        assert_eq!((told.changed_s, told.attached_s), (7, 0));
        runtime::sleep(2 * SOON_NS).await;
        first.attach_segment(id, true).await.unwrap();
        let told = first.segment_state(SegmentName::Id(id)).await.unwrap();
        assert_eq!((told.changed_s, told.attached_s), (7, 9));
    });
}
