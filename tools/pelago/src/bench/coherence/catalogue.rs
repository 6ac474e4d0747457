//! Every row of the model: where each system's figures come from, or why there are none, and which
//! paper's figure it belongs to.

use crate::bench::Side;
use std::collections::BTreeSet;

/// Where a system's figures of a row come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Means {
    /// Our component `load` (`apps/bench`), one per core.
    Component,
    /// The same on machines of two and more cores.
    ComponentOfMany,
    /// The same on machines of at most so many; why not on more.
    ComponentUpTo(u32, &'static str),
    /// Our component on a machine with a disk, on which is a volume.
    ComponentOnDisk,
    /// The measuring program (`tools/measure`), one worker per core.
    Program,
    /// The same on a machine of one core; why not on more.
    ProgramOnOneCore(&'static str),
    /// Nowhere: why.
    Absent(&'static str),
}

/// One row.
pub struct Entry {
    pub row: &'static str,
    /// A paper's figure, or what the row is good for.
    pub paper: &'static str,
    pub pelago: Means,
    pub linux: Means,
}

/// What a boot runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Load {
    /// Families of rows of our component.
    Component,
    /// The same with a disk.
    ComponentOnDisk,
    /// These of the measuring program.
    Program,
}

/// One boot, and the rows that are wanted of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Boot {
    pub side: Side,
    pub cpus: u32,
    pub load: Load,
    pub rows: Vec<&'static str>,
}

impl Boot {
    /// What stands before the slash in the names of the rows.
    pub fn families(&self) -> BTreeSet<&'static str> {
        self.rows.iter().map(|row| row.split_once('/').map_or(*row, |(family, _)| family)).collect()
    }
}

/// A row that was asked for and that a system has not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Absent {
    pub side: Side,
    pub row: &'static str,
    pub why: &'static str,
}

const NO_THREADS: Means = Means::Absent("a process has one thread as yet");
const ONE_CORE: Means = Means::ProgramOnOneCore("Linux programs all live on one core as yet");
const OURS_ONLY: Means = Means::Absent("Linux has nothing of the kind");
const LAYOUTS: Means = Means::Absent("its two layouts are page-touch/threads and page-touch/processes");
const SAME_ANYWHERE: Means = Means::Absent("it is user code, the same in both systems");

const NO_ROW: Means = Means::Absent("the measuring program has no such row yet");
const BLOCKS: Means = Means::ComponentUpTo(32, "its memory in common is for 32 cores");

const fn entry(row: &'static str, paper: &'static str, pelago: Means, linux: Means) -> Entry {
    Entry { row, paper, pelago, linux }
}

use Means::{Absent as Not, Component, ComponentOfMany, ComponentOnDisk, Program};

/// All of them.
pub const ENTRIES: [Entry; 42] = [
    entry("shared-counter", "known answer: 1", Component, Program),
    entry("private-counter", "known answer: 0", Component, Program),
    entry("null-call", "-", Component, Program),
    entry("dup-close/threads", "Corey fig. 1", NO_THREADS, Program),
    entry("dup-close/processes", "Corey fig. 1", ONE_CORE, Program),
    entry("share-add-remove/root", "Corey fig. 9", Component, OURS_ONLY),
    entry("share-add-remove/own", "Corey fig. 9", Component, OURS_ONLY),
    entry("share-add-remove/global-spin", "Corey fig. 9", Component, OURS_ONLY),
    entry("share-add-remove/global-read-write", "Corey fig. 9", Component, OURS_ONLY),
    entry("share-add-remove/global-mcs", "Corey fig. 9", Component, OURS_ONLY),
    entry("share-add-remove/global-scalable", "Corey fig. 9", Component, OURS_ONLY),
    entry("memclone/single", "Corey fig. 7a", Component, LAYOUTS),
    entry("mempass/single", "Corey fig. 7b", Component, LAYOUTS),
    entry("memclone/separate", "Corey fig. 7a", Component, LAYOUTS),
    entry("mempass/separate", "Corey fig. 7b", Component, LAYOUTS),
    entry("memclone/mixed", "Corey fig. 7a", Component, LAYOUTS),
    entry("mempass/mixed", "Corey fig. 7b", Component, LAYOUTS),
    entry("page-touch/threads", "Corey fig. 7, fos fig. 1", Not("a domain is of one core as yet"), Program),
    entry("page-touch/processes", "Corey fig. 7, fos fig. 1", Component, Program),
    entry("update-shared/1", "Barrelfish fig. 3", Component, SAME_ANYWHERE),
    entry("update-shared/2", "Barrelfish fig. 3", Component, SAME_ANYWHERE),
    entry("update-shared/4", "Barrelfish fig. 3", Component, SAME_ANYWHERE),
    entry("update-shared/8", "Barrelfish fig. 3", Component, SAME_ANYWHERE),
    entry("update-messages/1", "Barrelfish fig. 3", ComponentOfMany, SAME_ANYWHERE),
    entry("update-server/1", "Barrelfish fig. 3", ComponentOfMany, SAME_ANYWHERE),
    entry("update-messages/8", "Barrelfish fig. 3", ComponentOfMany, SAME_ANYWHERE),
    entry("update-server/8", "Barrelfish fig. 3", ComponentOfMany, SAME_ANYWHERE),
    entry("message/round-trip", "Barrelfish table 2", ComponentOfMany, OURS_ONLY),
    entry("message/send", "Barrelfish table 2", ComponentOfMany, OURS_ONLY),
    entry("message/receive", "Barrelfish table 2", ComponentOfMany, OURS_ONLY),
    entry("buffers/read-cached", "Corey 5.3, fos 3.4", BLOCKS, NO_ROW),
    entry("buffers/read-locked", "Corey 5.3", BLOCKS, NO_ROW),
    entry("buffers/read-written", "Corey 5.3, fos 3.4", BLOCKS, NO_ROW),
    entry("buffers/write-apart", "Corey 5.3", BLOCKS, NO_ROW),
    entry("buffers/write-apart-common", "Corey 5.3", BLOCKS, NO_ROW),
    entry("buffers/write-hot", "Corey 5.3", BLOCKS, NO_ROW),
    entry("buffers/write-hot-common", "Corey 5.3", BLOCKS, NO_ROW),
    entry("files/read-kept", "fos 3.4", ComponentOnDisk, NO_ROW),
    entry("files/read-written", "fos 3.4", ComponentOnDisk, NO_ROW),
    entry("files/read-changing", "fos 3.4", ComponentOnDisk, NO_ROW),
    entry("files/read-asked", "fos 3.4", ComponentOnDisk, NO_ROW),
    entry("unmap", "Barrelfish fig. 6, 7", Not("a domain is of one core as yet"), NO_ROW),
];

