//! Which scenarios of a run are run once more, and how each then counts. Decides and does nothing.
//!
//! A host that does something else for a while can make a limit in time fail, and nothing else: so
//! what failed such a limit, and only that, is tried once more, alone, after all the others. A
//! judge of other scenarios' figures is tried again with all that it judges, and whose figures were
//! measured again is judged again.

/// So many may pass only the second time; with more the run has failed.
pub const FLAKY_MAX: usize = 2;
/// With more than so many late scenarios nothing is repeated: that is no noise, and each of them
/// may wait to its limit again.
pub const LATE_MAX: usize = 8;
/// Nothing runs after it has failed.
pub const BOOT_TIER: u8 = 0;

/// How a scenario ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    Passed,
    /// Passed the second time; how it failed first.
    Flaky(String),
    Failed,
    /// Failed a limit in time; the words say which.
    Late(String),
    /// Name and reason.
    Skipped(String),
}

/// A scenario that has run.
#[derive(Clone, Copy)]
pub struct Ran<'r> {
    pub name: &'r str,
    /// Names of those whose figures it judges.
    pub judges: &'r [String],
    pub end: &'r End,
}

/// The places in `ran` of those to be run once more, in the order in which they ran.
pub fn again(ran: &[Ran<'_>]) -> Vec<usize> {
    let is_late = |one: &Ran<'_>| matches!(one.end, End::Late(_));
    let late = ran.iter().filter(|one| is_late(one)).count();
    if late == 0 || late > LATE_MAX {
        return Vec::new();
    }
    let judged: Vec<&String> = ran.iter().filter(|one| is_late(one)).flat_map(|judge| judge.judges).collect();
    let measured = |one: &Ran<'_>| *one.end != End::Failed && judged.iter().any(|name| *name == one.name);
    let first: Vec<bool> = ran.iter().map(|one| is_late(one) || measured(one)).collect();
    let is_repeated = |name: &String| ran.iter().zip(&first).any(|(one, first)| *first && one.name == name);
    let judges_again = |one: &Ran<'_>| *one.end != End::Failed && one.judges.iter().any(is_repeated);
    (0..ran.len()).filter(|&place| first[place] || judges_again(&ran[place])).collect()
}

/// How a scenario counts that ended as `first`, and `again` if it was run once more.
pub fn verdict(first: End, again: Option<End>) -> End {
    match (first, again) {
        (End::Late(_), None) => End::Failed,
        (End::Late(words), Some(End::Passed)) => End::Flaky(words),
        // One try for each.
        (_, Some(End::Late(_))) => End::Failed,
        (End::Late(_), Some(_)) => End::Failed,
        (_, Some(again)) => again,
        (first, None) => first,
    }
}

/// True if nothing is run after a tier that ended so: the boot tier has failed, or will have,
/// whatever a second try gives, if there is one.
pub fn ends_run(tier: u8, ends: &[End], repeats: bool) -> bool {
    let late = ends.iter().filter(|end| matches!(end, End::Late(_))).count();
    let late_max = if repeats { FLAKY_MAX } else { 0 };
    tier == BOOT_TIER && (ends.contains(&End::Failed) || late > late_max)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn late() -> End {
        End::Late("no reply within 30 s".into())
    }

    fn repeated(all: &[(&str, &[&str], End)]) -> Vec<String> {
        let judges: Vec<Vec<String>> =
            all.iter().map(|(_, judges, _)| judges.iter().map(|name| name.to_string()).collect()).collect();
        let ran: Vec<_> = all.iter().zip(&judges).map(|((name, _, end), judges)| Ran { name, judges, end }).collect();
        again(&ran).into_iter().map(|place| all[place].0.to_owned()).collect()
    }

    #[test]
    fn only_what_was_late_is_repeated() {
        let skipped = End::Skipped("no card".into());
        let all = [
            ("passed", &[][..], End::Passed),
            ("first", &[], late()),
            ("wrong", &[], End::Failed),
            ("skipped", &[], skipped),
            ("second", &[], late()),
        ];
        assert_eq!(repeated(&all), ["first", "second"]);
        assert!(repeated(&all[2..4]).is_empty());
    }

    #[test]
    fn a_judge_is_repeated_with_all_that_it_judges() {
        let judged: &[&str] = &["kill/1", "kill/2", "kill/3"];
        let mut all = [
            ("kill/1", &[][..], End::Passed),
            ("kill/2", &[], End::Passed),
            // Wrong is wrong: it is not tried again.
            ("kill/3", &[], End::Failed),
            ("hang/1", &[], End::Passed),
            ("stalls", judged, late()),
            ("other-stalls", &["hang/1"], End::Passed),
        ];
        assert_eq!(repeated(&all), ["kill/1", "kill/2", "stalls"]);
        // What is measured again is judged again, with what the others measured before.
        all[0].2 = late();
        all[4].2 = End::Passed;
        assert_eq!(repeated(&all), ["kill/1", "stalls"]);
        all[4].2 = End::Failed;
        assert_eq!(repeated(&all), ["kill/1"]);
    }

    #[test]
    fn a_run_where_all_is_late_ends() {
        let all: Vec<(&str, &[&str], End)> = (0..=LATE_MAX).map(|_| ("late", &[][..], late())).collect();
        assert!(repeated(&all).is_empty());
        assert_eq!(repeated(&all[1..]).len(), LATE_MAX);
    }

    #[test]
    fn one_more_try_decides() {
        assert_eq!(verdict(late(), None), End::Failed);
        assert_eq!(verdict(late(), Some(End::Passed)), End::Flaky("no reply within 30 s".into()));
        assert_eq!(verdict(late(), Some(late())), End::Failed);
        assert_eq!(verdict(late(), Some(End::Failed)), End::Failed);
        assert_eq!(verdict(late(), Some(End::Skipped("no card".into()))), End::Failed);
        // Of those that a judge had repeated.
        assert_eq!(verdict(End::Passed, Some(End::Passed)), End::Passed);
        assert_eq!(verdict(End::Passed, Some(End::Failed)), End::Failed);
        assert_eq!(verdict(End::Passed, Some(late())), End::Failed);
        assert_eq!(verdict(End::Failed, None), End::Failed);
    }

    #[test]
    fn only_a_boot_tier_that_has_failed_ends_the_run() {
        assert!(ends_run(0, &[End::Passed, End::Failed], true));
        assert!(!ends_run(1, &[End::Passed, End::Failed], true));
        assert!(!ends_run(0, &[End::Passed, late(), late()], true));
        assert!(ends_run(0, &[End::Passed, late()], false));
        assert!(ends_run(0, &[late(), late(), late()], true));
    }
}
