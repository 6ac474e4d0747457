//! Adds up events by stretch, component and function.
//!
//! A stretch belongs to the core that began it. What a core without one of its own does goes to the
//! stretch that counts every core, if one is open; else it is not kept.

use crate::{Counters, FunctionId, FunctionRow, Names, Report, Row, Sample, proxy_name};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// What is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Instructions only.
    Count,
    /// And memory accesses.
    Coherence,
}

impl Mode {
    /// Its name in options and reports.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Count => "count",
            Mode::Coherence => "coherence",
        }
    }
}

/// A function of a component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketId(u32);

struct Stretch {
    row: usize,
    operations: u64,
    begun_at: u64,
    /// How long each core had been awake when it began.
    awake: Vec<u64>,
    counters: Vec<Counters>,
}

#[derive(Default)]
struct Entry {
    name: String,
    /// The component that made the first mark.
    begun_by: String,
    cores: BTreeSet<usize>,
    operations: u64,
    elapsed: u64,
    awake: Vec<u64>,
    samples: Vec<Sample>,
    total: BTreeMap<u32, Counters>,
}

/// See the module's head.
pub struct Ledger {
    mode: Mode,
    components: Vec<String>,
    buckets: Vec<(u16, FunctionId)>,
    known: HashMap<(u16, FunctionId), BucketId>,
    open: Vec<Option<Stretch>>,
    every: Option<(usize, Stretch)>,
    rows: Vec<Entry>,
    unmatched: u64,
    /// Of each component that has one, the component of its proxy.
    proxies: HashMap<u16, u16>,
}

/// A stretch as it begins.
#[derive(Clone, Copy, Debug)]
pub struct Begin<'a> {
    /// As its mark says.
    pub name: &'a str,
    /// As its mark says.
    pub operations: u64,
    /// It takes what other cores do, too, where they have none of their own.
    pub every_core: bool,
    /// The component that makes the mark.
    pub component: u16,
    /// The core's clock, in modelled cycles.
    pub at: u64,
    /// How long each core has been awake.
    pub awake: &'a [u64],
}

impl Ledger {
    /// An empty one.
    pub fn new(mode: Mode, cores: usize) -> Ledger {
        Ledger {
            mode,
            components: Vec::new(),
            buckets: Vec::new(),
            known: HashMap::new(),
            open: (0..cores).map(|_| None).collect(),
            every: None,
            rows: Vec::new(),
            unmatched: 0,
            proxies: HashMap::new(),
        }
    }

    /// The number of a component; the same name has the same number.
    pub fn component(&mut self, name: &str) -> u16 {
        let known = self.components.iter().position(|known| known == name);
        let index = known.unwrap_or_else(|| {
            self.components.push(name.to_owned());
            self.components.len() - 1
        });
        u16::try_from(index).expect("fewer components than 65536")
    }

    /// The component of the Linux proxy that lies in another component's address space.
    pub fn proxy_of(&mut self, component: u16) -> u16 {
        if let Some(&proxy) = self.proxies.get(&component) {
            return proxy;
        }
        let proxy = self.component(&proxy_name(self.component_name(component)));
        self.proxies.insert(component, proxy);
        proxy
    }

    /// The name of a component.
    pub fn component_name(&self, component: u16) -> &str {
        &self.components[usize::from(component)]
    }

    /// Where events of that function of that component are added up.
    pub fn bucket(&mut self, component: u16, function: FunctionId) -> BucketId {
        let next = BucketId(self.buckets.len() as u32);
        let id = *self.known.entry((component, function)).or_insert(next);
        if id == next {
            self.buckets.push((component, function));
        }
        id
    }

    /// The function of a bucket.
    pub fn function(&self, bucket: BucketId) -> FunctionId {
        self.buckets[bucket.0 as usize].1
    }

    /// Begins a stretch of `core`, or of every core.
    pub fn begin(&mut self, core: usize, begin: Begin) {
        let Begin { name, operations, every_core, component, at, awake } = begin;
        let row = self.rows.iter().position(|row| row.name == name).unwrap_or_else(|| {
            let begun_by = self.component_name(component).to_owned();
            self.rows.push(Entry { name: name.to_owned(), begun_by, ..Entry::default() });
            self.rows.len() - 1
        });
        let stretch = Stretch { row, operations, begun_at: at, awake: awake.to_vec(), counters: Vec::new() };
        let lost = if every_core {
            self.every.replace((core, stretch)).is_some()
        } else {
            self.open[core].replace(stretch).is_some()
        };
        self.unmatched += u64::from(lost);
    }

