//! The power is cut at any write of many runs, and what was promised is there.
//!
//! `PELAGO_EXT4_CUTS=2000` makes it as many cuts as that, of each of the five kinds of work;
//! `PELAGO_EXT4_SEED=9` is the one run of which a failure told the seed.

use std::collections::BTreeMap;
use std::rc::Rc;

use ext4::{Attributes, ROOT};

use crate::common::make;
use crate::disk::{Disk, Judge};
use crate::format::made_here;
use crate::power::{Extent, Failed, Machine, Work, run};
use crate::tree::Tree;

/// Runs in a plain test.
const SEEDS: u64 = 4;
/// `/lost+found`.
const LOST_FOUND: u32 = 11;

fn number(name: &str) -> Option<usize> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

/// Runs seeds of some work, of which each does as much as `extent` says.
fn run_seeds<W: Work>(mib: u64, extent: impl Fn(u64) -> Extent) {
    // Few inodes, so that freed ones are soon given out again.
    let Some(theirs) = make(mib, &["-N512"]) else { return };
    // Every second volume is one of mkfs.ext4, the others are made here.
    let bases = [theirs, made_here(mib)].map(Rc::new);
    let (seeds, wanted) = match (number("PELAGO_EXT4_SEED"), number("PELAGO_EXT4_CUTS")) {
        (Some(seed), _) => (seed as u64..seed as u64 + 1, usize::MAX),
        (None, Some(cuts)) => (0..u64::MAX, cuts),
        (None, None) => (0..SEEDS, usize::MAX),
    };
    let (mut cuts, mut runs) = (0, 0);
    for seed in seeds {
        let base = &bases[seed as usize % 2];
        let Some(mut judge) = Judge::new(base) else { return };
        cuts += run::<W>(base, &mut judge, seed, extent(seed)).unwrap_or_else(|told| panic!("{told}"));
        runs += 1;
        if cuts >= wanted {
            break;
        }
    }
    println!("{cuts} cuts in {runs} runs");
    assert!(cuts >= runs, "{cuts} cuts in {runs} runs");
}

/// The same, each with a disk that fails at some time.
fn run_failing<W: Work>(extent: Extent) {
    run_seeds::<W>(extent.mib, |seed| Extent { fails_at: seed as usize * 7 % extent.operations, ..extent });
}

/// Expects that cuts of a disk that lies are noticed.
fn expect_bite<W: Work>(extent: Extent) {
    let Some(image) = make(extent.mib, &[]) else { return };
    let base = Rc::new(image);
    let Some(mut judge) = Judge::new(&base) else { return };
    let bitten = (0..10).any(|seed| run::<W>(&base, &mut judge, seed, Extent { lies: true, ..extent }).is_err());
    assert!(bitten, "ten runs without a flush lose nothing");
}

/// Owners of two inodes.
#[derive(Clone)]
struct Owners(BTreeMap<u32, (u16, u32)>);

impl Work for Owners {
    fn begin(machine: &mut Machine) -> Owners {
        let of = |inode: ext4::Inode| (inode.permissions, inode.user);
        Owners([ROOT, LOST_FOUND].map(|number| (number, of(machine.inode(number).unwrap()))).into())
    }

    fn step(&mut self, machine: &mut Machine) {
        let number = if machine.random.one_in(2) { ROOT } else { LOST_FOUND };
        let (permissions, user) = (machine.random.below(0o10000) as u16, machine.random.next() as u32);
        let attributes = Attributes { permissions: Some(permissions), user: Some(user), ..Attributes::default() };
        machine.change(|operation| operation.set(number, &attributes)).unwrap();
        self.0.insert(number, (permissions, user));
    }

    fn compare(&self, _: &[&Owners], machine: &mut Machine) -> Result<(), String> {
        for (number, there) in &self.0 {
            let inode = machine.inode(*number).map_err(|failed| format!("{failed:?}"))?;
            if *there != (inode.permissions, inode.user) {
                return Err(format!("inode {number} is {:o} of {}", inode.permissions, inode.user));
            }
        }
        Ok(())
    }
}

const OWNERS: Extent = Extent { mib: 24, operations: 60, cut_in: 8, lies: false, fails_at: usize::MAX };

#[test]
fn owners_stand_every_cut() {
    run_seeds::<Owners>(OWNERS.mib, |_| OWNERS);
}

const TREE: Extent = Extent { mib: 24, operations: 300, cut_in: 60, lies: false, fails_at: usize::MAX };

#[test]
fn a_tree_stands_every_cut() {
    run_seeds::<Tree>(TREE.mib, |_| TREE);
}

#[test]
fn a_tree_on_a_full_volume_stands_every_cut() {
    run_seeds::<Tree>(8, |_| Extent { mib: 8, ..TREE });
}

#[test]
fn a_tree_stands_a_disk_that_fails() {
    run_failing::<Tree>(TREE);
}

#[test]
fn owners_stand_a_disk_that_fails() {
    run_failing::<Owners>(OWNERS);
}

#[test]
fn what_cannot_be_read_fails_and_changes_nothing() {
    let Some(image) = make(24, &[]) else { return };
    let mut machine = Machine::mount(Disk::new(&Rc::new(image)), 1).unwrap();
    let mut work = Owners::begin(&mut machine);
    let attributes = Attributes { user: Some(7), ..Attributes::default() };
    for block in 0..machine.disk.blocks() {
        machine.disk.faults.reads = [block].into();
        match machine.change(|operation| operation.set(ROOT, &attributes)) {
            Ok(()) => {
                if let Some((_, user)) = work.0.get_mut(&ROOT) {
                    *user = 7;
                }
            }
            Err(failed) => assert_eq!(failed, Failed::Disk, "block {block}"),
        }
        machine.disk.faults.reads.clear();
        assert_eq!(work.compare(&[], &mut machine), Ok(()), "block {block}");
    }
}

#[test]
fn a_disk_that_only_says_that_it_flushed_is_noticed() {
    expect_bite::<Owners>(OWNERS);
}
