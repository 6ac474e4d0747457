//! A front before a desk, whose device is this file.

extern crate std;

use super::*;
use crate::desk::{self, Desk};
use crate::limits::Limits;
use abi::Handle;
use contracts::blocks::Disk;
use core::cell::{Cell, RefCell};
use luks::{Handover, SectorBytes, SectorCipher, Segment, VolumeKey};
use runtime::Page;
use std::rc::Rc;
use std::vec;

type Bytes = Rc<RefCell<Vec<u8>>>;

const BADGE: u64 = 9;
const BEHIND: u64 = 7;
const FIRST: u64 = 1000;
const REGION_BYTES: usize = 1 << 20;
/// First bytes of the client's parts: of its region, and of the disk's.
const PLAIN: u32 = 4096;
const PART: u32 = 8192;
const SEGMENT_SECTORS: u64 = 2048;
const DISK: Disk = Disk {
    sectors: 1 << 14,
    block_bytes: 512,
    optimal_bytes: 0,
    is_read_only: false,
    keeps_back: true,
    sectors_max: 2048,
    discard_sectors_max: 0,
    zeroes_sectors_max: 8,
    data_offset: PART,
    data_bytes: REGION_BYTES as u32 - PART,
    requests_max: 64,
};

fn page() -> &'static Page {
    Box::leak(Box::new([const { AtomicU64::new(0) }; 512]))
}

fn calls(badge: u64) -> Calls {
    Calls { portal: Handle::NONE, semaphore: Handle::NONE, page: page(), badge, worker: 0 }
}

fn handover() -> Handover {
    let segment = Segment {
        offset: SEGMENT_SECTORS * 512,
        bytes: 4 << 20,
        sector: SectorBytes::B4096,
        tweak: 0,
        allows_discards: false,
    };
    Handover { key: VolumeKey::take(&mut core::array::from_fn(|at| at as u8)), segment }
}

struct World {
    front: &'static Front<Bytes>,
    desk: &'static Desk,
    /// The client's page, and the one between front and desk.
    page: &'static Page,
    behind: Calls,
    plain: Bytes,
    encrypted: Bytes,
    now_ns: Cell<u64>,
    calls_behind: Cell<u32>,
}

impl World {
    fn new() -> World {
        let [plain, encrypted] = [(); 2].map(|()| Rc::new(RefCell::new(vec![0; REGION_BYTES])));
        let (client, behind) = (calls(BADGE), calls(BEHIND));
        let desk = World::desk(&behind);
        let page = client.page;
        let front = World::front(client, &behind, [&plain, &encrypted]);
        World { front, desk, page, behind, plain, encrypted, now_ns: Cell::new(1), calls_behind: Cell::new(0) }
    }

    fn desk(behind: &Calls) -> &'static Desk {
        let client = desk::Client::new(BEHIND, behind.page, Limits::of(DISK), Handle::NONE);
        let desk = Desk::leak(Vec::from([Some(client)]), 0);
        desk.attached(0, FIRST);
        desk
    }

    fn front(client: Calls, behind: &Calls, regions: [&Bytes; 2]) -> &'static Front<Bytes> {
        let front = World::front_of_nobody(client, behind, regions);
        front.attached(0, FIRST);
        front
    }

    /// One whose client has not attached.
    fn front_of_nobody(client: Calls, behind: &Calls, [plain, encrypted]: [&Bytes; 2]) -> &'static Front<Bytes> {
        let part = (PLAIN, REGION_BYTES as u32 - PLAIN);
        let path = Path::new(&handover(), DISK, plain.clone(), part, encrypted.clone()).unwrap();
        Front::leak(Vec::from([Client::new(path, Some(Pair { client, behind: behind.clone() }))]))
    }

    /// A successor of the front, which finds the pages and the regions.
    fn again(self) -> World {
        let client = Calls { page: self.page, ..calls(BADGE) };
        let front = World::front(client, &self.behind, [&self.plain, &self.encrypted]);
        World { front, ..self }
    }

    fn call(&self, ask: u64, pick_up: u64) -> Worked {
        let tick = || self.now_ns.replace(self.now_ns.get() + 1);
        let behind = |behind: &Calls, words| {
            self.calls_behind.set(self.calls_behind.get() + 1);
            Ok(self.desk.call(behind.badge, words, tick).words)
        };
        self.front.call(BADGE, [ask, pick_up, 0, 0], tick, behind).0
    }

    fn fill(&self, slot: usize, request: &Request) {
        slot::fill(self.page, slot, request);
    }

    /// The device does all that was asked, on a disk of `disk`'s bytes.
    fn device(&self, disk: &mut [u8]) -> usize {
        let mut done = 0;
        while let Some(asked) = self.desk.take(0) {
            let Request { operation, number, extent, offset } = asked.request;
            let bytes = extent.sectors as usize * 512;
            let disk = &mut disk[extent.sector as usize * 512..][..bytes];
            let place = offset as usize..offset as usize + bytes;
            match operation {
                Operation::Read => self.encrypted.borrow_mut()[place].copy_from_slice(disk),
                Operation::Write => disk.copy_from_slice(&self.encrypted.borrow()[place]),
                _ => {}
            }
            let now_ns = self.now_ns.get();
            self.desk.programmed(&[(0, asked.slot)], now_ns + 1);
            assert!(self.desk.end(0, number, Ended::Done, now_ns + 2, now_ns + 3));
            self.now_ns.set(now_ns + 4);
            done += 1;
        }
        done
    }
}

