//! Judges what the code of each core used (tools/audit). Kernels write memory of their own core
//! only, but for wake bits of others, what core 0 prepares for a core that does not run yet, and
//! the pool in which an application of several cores shares its objects. Programs write memory of
//! their own core and what their monitor told that the core borrows, which are channels, regions of
//! the description and the clock page; and of others' they read nothing else that anybody writes.
//!
//! Whose memory is whose the kernel says at boot when it is asked (`pelago.list=memory`), and
//! monitors when a channel is made. Deliberately unknown here: what is in it.

use crate::bench::plugin;
use crate::image::symbols::Symbols;
use anyhow::{Context, Result, bail, ensure};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Asks the kernel to say whose memory is whose.
pub const COMMAND_LINE: &str = "pelago.list=memory";
/// What it says begins so.
const MEMORY: &str = "pelago: memory of core ";
/// A monitor made a channel or region that several cores have.
const BORROWED: &str = "memory that core ";
/// A pool was made.
const POOL: &str = "pelago: memory of a pool: ";

/// The plugin, and where it writes; for [`crate::machine::emulator::Machine::audit`].
#[derive(Clone, Debug)]
pub struct Audit {
    library: PathBuf,
    record: PathBuf,
}

impl Audit {
    /// Checks the emulator and builds the plugin; its record comes into `folder`.
    pub fn prepare(folder: &Path) -> Result<Audit> {
        plugin::check_emulator()?;
        let record = folder.join("writes");
        ensure!(
            !record.to_string_lossy().contains(','),
            "the temporary folder {} has a comma in its name, which the emulator cannot take; set TMPDIR to another",
            folder.display()
        );
        Ok(Audit { library: plugin::build("pelago-audit")?, record })
    }

    /// The emulator's argument.
    pub fn argument(&self) -> String {
        format!("{},out={}", self.library.display(), self.record.display())
    }

    /// What was done until now. What the guest says of whose memory it is may still be on its way.
    pub fn record(&self) -> Result<Record> {
        let mut text =
            std::fs::read_to_string(&self.record).context("the plugin wrote no record; its complaint is above")?;
        // The last line may be half there.
        text.truncate(text.rfind('\n').unwrap_or(0));
        Ok(Record(text))
    }
}

/// What was done, in the plugin's words.
pub struct Record(String);

impl Record {
    /// Judged by what the guest said.
    pub fn judge(&self, transcript: &[String]) -> Result<Verdict> {
        judge(&self.0, &Owners::parse(transcript.iter().map(String::as_str))?)
    }
}

/// Whose memory is whose.
#[derive(Default)]
struct Owners {
    /// First address of a range: its end and its core.
    ranges: BTreeMap<u64, (u64, u32)>,
    wake_bits: BTreeMap<u32, Range<u64>>,
    /// The first that was made, which the system's description gives to programs of several cores
    /// before they start. Others come and go with what a program of one core tries out, and are
    /// written by that core alone.
    pool: Option<Range<u64>>,
    /// What each core has of others.
    borrowed: BTreeMap<u32, Vec<Range<u64>>>,
}

impl Owners {
    /// From lines `pelago: memory of core N: wake bits START+BYTES, START+BYTES, ...`
    /// (hexadecimal).
    fn parse<'l>(lines: impl Iterator<Item = &'l str> + Clone) -> Result<Owners> {
        let mut owners = Owners::default();
        if let Some(told) = lines.clone().find_map(|line| line.strip_prefix(POOL)) {
            owners.pool = Some(range(told).with_context(|| format!("`{told}` does not say where a pool is"))?);
        }
        for rest in lines.clone().filter_map(|line| line.strip_prefix(MEMORY)) {
            let read = || {
                let (core, ranges) = rest.split_once(": wake bits ")?;
                let ranges: Option<Vec<_>> = ranges.split(", ").map(range).collect();
                Some((core.parse().ok()?, ranges?))
            };
            let (core, ranges): (u32, Vec<Range<u64>>) =
                read().with_context(|| format!("`{rest}` does not say whose memory is whose"))?;
            let [wake_bits, memory @ ..] = &ranges[..] else { bail!("core {core} has no memory") };
            owners.wake_bits.insert(core, wake_bits.clone());
            owners.ranges.extend(memory.iter().map(|range| (range.start, (range.end, core))));
        }
        for rest in lines.filter_map(|line| Some(line.split_once(BORROWED)?.1)) {
            let read = || {
                let (core, told) = rest.split_once(" borrows: ")?;
                Some((core.parse().ok()?, range(told.split(' ').next()?)?))
            };
            let (core, range): (u32, _) = read().with_context(|| format!("`{rest}` does not say what is borrowed"))?;
            owners.borrowed.entry(core).or_default().push(range);
        }
        ensure!(
            !owners.ranges.is_empty(),
            "the kernel did not say whose memory is whose; it was not asked ({COMMAND_LINE})"
        );
        Ok(owners)
    }

    fn of(&self, place: u64) -> Option<u32> {
        let (_, (end, core)) = self.ranges.range(..=place).next_back()?;
        (place < *end).then_some(*core)
    }

    fn is_pool(&self, place: u64) -> bool {
        self.pool.as_ref().is_some_and(|pool| pool.contains(&place))
    }

    fn borrows(&self, core: u32, place: u64) -> bool {
        self.borrowed.get(&core).is_some_and(|ranges| ranges.iter().any(|range| range.contains(&place)))
    }

    fn are_wake_bits(&self, core: u32, place: u64) -> bool {
        self.wake_bits.get(&core).is_some_and(|bits| bits.start & !(LINE_BYTES - 1) <= place && place < bits.end)
    }
}

