//! The model against histories and against what is known of counters and locks.

use super::*;
use proptest::prelude::*;

fn small() -> Setting {
    Setting { cores_per_socket: 2, first_bytes: 64 * 4, second_bytes: 64 * 8, ways: 2, ..Setting::default() }
}

fn run(machine: &mut Machine, steps: &[(usize, u64, Access)]) -> Counters {
    let mut counters = Counters::default();
    for &(core, line, access) in steps {
        counters.cycles += machine.access(core, line, access, Privilege::User, &mut counters);
    }
    counters
}

#[test]
fn a_shared_counter_misses_once_per_add_and_a_private_one_never() {
    for cores in [2, 4, 16] {
        let mut machine = Machine::new(cores, Setting::default());
        let turn = |line: &dyn Fn(usize) -> u64| -> Vec<_> {
            (0..cores).map(|core| (core, line(core), Access::Write)).collect()
        };
        run(&mut machine, &[turn(&|_| 1), turn(&|core| 100 + core as u64)].concat());
        let (shared, private) = (turn(&|_| 1).repeat(50), turn(&|core| 100 + core as u64).repeat(50));
        let counters = run(&mut machine, &shared);
        assert_eq!((counters.coherence, counters.misses()), (50 * cores as u64, 50 * cores as u64));
        assert_eq!(counters.invalidations, 50 * cores as u64);
        assert_eq!(run(&mut machine, &private).misses(), 0);
    }
}

#[test]
fn a_line_that_is_only_read_is_everybodys() {
    let mut machine = Machine::new(4, Setting::default());
    let all: Vec<_> = (0..4).map(|core| (core, 1, Access::Read)).collect();
    let first = run(&mut machine, &all);
    assert_eq!((first.cold, first.coherence), (4, 0));
    assert_eq!(run(&mut machine, &all.repeat(10)).misses(), 0);
    // The one that writes tells the three others, and is missed by each of them once.
    let write = run(&mut machine, &[(2, 1, Access::Write)]);
    assert_eq!((write.upgrades, write.invalidations, write.misses()), (1, 3, 0));
    assert_eq!(run(&mut machine, &all.repeat(10)).coherence, 3);
}

#[test]
fn a_message_is_a_miss_of_its_reader_and_costs_by_distance() {
    let mut machine = Machine::new(8, Setting::default());
    let near = run(&mut machine, &[(0, 1, Access::Write), (1, 1, Access::Read)]);
    let far = run(&mut machine, &[(0, 2, Access::Write), (4, 2, Access::Read)]);
    assert_eq!((near.coherence, near.cold, far.coherence, far.cold), (1, 1, 1, 1));
    assert_eq!((near.cycles, far.cycles), (14 + 70, 14 + 300));
}

#[test]
fn a_plain_write_waits_for_nothing_and_a_locked_one_for_its_data_and_for_who_shares_it() {
    let shared = [(0, 1, Access::Write), (4, 1, Access::Read), (0, 1, Access::Read)];
    for (access, upgrade, miss) in [(Access::Write, 4, 14), (Access::Locked, 55, 300)] {
        let mut machine = Machine::new(8, Setting::default());
        run(&mut machine, &shared);
        let counters = run(&mut machine, &[(0, 1, access)]);
        assert_eq!((counters.upgrades, counters.invalidations, counters.cycles), (1, 1, upgrade));
        let counters = run(&mut machine, &[(4, 1, access)]);
        assert_eq!((counters.coherence, counters.cycles), (1, miss));
    }
}

#[test]
fn eviction_by_the_other_privilege_is_told_apart() {
    let mut machine = Machine::new(1, small());
    let mut counters = Counters::default();
    let mut access = |line, who| machine.access(0, line, Access::Read, who, &mut counters);
    // Lines 0, 4, 8, ... share a set of two.
    access(0, Privilege::User);
    access(4, Privilege::Kernel);
    access(8, Privilege::Kernel);
    access(0, Privilege::User);
    assert_eq!((counters.other_privilege, counters.capacity), (1, 0));
    let mut counters = Counters::default();
    let mut access = |line, who| machine.access(0, line, Access::Read, who, &mut counters);
    access(12, Privilege::User);
    access(16, Privilege::User);
    access(0, Privilege::User);
    assert_eq!((counters.other_privilege, counters.capacity), (0, 1));
}

#[test]
fn a_fetch_from_the_first_level_is_free() {
    let mut machine = Machine::new(1, Setting::default());
    run(&mut machine, &[(0, 1, Access::Fetch)]);
    assert_eq!(run(&mut machine, &[(0, 1, Access::Fetch)]).cycles, 0);
    assert_eq!(run(&mut machine, &[(0, 1, Access::Read)]).cycles, 14);
    assert_eq!(run(&mut machine, &[(0, 1, Access::Read)]).cycles, 4);
}

/// What a core knows of a line, by looking at all that happened.
#[derive(Clone, Copy, Default)]
struct Seen {
    had: bool,
    holds: bool,
    written_since: bool,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Directory and caches agree, and each miss has the cause that the history gives it.
    #[test]
    fn causes_follow_from_history(steps in prop::collection::vec((0usize..4, 0u64..24, 0u8..4), 1..300)) {
        const CORES: usize = 4;
        let mut machine = Machine::new(CORES, small());
        let mut seen = vec![[Seen::default(); 24]; CORES];
        let mut last_writer = [None; 24];
        for (core, line, access) in steps {
            let access = [Access::Fetch, Access::Read, Access::Write, Access::Locked][usize::from(access)];
            let before = seen[core][line as usize];
            let others_hold = (0..CORES).any(|other| other != core && seen[other][line as usize].holds);
            let counters = run(&mut machine, &[(core, line, access)]);
            let news = others_hold && last_writer[line as usize].is_some_and(|writer| writer != core);
            let wanted = match before {
                Seen { holds: true, .. } => (0, 0, 0),
                Seen { had: true, written_since: true, .. } => (1, 0, 0),
                Seen { had: true, .. } => (0, 0, 1),
                _ if news => (1, 0, 0),
                _ => (0, 1, 0),
            };
            prop_assert_eq!((counters.coherence, counters.cold, counters.capacity), wanted);
            if access.writes() {
                last_writer[line as usize] = Some(core);
                (0..CORES).filter(|other| *other != core).for_each(|other| seen[other][line as usize].written_since = true);
            }
            seen[core][line as usize] = Seen { had: true, holds: true, written_since: false };
            for (core, seen) in seen.iter_mut().enumerate() {
                for line in 0..24 {
                    let own = &machine.cores[core];
                    let holds = own.second.peek(line);
                    prop_assert!(holds.is_some() || own.data.peek(line).is_none());
                    prop_assert!(holds.is_some() || own.instructions.peek(line).is_none());
                    let entry = machine.directory.get(&line).copied().unwrap_or_default();
                    let told = entry.holders.iter().any(|holder| holder == core);
                    prop_assert_eq!(holds.is_some(), told);
                    let owns = matches!(holds, Some(EXCLUSIVE | MODIFIED));
                    prop_assert_eq!(owns, entry.owner == Some(core as u8));
                    prop_assert!(!owns || entry.holders.iter().count() == 1);
                    seen[line as usize].holds = holds.is_some();
                }
            }
        }
    }
}