fn request(operation: Operation, number: u64, sector: u64, sectors: u32, offset: u32) -> Request {
    Request { operation, number: FIRST + number, extent: Extent { sector, sectors }, offset: PLAIN + offset }
}

fn disk() -> Vec<u8> {
    vec![0; DISK.sectors as usize * 512]
}

const DONE: Worked = Worked { words: [1, 0, 0], is_more: false };
const PENDING: Worked = Worked { words: [0, 1, 0], is_more: false };

#[test]
fn a_write_is_encrypted_when_it_is_asked_and_a_read_decrypted_when_it_is_picked_up() {
    let (world, mut disk) = (World::new(), disk());
    let text: Vec<u8> = (0..8192).map(|at| (at / 99) as u8).collect();
    world.plain.borrow_mut()[PLAIN as usize..][..8192].copy_from_slice(&text);
    world.fill(0, &request(Operation::Write, 0, 8, 16, 0));
    assert_eq!(world.call(1, 0), PENDING);
    let mut expected = text.clone();
    SectorCipher::new(&handover().key, &handover().segment).encrypt(8 * 512, &mut expected).unwrap();
    assert_eq!(world.encrypted.borrow()[PART as usize..][..8192], expected);
    assert_eq!(world.call(0, 1), PENDING, "the device has not done it");
    assert_eq!(world.device(&mut disk), 1);
    assert_eq!(disk[(SEGMENT_SECTORS as usize + 8) * 512..][..8192], expected);
    assert_eq!((world.call(0, 1), slot::ended(world.page, 0)), (DONE, Ended::Done));
    world.plain.borrow_mut().fill(0xee);
    world.fill(0, &request(Operation::Read, 1, 8, 16, 4096));
    assert_eq!(world.call(1, 0), PENDING);
    assert_eq!(world.device(&mut disk), 1);
    assert!(world.plain.borrow().iter().all(|byte| *byte == 0xee), "nobody has picked it up");
    let calls_behind = world.calls_behind.get();
    assert_eq!((world.call(0, 1), slot::ended(world.page, 0)), (DONE, Ended::Done));
    assert_eq!(world.calls_behind.get(), calls_behind + 1);
    assert_eq!(world.plain.borrow()[PLAIN as usize + 4096..][..8192], text);
    assert_eq!(world.plain.borrow().iter().filter(|byte| **byte == 0xee).count(), REGION_BYTES - 8192);
    assert_eq!((world.call(0, 1).words, slot::ended(world.page, 0)), ([1, 0, 0], Ended::NotAsked));
}