const LINE_BYTES: u64 = 64;

fn range(text: &str) -> Option<Range<u64>> {
    let (start, bytes) = text.trim().split_once('+')?;
    let number = |text: &str| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok();
    let start = number(start)?;
    Some(start..start + number(bytes)?)
}

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Deed {
    /// The kernel wrote.
    Write,
    /// A program wrote.
    Store,
    /// A program read what somebody writes.
    Load,
}

/// Something that is against the rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breach {
    pub deed: Deed,
    /// Whose kernel or program it was.
    pub core: u32,
    /// Whose memory it is; `None`: everybody's, and constant since the second core started.
    pub owner: Option<u32>,
    /// Physical address of the line.
    pub place: u64,
    /// The instruction.
    pub address: u64,
}

impl Breach {
    /// One line, with the function.
    pub fn describe(&self, symbols: &mut Symbols) -> String {
        let Breach { deed, core, owner, place, address } = self;
        let owner = owner.map_or("everybody".into(), |owner| format!("core {owner}"));
        let (what, name) = match deed {
            Deed::Write => ("wrote", symbols.describe(&format!("bt: {address:#x} kernel")).replace("\n    ", " < ")),
            Deed::Store => ("had a program write", format!("at {address:#x}")),
            Deed::Load => ("had a program read", format!("at {address:#x}")),
        };
        format!("core {core} {what} {place:#x}, page {:#x}, of {owner}: {name}", place & !0xfff)
    }
}

/// What the record says.
#[derive(Debug, Default)]
pub struct Verdict {
    /// Lines that kernels wrote in memory of their own.
    pub own: usize,
    /// Wake bits of others, by who set them: the writes to others that are right, which show that
    /// such writes are seen.
    pub wakes: BTreeMap<u32, usize>,
    /// Lines of the pool that kernels of cores other than its home wrote, by who did.
    pub pool: BTreeMap<u32, usize>,
    /// Lines of it that an application's programs there wrote or read.
    pub shared: BTreeMap<u32, usize>,
    /// Lines of what it borrows that a core's programs wrote or read: the way by which they speak.
    pub channels: BTreeMap<u32, usize>,
    /// All that is wrong.
    pub breaches: Vec<Breach>,
}