/// What has to be booted for the rows whose names, `SYSTEM/ROW`, contain one of `names` (all, if
/// there is none), and what is not to be had.
pub fn plan(names: &[String], cpus: u32) -> (Vec<Boot>, Vec<Absent>) {
    let (mut boots, mut absent): (Vec<Boot>, _) = (Vec::new(), Vec::new());
    for side in [Side::Pelago, Side::Linux] {
        for entry in ENTRIES.iter().filter(|entry| wanted(names, side, entry.row)) {
            let load = match (if side == Side::Pelago { entry.pelago } else { entry.linux }, cpus) {
                (Means::Component, _) | (Means::ComponentOfMany, 2..) => Load::Component,
                (Means::ComponentUpTo(most, _), _) if cpus <= most => Load::Component,
                (Means::ComponentOnDisk, _) => Load::ComponentOnDisk,
                (Means::Program, _) | (Means::ProgramOnOneCore(_), 1) => Load::Program,
                (Means::ComponentOfMany, _) => continue,
                (Means::ComponentUpTo(_, why) | Means::ProgramOnOneCore(why) | Means::Absent(why), _) => {
                    absent.push(Absent { side, row: entry.row, why });
                    continue;
                }
            };
            match boots.iter_mut().find(|boot| boot.side == side && boot.load == load) {
                Some(boot) => boot.rows.push(entry.row),
                None => boots.push(Boot { side, cpus, load, rows: vec![entry.row] }),
            }
        }
    }
    (boots, absent)
}

fn wanted(names: &[String], side: Side, row: &str) -> bool {
    let name = format!("{}/{row}", side.name());
    names.is_empty() || names.iter().any(|wish| name.contains(wish.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(names: &[&str], cpus: u32) -> (Vec<Boot>, Vec<Absent>) {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        plan(&names, cpus)
    }

    #[test]
    fn rows_of_the_measuring_program_are_those_it_has() {
        let ours: BTreeSet<_> =
            ENTRIES.iter().filter(|entry| entry.linux == Means::Program).map(|entry| entry.row).collect();
        let its: BTreeSet<_> = measure_core::model::ROWS.iter().map(|row| row.name).collect();
        assert_eq!(ours, its);
    }

    #[test]
    fn what_is_wanted_decides_what_is_booted() {
        let (boots, absent) = planned(&["Linux/dup-close"], 4);
        let [Boot { side: Side::Linux, cpus: 4, load: Load::Program, rows }] = &boots[..] else { panic!("{boots:?}") };
        assert_eq!((&rows[..], absent.len()), (&["dup-close/threads", "dup-close/processes"][..], 0));
        let (boots, absent) = planned(&["Pelago/dup-close"], 4);
        assert_eq!((boots.len(), absent.len()), (0, 2));
        let (boots, absent) = planned(&["Pelago/dup-close"], 1);
        assert_eq!((boots.len(), absent.len()), (1, 1));
        let (boots, _) = planned(&["Pelago/message/", "Pelago/null-call"], 2);
        let [boot] = &boots[..] else { panic!("{boots:?}") };
        assert_eq!(Vec::from_iter(boot.families()), ["message", "null-call"]);
        // What has no disk is measured without one.
        let (boots, _) = planned(&["Pelago/files", "Pelago/null-call"], 2);
        let [_, Boot { load: Load::ComponentOnDisk, rows, .. }] = &boots[..] else { panic!("{boots:?}") };
        assert!(rows.iter().all(|row| row.starts_with("files/")), "{rows:?}");
        assert_eq!(planned(&[], 2).0.len(), 3);
        let rows = |cpus| planned(&["Pelago/buffers/read"], cpus).0.iter().map(|boot| boot.rows.len()).sum::<usize>();
        assert_eq!([1, 32, 33].map(rows), [3, 3, 0]);
        assert_eq!(planned(&["nothing"], 2), (vec![], vec![]));
    }
}