/// Each phase comes after the one before: checked here, called behind, and what the handler says.
#[test]
fn when_a_request_was_where_is_told() {
    let (world, mut disk) = (World::new(), disk());
    world.fill(0, &request(Operation::Read, 0, 0, 8, 0));
    assert_eq!(world.call(1, 0), PENDING);
    let behind_ns = slot::phases(world.page, 0).submit_ns;
    world.device(&mut disk);
    assert_eq!(world.call(0, 1), DONE);
    let Phases { preprocess_ns, submit_ns, program_ns, interrupt_ns, signal_ns, .. } = slot::phases(world.page, 0);
    let all = [0, preprocess_ns, submit_ns, program_ns, interrupt_ns, signal_ns];
    assert!(all.windows(2).all(|two| two[0] < two[1]), "{all:?}");
    assert_eq!(submit_ns, behind_ns);
    assert!(slot::phases(world.behind.page, 0).preprocess_ns > submit_ns, "the worker behind comes after");
}

#[test]
fn what_is_not_to_be_done_does_not_reach_the_server_behind() {
    let world = World::new();
    let sectors = handover().segment.bytes / 512;
    let wrong = [
        (request(Operation::Read, 0, sectors, 8, 0), BlocksError::Range),
        (request(Operation::Write, 1, sectors - 8, 16, 0), BlocksError::Range),
        (request(Operation::Read, 2, 4, 8, 0), BlocksError::Range),
        (request(Operation::Write, 3, 0, 8, REGION_BYTES as u32), BlocksError::Range),
        (request(Operation::WriteZeroes { may_discard: true }, 4, 0, 8, 0), BlocksError::Unsupported),
        (request(Operation::Discard, 5, 0, 8, 0), BlocksError::Unsupported),
        (Request { number: FIRST - 1, ..request(Operation::Read, 0, 0, 8, 0) }, BlocksError::Number),
    ];
    wrong.iter().enumerate().for_each(|(slot, (request, _))| world.fill(slot, request));
    // The last slot is empty.
    assert_eq!(world.call(0xff, 0).words, [0xff, 0, 0]);
    for (slot, (_, why)) in wrong.iter().enumerate() {
        assert_eq!(slot::ended(world.page, slot), Ended::Failed(*why), "{slot}");
        assert!(slot::phases(world.page, slot).preprocess_ns > 0, "{slot}");
    }
    assert_eq!(world.calls_behind.get(), 0);
    assert_eq!(world.call(1, 1).words, [0, 0, refused::BATCH]);
    assert_eq!(world.call(u64::MAX >> 31, 0).words, [0, 0, refused::BATCH]);
    assert_eq!(world.call(u64::MAX >> 32, 0).words, [u64::MAX >> 32, 0, 0], "so many may be");
    assert_eq!(world.front.clients().len(), 1);
    let stranger = world.front.call(BADGE + 1, [1, 0, 0, 0], || 0, |_, _| Ok([0; 3])).0;
    assert_eq!(stranger.words, [0, 0, refused::CALLER]);
}

#[test]
fn a_call_encrypts_and_decrypts_so_much_at_most() {
    let (world, mut disk) = (World::new(), disk());
    for (operation, number) in [(Operation::Write, 0), (Operation::Read, 10)] {
        for slot in 0..3 {
            let place = slot as u32 * SECTORS_MAX * 512;
            world.fill(slot, &request(operation, number + slot as u64, slot as u64 * 256, SECTORS_MAX, place));
        }
        if operation == Operation::Write {
            for left in [6_u64, 4, 0] {
                let asked = world.call(left | 1 << (2 - left.count_ones()), 0).words;
                assert_eq!(asked[0], left, "what was too much is told to be asked again");
                assert!(slots(left).all(|slot| slot::ended(world.page, slot) == Ended::NotAsked));
            }
            assert_eq!(world.device(&mut disk), 3);
            assert_eq!(world.call(0, 7), Worked { words: [7, 0, 0], is_more: false });
        } else {
            assert_eq!(world.call(7, 0).words, [0, 7, 0]);
            assert_eq!(world.device(&mut disk), 3);
            assert_eq!(world.call(0, 7), Worked { words: [1, 6, 0], is_more: true });
            assert_eq!(world.call(0, 6), Worked { words: [2, 4, 0], is_more: true });
            assert_eq!(world.call(0, 4), Worked { words: [4, 0, 0], is_more: false });
        }
    }
}

