//! Judges where kernels wrote (tools/audit): each core's kernel writes memory of its own core only, but for wake bits of others, what
//! core 0 prepares for a core that does not run yet, and the pool in which an application of several cores shares its objects.
//!
//! Whose memory is whose the kernel says at boot when it is asked (`pelago.list=memory`). Deliberately unknown here: what is in it.

use crate::plugin;
use crate::symbols::Symbols;
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Asks the kernel to say whose memory is whose.
pub const COMMAND_LINE: &str = "pelago.list=memory";
/// What it says begins so.
const MEMORY: &str = "pelago: memory of core ";
/// A pool was made.
const POOL: &str = "pelago: memory of a pool: ";

/// The plugin, and where it writes; for [`crate::emulator::Machine::audit`].
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

    /// What was written until now, judged by what the guest said at boot.
    pub fn judge(&self, transcript: &[String]) -> Result<Verdict> {
        let text =
            std::fs::read_to_string(&self.record).context("the plugin wrote no record; its complaint is above")?;
        // The last line may be on its way.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        judge(whole, &Owners::parse(transcript.iter().map(String::as_str))?)
    }
}

/// Whose memory is whose.
#[derive(Default)]
struct Owners {
    /// First address of a range: its end and its core.
    ranges: BTreeMap<u64, (u64, u32)>,
    wake_bits: BTreeMap<u32, Range<u64>>,
    /// The first that was made, which the system's description gives to programs of several cores before they start. Others come and go with what a program of one core
    /// tries out, and are written by that core alone.
    pool: Option<Range<u64>>,
}

impl Owners {
    /// From lines `pelago: memory of core N: wake bits START+BYTES, START+BYTES, ...` (hexadecimal).
    fn parse<'l>(lines: impl Iterator<Item = &'l str> + Clone) -> Result<Owners> {
        let mut owners = Owners::default();
        if let Some(told) = lines.clone().find_map(|line| line.strip_prefix(POOL)) {
            owners.pool = Some(range(told).with_context(|| format!("`{told}` does not say where a pool is"))?);
        }
        for rest in lines.filter_map(|line| line.strip_prefix(MEMORY)) {
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

/// A write that is against the rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breach {
    /// Whose kernel it was.
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
        let Breach { core, owner, place, address } = self;
        let owner = owner.map_or("everybody".into(), |owner| format!("core {owner}"));
        let name = symbols.describe(&format!("bt: {address:#x} kernel")).replace("\n    ", " < ");
        format!("core {core} wrote {place:#x}, page {:#x}, of {owner}: {name}", place & !0xfff)
    }
}

/// What the record says.
#[derive(Debug, Default)]
pub struct Verdict {
    /// Lines that kernels wrote in memory of their own.
    pub own: usize,
    /// Wake bits of others, by who set them: the writes to others that are right, which show that such writes are seen.
    pub wakes: BTreeMap<u32, usize>,
    /// Lines of the pool that cores other than its home wrote, by who did.
    pub pool: BTreeMap<u32, usize>,
    /// All that is wrong.
    pub breaches: Vec<Breach>,
}

fn judge(record: &str, owners: &Owners) -> Result<Verdict> {
    let mut verdict = Verdict::default();
    let mut started: Vec<u32> = Vec::new();
    for line in record.lines() {
        let words: Vec<_> = line.split(' ').collect();
        let number = |text: &str| u64::from_str_radix(text, 16).with_context(|| format!("`{line}` in the record"));
        match words[..] {
            ["start", core] => started.push(core.parse()?),
            ["write", core, place, address] => {
                let (core, place, address) = (core.parse()?, number(place)?, number(address)?);
                let owner = owners.of(place);
                let matters = |other: &u32| *other != core && owner.is_none_or(|owner| owner == *other);
                match owner {
                    Some(owner) if owner == core => verdict.own += 1,
                    _ if !started.iter().any(matters) => {}
                    Some(owner) if owners.are_wake_bits(owner, place) => *verdict.wakes.entry(core).or_default() += 1,
                    _ if owners.pool.as_ref().is_some_and(|pool| pool.contains(&place)) => {
                        *verdict.pool.entry(core).or_default() += 1;
                    }
                    _ => verdict.breaches.push(Breach { core, owner, place, address }),
                }
            }
            _ => bail!("`{line}` in the record; tool and plugin are of different builds"),
        }
    }
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
    fn what_cannot_be_read_is_told() {
        assert!(Owners::parse(["pelago: ready"].into_iter()).is_err());
        assert!(Owners::parse(["pelago: memory of core 0: 1+2"].into_iter()).is_err());
        assert!(judge("nonsense", &Owners::parse(LINES.into_iter()).unwrap()).is_err());
    }
}
