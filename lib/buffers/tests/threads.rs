//! Blocks beside each other: by one core, and by threads that read, write and evict.
#![cfg(not(loom))]
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;

use buffers::{Local, NoMemory, NoRoom, locals};
use lock::Relax;

type Block = [u64; 512];

#[derive(Default)]
struct Yield;

impl Relax for Yield {
    fn relax(&mut self) {
        thread::yield_now();
    }
}

/// A version of a key's block: each word says of which it is.
fn fill(block: &mut Block, key: u64, version: u64) {
    for (at, word) in (0..).zip(block.iter_mut()) {
        *word = key << 32 | version << 12 | at;
    }
}

/// The version of a block that is a key's, whole.
fn version(block: &Block, key: u64) -> u64 {
    let version = block[0] >> 12 & 0xf_ffff;
    for (at, word) in (0..).zip(block) {
        assert_eq!(*word, key << 32 | version << 12 | at, "another block's bytes at {at} of {key}");
    }
    version
}

fn one(keys: u64, frames: usize) -> Local<Block> {
    locals(1, keys, frames, || [0; 512]).unwrap().pop().unwrap()
}

fn put(local: &mut Local<Block>, key: u64, version: u64) -> Result<(), NoRoom> {
    local.insert::<Yield>(key, |block| fill(block, key, version)).map(drop)
}

#[test]
fn a_core_finds_what_it_put_there() {
    // Random changes beside a map: keys from both ends of the tree, nodes come and go.
    let mut local = one(1 << 32, 40);
    let mut model = BTreeMap::new();
    let mut seed = 1u64;
    for step in 0..20_000u64 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let key = [seed >> 60, (seed >> 60) << 28, u64::from(u32::MAX) - (seed >> 62)][step as usize % 3];
        match seed >> 40 & 3 {
            0 => assert_eq!(local.remove(key), model.remove(&key).is_some()),
            1 => {
                let changed = local.change::<Yield>(key, |old, new| fill(new, key, version(old, key) + 1)).unwrap();
                assert_eq!(changed, model.get_mut(&key).map(|version: &mut u64| *version += 1).is_some());
            }
            _ => {
                put(&mut local, key, step % 1000).unwrap();
                model.insert(key, step % 1000);
            }
        }
        let section = local.read();
        let found = section.get(key).map(|(id, block)| (local.key_of(id), version(block, key)));
        assert_eq!(found, model.get(&key).map(|version| (Some(key), *version)));
        assert!(section.get(1 << 32).is_none());
    }
    let there = (0..local.places()).filter_map(|place| local.key_of(local.at(place)?)).count();
    assert_eq!((there, there + local.free()), (model.len(), 40));
    assert_eq!(put(&mut local, 1 << 32, 0), Err(NoRoom));
}

#[test]
fn one_core_grows_and_shrinks_and_several_do_not() {
    let mut local = one(1000, 0);
    assert_eq!(put(&mut local, 7, 1), Err(NoRoom));
    for key in 0..10 {
        local.grow().unwrap();
        put(&mut local, key, 1).unwrap();
    }
    assert_eq!(put(&mut local, 10, 1), Err(NoRoom));
    assert!(!local.shrink::<Yield>(), "all are in use");
    assert!(local.remove(3) && !local.remove(3) && local.remove(5));
    assert!(local.shrink::<Yield>() && local.shrink::<Yield>() && !local.shrink::<Yield>());
    assert_eq!((0..local.places()).filter(|place| local.at(*place).is_some()).count(), 8);
    for key in [3, 5] {
        local.grow().unwrap();
        put(&mut local, key, 2).unwrap();
        assert_eq!(local.places(), 10, "what was given back is a place again");
    }
    assert_eq!([3, 5].map(|key| version(local.read().get(key).unwrap().1, key)), [2, 2]);
    let mut two = locals(2, 1000, 1, || [0; 512]).unwrap();
    assert_eq!((two[0].grow(), two[0].shrink::<Yield>()), (Err(NoMemory), false));
}

#[test]
fn a_frame_goes_back_to_its_core() {
    let mut cores = locals(2, 1000, 2, || [0; 512]).unwrap();
    let (mut second, mut first) = (cores.pop().unwrap(), cores.pop().unwrap());
    put(&mut first, 1, 1).unwrap();
    put(&mut first, 2, 1).unwrap();
    assert_eq!(put(&mut first, 3, 1), Err(NoRoom), "the other core's frames are its own");
    let frame = first.read().get(1).unwrap().0;
    // What the second writes is in a frame of its own; the old one goes home.
    assert_eq!(second.change::<Yield>(1, |old, new| fill(new, 1, version(old, 1) + 1)), Ok(true));
    assert_eq!(version(first.read().get(1).unwrap().1, 1), 2);
    assert_ne!(first.read().get(1).unwrap().0, frame);
    second.reclaim::<Yield>();
    assert_eq!(first.insert::<Yield>(3, |block| fill(block, 3, 1)), Ok(frame));
}

/// Who reads and who evicts: no block is another one's, or half of one, while it is read. Taken
/// out, the wait in `reclaim` fails this.
#[test]
fn no_block_is_used_again_under_a_reader() {
    const KEYS: u64 = 300;
    const CORES: usize = 3;
    let (ended, looks) = (AtomicBool::new(false), AtomicU64::new(0));
    let (ended, looks) = (&ended, &looks);
    thread::scope(|scope| {
        for (core, mut local) in locals(CORES, KEYS, 20, || [0; 512]).unwrap().into_iter().enumerate() {
            scope.spawn(move || {
                let mut seed = core as u64 + 1;
                let mut next = |below: u64| {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (seed >> 33) % below
                };
                let mut own = Vec::new();
                for step in 0.. {
                    if ended.load(Relaxed) || (core == 0 && step == 60_000) {
                        ended.store(true, Relaxed);
                        break;
                    }
                    let key = next(KEYS);
                    if core == 2 || step % 3 > 0 {
                        let section = local.read();
                        if let Some((_, block)) = section.get(key) {
                            let first = version(block, key);
                            assert_eq!(version(block, key), first, "it changed under its reader");
                            looks.fetch_add(1, Relaxed);
                        }
                        continue;
                    }
                    match step % 2 {
                        0 if put(&mut local, key, step & 0xffff).is_ok() => own.push(key),
                        0 => own.drain(..).for_each(|key| _ = local.remove(key)),
                        _ => {
                            let changed = |old: &Block, new: &mut Block| fill(new, key, version(old, key) ^ 1);
                            let _ = local.change::<Yield>(key, changed);
                        }
                    }
                }
            });
        }
    });
    assert!(looks.load(Relaxed) > 1000, "{looks:?} blocks were read");
}