#[test]
fn who_asks_again_joins_and_another_request_does_not() {
    let (world, mut disk) = (World::new(), disk());
    let [one, two] = [0, 1].map(|number| request(Operation::Read, number, 0, SECTORS_MAX, number as u32 * 131_072));
    world.fill(0, &one);
    world.fill(1, &two);
    assert_eq!(world.call(3, 0).words, [0, 3, 0]);
    assert_eq!(world.call(3, 0).words, [0, 3, 0], "asked again it is the same");
    assert_eq!(world.device(&mut disk), 2);
    assert_eq!(world.call(0, 3), Worked { words: [1, 2, 0], is_more: true });
    // The second has ended behind, and waits to be decrypted.
    world.fill(1, &request(Operation::Read, 7, 0, 8, 0));
    assert_eq!(world.call(2, 0).words, [2, 0, 0]);
    assert_eq!(slot::ended(world.page, 1), Ended::Failed(BlocksError::Number));
    world.fill(1, &two);
    assert_eq!((world.call(2, 0).words, slot::ended(world.page, 1)), ([2, 0, 0], Ended::Done));
    assert_eq!(world.device(&mut disk), 0);
}

#[test]
fn what_an_earlier_life_left_is_nobodys() {
    let (world, mut disk) = (World::new(), disk());
    for slot in 0..2 {
        world.fill(slot, &request(Operation::Read, slot as u64, 0, SECTORS_MAX, slot as u32 * 131_072));
    }
    assert_eq!(world.call(3, 0).words, [0, 3, 0]);
    assert_eq!(world.device(&mut disk), 2);
    assert!(world.call(0, 3).is_more);
    world.desk.attached(0, FIRST + 100);
    world.front.attached(0, FIRST + 100);
    world.fill(1, &request(Operation::Read, 100, 0, 8, 0));
    assert_eq!(world.call(2, 0).words, [0, 2, 0]);
    assert_eq!(world.device(&mut disk), 1);
    assert_eq!((world.call(0, 2).words, slot::ended(world.page, 1)), ([2, 0, 0], Ended::Done));
}

/// The slots have been used: of others it is not known whether something is under way behind.
fn used(world: &World, disk: &mut [u8]) {
    for slot in 0..2 {
        world.fill(slot, &request(Operation::Read, 500 + slot as u64, 1024, 8, 0));
    }
    assert_eq!(world.call(3, 0).words, [0, 3, 0]);
    assert_eq!(world.device(disk), 2);
    assert_eq!(world.call(0, 3).words, [3, 0, 0]);
}

/// A read of the block at sector 8 by slot 0: whether it was answered at once, and its last byte.
fn read_block(world: &World, disk: &mut [u8], number: u64) -> (bool, u8) {
    world.plain.borrow_mut().fill(0xee);
    let is_at_once = is_read_at_once(world, disk, number, Extent { sector: 8, sectors: 8 });
    (is_at_once, world.plain.borrow()[PLAIN as usize + 4095])
}

/// A read by slot 0: whether it was answered without the server behind.
fn is_read_at_once(world: &World, disk: &mut [u8], number: u64, Extent { sector, sectors }: Extent) -> bool {
    world.fill(0, &request(Operation::Read, number, sector, sectors, 0));
    let is_at_once = world.call(1, 0) == DONE;
    if !is_at_once {
        assert_eq!(world.device(disk), 1);
        assert_eq!(world.call(0, 1), DONE);
    }
    assert_eq!(slot::ended(world.page, 0), Ended::Done);
    is_at_once
}

fn encrypted(byte: u8) -> Vec<u8> {
    let mut bytes = vec![byte; 4096];
    SectorCipher::new(&handover().key, &handover().segment).encrypt(8 * 512, &mut bytes).unwrap();
    bytes
}