    /// Ends the stretch that `core` began; `at` is its clock now, and `awake` as it began.
    pub fn end(&mut self, core: usize, at: u64, awake: &[u64]) {
        let every = self.every.take_if(|(owner, _)| *owner == core).map(|(_, stretch)| stretch);
        let Some(stretch) = self.open[core].take().or(every) else {
            self.unmatched += 1;
            return;
        };
        let row = &mut self.rows[stretch.row];
        row.cores.insert(core);
        row.operations += stretch.operations;
        row.elapsed += at - stretch.begun_at;
        row.awake.resize(awake.len(), 0);
        let parts = awake.iter().zip(&stretch.awake).map(|(now, begun)| now - begun);
        row.awake.iter_mut().zip(parts).for_each(|(sum, part)| *sum += part);
        let mut sample = Sample { operations: stretch.operations, ..Sample::default() };
        for (index, counters) in (0..).zip(&stretch.counters).filter(|(_, counters)| **counters != Counters::default())
        {
            *row.total.entry(index).or_default() += *counters;
            sample.instructions += counters.instructions;
            let component = &self.components[usize::from(self.buckets[index as usize].0)];
            *sample.components.entry(component.clone()).or_default() += counters.instructions;
        }
        row.samples.push(sample);
    }

    /// True while `core`'s events are kept.
    #[inline]
    pub fn keeps(&self, core: usize) -> bool {
        self.open[core].is_some() || self.every.is_some()
    }

    /// What `core`'s events are added to; `None` if they are not kept.
    #[inline]
    pub fn at(&mut self, core: usize, bucket: BucketId) -> Option<&mut Counters> {
        let stretch = self.open[core].as_mut().or(self.every.as_mut().map(|(_, stretch)| stretch))?;
        let index = bucket.0 as usize;
        if stretch.counters.len() <= index {
            stretch.counters.resize(index + 1, Counters::default());
        }
        Some(&mut stretch.counters[index])
    }

    /// Everything so far.
    pub fn report(&self, names: &Names, turn: u64) -> Report {
        let rows = self.rows.iter().filter(|row| !row.samples.is_empty()).map(|row| self.row(row, names)).collect();
        Report { mode: self.mode.name().to_owned(), turn, unmatched: self.unmatched, rows, steps: Vec::new() }
    }