fn judge(record: &str, owners: &Owners) -> Result<Verdict> {
    let mut verdict = Verdict::default();
    let mut started: Vec<u32> = Vec::new();
    // Since the last core started: who wrote a line, and what programs read.
    let (mut writers, mut loads): (HashMap<u64, Vec<u32>>, Vec<Breach>) = Default::default();
    for line in record.lines() {
        let words: Vec<_> = line.split(' ').collect();
        let number = |text: &str| u64::from_str_radix(text, 16).with_context(|| format!("`{line}` in the record"));
        let (deed, core, place, address) = match words[..] {
            ["start", core] => {
                started.push(core.parse()?);
                writers.clear();
                loads.clear();
                continue;
            }
            ["write", core, place, address] => (Deed::Write, core.parse()?, number(place)?, number(address)?),
            ["store", core, place, address] => (Deed::Store, core.parse()?, number(place)?, number(address)?),
            ["load", core, place, address] => (Deed::Load, core.parse()?, number(place)?, number(address)?),
            _ => bail!("`{line}` in the record; tool and plugin are of different builds"),
        };
        let owner = owners.of(place);
        let breach = Breach { deed, core, owner, place, address };
        if deed != Deed::Load {
            writers.entry(place).or_default().push(core);
        }
        let matters = |other: &u32| *other != core && owner.is_none_or(|owner| owner == *other);
        match owner {
            Some(owner) if owner == core => verdict.own += usize::from(deed == Deed::Write),
            _ if !started.iter().any(matters) => {}
            _ if deed != Deed::Write && owners.borrows(core, place) => *verdict.channels.entry(core).or_default() += 1,
            _ if owners.is_pool(place) => {
                let uses = if deed == Deed::Write { &mut verdict.pool } else { &mut verdict.shared };
                *uses.entry(core).or_default() += 1;
            }
            _ if deed == Deed::Load => loads.push(breach),
            Some(owner) if deed == Deed::Write && owners.are_wake_bits(owner, place) => {
                *verdict.wakes.entry(core).or_default() += 1;
            }
            _ => verdict.breaches.push(breach),
        }
    }
    // What nobody writes any more may be read by all: it is a constant.
    let is_written =
        |load: &Breach| writers.get(&load.place).is_some_and(|cores| cores.iter().any(|core| *core != load.core));
    verdict.breaches.extend(loads.into_iter().filter(is_written));
    Ok(verdict)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: [&str; 3] = [
        "pelago: boot 2 cores",
        "pelago: memory of core 0: wake bits 0x1100+0x80, 0x1000+0x1000, 0x2000+0x8000",
        "pelago: memory of core 1: wake bits 0x10100+0x80, 0x10000+0x1000, 0x20000+0x8000",
    ];

    fn judged(record: &str) -> Verdict {
        judge(record, &Owners::parse(LINES.into_iter()).unwrap()).unwrap()
    }

    #[test]
    fn a_core_writes_its_own_and_prepares_those_that_do_not_run() {
        let verdict = judged("start 0\nwrite 0 2040 f1\nwrite 0 10100 f2\nwrite 0 40000 f3\nstart 1\nwrite 1 20000 f4");
        assert_eq!((verdict.own, verdict.breaches.len(), verdict.wakes.len()), (2, 0, 0));
    }

    #[test]
    fn wake_bits_are_the_exception() {
        let verdict = judged("start 0\nstart 1\nwrite 1 1140 f1\nwrite 0 10100 f2");
        assert_eq!((verdict.wakes, verdict.breaches), (BTreeMap::from([(0, 1), (1, 1)]), vec![]));
    }

    #[test]
    fn others_memory_and_everybodys_are_breaches() {
        let verdict = judged("start 0\nstart 1\nwrite 1 1180 f1\nwrite 0 20000 f2\nwrite 0 40000 f3");
        let owners: Vec<_> =
            verdict.breaches.iter().map(|breach| (breach.core, breach.owner, breach.address)).collect();
        assert_eq!(owners, [(1, Some(0), 0xf1), (0, Some(1), 0xf2), (0, None, 0xf3)]);
    }

    #[test]
    fn the_first_pool_is_everybodys_and_later_ones_are_their_cores() {
        let pools = ["pelago: memory of a pool: 0x3000+0x1000", "pelago: memory of a pool: 0x5000+0x1000"];
        let owners = Owners::parse(LINES.into_iter().chain(pools)).unwrap();
        let record =
            "start 0\nstart 1\nwrite 1 3000 f1\nwrite 1 3fc0 f2\nwrite 1 4000 f3\nwrite 1 5000 f4\nwrite 0 5000 f5";
        let verdict = judge(record, &owners).unwrap();
        let addresses: Vec<_> = verdict.breaches.iter().map(|breach| breach.address).collect();
        assert_eq!((verdict.pool, addresses, verdict.own), (BTreeMap::from([(1, 2)]), vec![0xf3, 0xf4], 1));
        let broken = LINES.into_iter().chain(["pelago: memory of a pool: here"]);
        assert!(Owners::parse(broken).is_err());
    }

    #[test]
    fn programs_speak_over_what_is_borrowed_only() {
        let told = ["monitor: memory that core 1 borrows: 0x2000+0x1000 network"];
        let owners = Owners::parse(LINES.into_iter().chain(told)).unwrap();
        let record = [
            "start 0\nstore 0 2000 e0\nload 0 40000 e0\nstart 1\nload 1 1080 e0",
            // Over the channel, and what nobody writes any more.
            "store 1 2000 e1\nload 1 2fc0 e2\nload 1 9000 e3\nload 1 40000 e3",
            // In its own memory; then beside the channel, in memory of others and of everybody.
            "store 0 3000 e4\nload 1 3000 f1\nload 1 3040 e5\nstore 1 3000 f2\nstore 0 40040 f3\nwrite 0 3040 e6",
        ];
        let verdict = judge(&record.join("\n"), &owners).unwrap();
        let mut breaches: Vec<_> =
            verdict.breaches.iter().map(|breach| (breach.address, breach.deed, breach.core)).collect();
        breaches.sort_unstable();
        let wrong = [(0xe5, Deed::Load, 1), (0xf1, Deed::Load, 1), (0xf2, Deed::Store, 1), (0xf3, Deed::Store, 0)];
        assert_eq!((breaches, verdict.channels), (wrong.to_vec(), BTreeMap::from([(1, 2)])));
        assert!(Owners::parse(LINES.into_iter().chain(["monitor: memory that core 1 borrows: here"])).is_err());
    }

    #[test]
    fn what_cannot_be_read_is_told() {
        assert!(Owners::parse(["pelago: ready"].into_iter()).is_err());
        assert!(Owners::parse(["pelago: memory of core 0: 1+2"].into_iter()).is_err());
        assert!(judge("nonsense", &Owners::parse(LINES.into_iter()).unwrap()).is_err());
    }
}