#[test]
fn a_second_read_of_a_block_is_answered_at_once_until_something_is_written() {
    let (world, mut disk) = (World::new(), disk());
    let at = (SEGMENT_SECTORS as usize + 8) * 512;
    disk[at..][..4096].copy_from_slice(&encrypted(1));
    used(&world, &mut disk);
    assert_eq!(read_block(&world, &mut disk, 1), (false, 1));
    let calls_behind = world.calls_behind.get();
    assert_eq!(read_block(&world, &mut disk, 2), (true, 1));
    assert_eq!(read_block(&world, &mut disk, 3), (true, 1));
    assert_eq!(world.calls_behind.get(), calls_behind);
    // By this client, by a ring, and by an earlier life.
    world.plain.borrow_mut()[PLAIN as usize + 8192..][..4096].fill(2);
    world.fill(1, &request(Operation::Write, 4, 8, 8, 8192));
    assert_eq!(world.call(2, 0).words, [0, 2, 0]);
    assert_eq!(read_block_while(&world), (true, 1), "the write has not ended");
    assert_eq!(world.device(&mut disk), 1);
    assert_eq!(world.call(0, 2).words, [2, 0, 0]);
    assert_eq!(read_block(&world, &mut disk, 6), (false, 2));
    assert_eq!(read_block(&world, &mut disk, 7), (true, 2));
    disk[at..][..4096].copy_from_slice(&encrypted(3));
    world.front.written();
    assert_eq!(read_block(&world, &mut disk, 8), (false, 3));
    disk[at..][..4096].copy_from_slice(&encrypted(4));
    world.front.attached(0, FIRST);
    assert_eq!(read_block(&world, &mut disk, 9), (false, 4));
}

/// The same of a block that is here, while something else is under way.
fn read_block_while(world: &World) -> (bool, u8) {
    world.fill(0, &request(Operation::Read, 5, 8, 8, 0));
    (world.call(1, 0) == DONE, world.plain.borrow()[PLAIN as usize + 4095])
}

/// Sixteen blocks are kept that follow one another; one that is farther takes the place of another,
/// and a read of two blocks is not answered by the first of them.
#[test]
fn a_block_that_is_kept_answers_for_itself_only() {
    let (world, mut disk) = (World::new(), disk());
    used(&world, &mut disk);
    let block = |at: u64| Extent { sector: at * 8, sectors: 8 };
    let blocks = (1..17).map(block);
    let kept = blocks.clone().map(|extent| (extent, true));
    let (far, two) = (block(2 + 40 * 16), Extent { sectors: 16, ..block(1) });
    let after = [(two, false), (far, false), (block(1), true), (far, true), (block(2), false)];
    let reads = blocks.map(|extent| (extent, false)).chain(kept).chain(after);
    for (number, (extent, is_kept)) in (1..).zip(reads) {
        assert_eq!(is_read_at_once(&world, &mut disk, number, extent), is_kept, "{number}: {extent:?}");
    }
}

/// A read that was done before a write and is picked up after it is no block to be given out.
#[test]
fn what_was_read_before_a_write_is_not_kept() {
    let (world, mut disk) = (World::new(), disk());
    let at = (SEGMENT_SECTORS as usize + 8) * 512;
    disk[at..][..4096].copy_from_slice(&encrypted(1));
    used(&world, &mut disk);
    world.fill(0, &request(Operation::Read, 1, 8, 8, 0));
    assert_eq!(world.call(1, 0), PENDING);
    assert_eq!(world.device(&mut disk), 1);
    disk[at..][..4096].copy_from_slice(&encrypted(2));
    world.front.written();
    // Asked again, it is the same one still.
    assert_eq!(world.call(1, 0), DONE);
    assert_eq!(world.plain.borrow()[PLAIN as usize + 4095], 1);
    assert_eq!(read_block(&world, &mut disk, 2), (false, 2));
    // A successor does not know of what is under way.
    world.fill(0, &request(Operation::Read, 3, 1032, 8, 0));
    assert_eq!(world.call(1, 0), PENDING);
    let world = world.again();
    assert_eq!(read_block_of_a_successor(&world, &mut disk), (false, 2));
    assert_eq!(read_block(&world, &mut disk, 6), (true, 2));
}