    fn row(&self, entry: &Entry, names: &Names) -> Row {
        let mut row = Row {
            name: entry.name.clone(),
            begun_by: entry.begun_by.clone(),
            cores: entry.cores.len() as u64,
            operations: entry.operations,
            elapsed: entry.elapsed,
            awake: entry.awake.clone(),
            stretches: entry.samples.len() as u64,
            ..Row::default()
        };
        for (&index, &counters) in &entry.total {
            let (component, function) = self.buckets[index as usize];
            let component = self.component_name(component).to_owned();
            row.total += counters;
            *row.components.entry(component.clone()).or_default() += counters;
            row.functions.push(FunctionRow { component, function: names.name(function).to_owned(), counters });
        }
        row.functions.sort_by(|one, other| {
            let weight = |row: &FunctionRow| std::cmp::Reverse((row.counters.cycles, row.counters.instructions));
            let name = |row: &FunctionRow| (row.component.clone(), row.function.clone());
            weight(one).cmp(&weight(other)).then_with(|| name(one).cmp(&name(other)))
        });
        // By a fraction's cross product, so that no rounding decides.
        let mut samples = entry.samples.clone();
        samples
            .sort_by_key(|sample| u128::from(sample.instructions) * 1_000_000 / u128::from(sample.operations.max(1)));
        row.median = samples.swap_remove(samples.len() / 2);
        row
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(ledger: &mut Ledger, core: usize, name: &str, operations: u64, every_core: bool) {
        let component = ledger.component("user");
        ledger.begin(core, Begin { name, operations, every_core, component, at: 0, awake: &[] });
    }

    fn add(ledger: &mut Ledger, core: usize, component: &str, instructions: u64) {
        let component = ledger.component(component);
        let bucket = ledger.bucket(component, Names::default().at("", 0));
        if let Some(counters) = ledger.at(core, bucket) {
            counters.instructions += instructions;
        }
    }

    #[test]
    fn stretches_are_kept_by_core_and_the_median_is_one_of_them() {
        let mut ledger = Ledger::new(Mode::Count, 2);
        add(&mut ledger, 0, "user", 99);
        for instructions in [50, 10, 20] {
            begin(&mut ledger, 0, "call", 10, false);
            add(&mut ledger, 0, "user", instructions);
            add(&mut ledger, 0, "kernel", 5);
            add(&mut ledger, 1, "user", 1000);
            ledger.end(0, 0, &[]);
        }
        let report = ledger.report(&Names::default(), 200);
        let [row] = &report.rows[..] else { panic!("{report:?}") };
        assert_eq!((row.operations, row.cores, row.stretches, row.total.instructions), (30, 1, 3, 95));
        assert_eq!((row.median.instructions, row.median.components["user"]), (25, 20));
        assert_eq!((row.components["kernel"].instructions, report.unmatched), (15, 0));
        assert_eq!(row.functions[0].component, "user");
    }

    #[test]
    fn a_program_and_its_proxy_are_told_apart_and_so_is_who_measures() {
        let mut ledger = Ledger::new(Mode::Count, 1);
        let [server, user] = ["linux-3", "user"].map(|name| ledger.component(name));
        let proxy = ledger.proxy_of(server);
        assert_eq!(ledger.component_name(proxy), "linux-3/proxy");
        assert_eq!((ledger.proxy_of(server), ledger.component("linux-3/proxy")), (proxy, proxy));
        assert!(ledger.proxy_of(user) != proxy && proxy != server);
        begin(&mut ledger, 0, "request", 1, false);
        add(&mut ledger, 0, "linux-3", 7);
        add(&mut ledger, 0, "linux-3/proxy", 9);
        ledger.end(0, 0, &[]);
        let report = ledger.report(&Names::default(), 200);
        let [row] = &report.rows[..] else { panic!("{report:?}") };
        assert_eq!((row.begun_by.as_str(), row.median.instructions), ("user", 16));
        assert_eq!((row.median.components["linux-3"], row.median.components["linux-3/proxy"]), (7, 9));
    }

    #[test]
    fn a_stretch_of_every_core_takes_what_others_do_not_keep() {
        let mut ledger = Ledger::new(Mode::Count, 3);
        begin(&mut ledger, 0, "all", 1, true);
        begin(&mut ledger, 1, "own", 1, false);
        (0..3).for_each(|core| add(&mut ledger, core, "user", 10u64.pow(core as u32)));
        ledger.end(1, 0, &[]);
        ledger.end(0, 0, &[]);
        let report = ledger.report(&Names::default(), 200);
        let sums: Vec<_> = report.rows.iter().map(|row| (row.name.as_str(), row.total.instructions)).collect();
        assert_eq!(sums, [("all", 101), ("own", 10)]);
    }

    #[test]
    fn what_passed_between_the_marks_is_added_up() {
        let mut ledger = Ledger::new(Mode::Coherence, 2);
        let component = ledger.component("user");
        for (core, at, end) in [(0, 100, 700), (1, 40, 90)] {
            let begin = Begin { name: "call", operations: 1, every_core: false, component, at, awake: &[at, 10] };
            ledger.begin(core, begin);
            ledger.end(core, end, &[at + 30, 15]);
        }
        let row = &ledger.report(&Names::default(), 200).rows[0];
        assert_eq!((row.elapsed, row.awake.as_slice()), (650, &[60, 10][..]));
    }

    #[test]
    fn lost_halves_are_counted() {
        let mut ledger = Ledger::new(Mode::Count, 2);
        begin(&mut ledger, 0, "call", 1, false);
        ledger.end(1, 0, &[]);
        begin(&mut ledger, 0, "call", 1, false);
        assert_eq!(ledger.report(&Names::default(), 200).unmatched, 2);
        assert!(ledger.report(&Names::default(), 200).rows.is_empty());
    }
}