/// The slot's first request in a life of the server ends, and is not kept.
fn read_block_of_a_successor(world: &World, disk: &mut [u8]) -> (bool, u8) {
    world.fill(0, &request(Operation::Read, 3, 1032, 8, 0));
    assert_eq!(world.call(1, 0), PENDING, "it joins");
    assert_eq!(world.device(disk), 1);
    assert_eq!(world.call(0, 1), DONE);
    world.fill(0, &request(Operation::Read, 4, 1032, 8, 0));
    assert_eq!(world.call(1, 0), PENDING, "it was not kept");
    assert_eq!(world.device(disk), 1);
    assert_eq!(world.call(0, 1), DONE);
    read_block(world, disk, 5)
}

/// What a slot asked in an earlier life of the server has to end behind, though its block is here.
#[test]
fn a_slot_that_may_be_under_way_is_not_answered_from_what_is_kept() {
    let (world, mut disk) = (World::new(), disk());
    let at = (SEGMENT_SECTORS as usize + 8) * 512;
    disk[at..][..4096].copy_from_slice(&encrypted(1));
    world.fill(1, &request(Operation::Read, 1, 8, 8, 8192));
    assert_eq!(world.call(2, 0).words, [0, 2, 0]);
    assert_eq!(world.device(&mut disk), 1);
    let world = world.again();
    // The first of a slot is not kept.
    assert_eq!([2, 3, 4].map(|number| read_block(&world, &mut disk, number).0), [false, false, true]);
    let calls_behind = world.calls_behind.get();
    assert_eq!((world.call(2, 0).words, slot::ended(world.page, 1)), ([2, 0, 0], Ended::Done));
    assert_eq!(world.calls_behind.get(), calls_behind + 1);
    world.fill(1, &request(Operation::Read, 5, 1024, 8, 8192));
    assert_eq!(world.call(2, 0).words, [0, 2, 0]);
}

#[test]
fn who_has_not_attached_is_refused() {
    let [plain, encrypted] = [(); 2].map(|()| Rc::new(RefCell::new(vec![0; REGION_BYTES])));
    let (client, behind) = (calls(BADGE), calls(BEHIND));
    slot::fill(client.page, 0, &request(Operation::Read, 0, 0, 8, 0));
    let front = World::front_of_nobody(client, &behind, [&plain, &encrypted]);
    let call = || front.call(BADGE, [1, 0, 0, 0], || 0, |_, _| panic!("it reaches the server behind")).0.words;
    assert_eq!(call(), [0, 0, refused::CALLER]);
    let unknown = front.call(BADGE + 1, [1, 0, 0, 0], || 0, |_, _| panic!("a stranger reaches it"));
    assert!(unknown.0.words == [0, 0, refused::CALLER] && unknown.1.is_none());
}

#[test]
fn a_server_behind_that_ended_is_told_and_nothing_is_lost() {
    let (world, mut disk) = (World::new(), disk());
    world.fill(0, &request(Operation::Read, 0, 0, 8, 0));
    let dead = |error| world.front.call(BADGE, [1, 0, 0, 0], || 0, |_, _| Err(error)).0.words;
    assert_eq!(dead(Error::PeerDead), [0, 0, refused::CALLER]);
    assert_eq!(dead(Error::Timeout), [0, 0, refused::LATE]);
    let fresh = world.front.call(BADGE, [1, 0, 0, 0], || 0, |_, _| Ok([0, 0, refused::CALLER])).0.words;
    assert_eq!(fresh, [0, 0, refused::CALLER]);
    assert_eq!(world.call(1, 0), PENDING);
    assert_eq!(world.device(&mut disk), 1);
    // The front ended with the end of the request in it: its successor does not know of it.
    assert!(world.desk.call(BEHIND, [0, 1, 0, 0], || 0).words[0] == 1);
    let world = world.again();
    assert_eq!((world.call(0, 1), slot::ended(world.page, 0)), (DONE, Ended::NotAsked));
    assert_eq!(world.call(1, 0), PENDING);
    assert_eq!(world.device(&mut disk), 1);
    assert_eq!((world.call(0, 1), slot::ended(world.page, 0)), (DONE, Ended::Done));
}
