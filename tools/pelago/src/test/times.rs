//! What a run of the tests spent its time on, so that it can be made shorter.

use std::time::Duration;

/// So many are told.
const LONGEST: usize = 10;

/// The longest of these, longest first, a line each.
pub fn longest(mut scenarios: Vec<(String, Duration)>) -> Vec<String> {
    scenarios.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
    let lines = scenarios.iter().map(|(name, time)| format!("     {:>6.1} s  {name}", time.as_secs_f64()));
    lines.take(LONGEST).collect()
}

/// How much of a run was building.
pub fn share(building: Duration, all: Duration) -> String {
    let percent = 100.0 * building.as_secs_f64() / all.as_secs_f64().max(f64::EPSILON);
    format!("     {:.0} s in all; building took {:.0} s, {percent:.0} %", all.as_secs_f64(), building.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_come_first() {
        let scenarios = (0..12).map(|number| (format!("a/{number}"), Duration::from_secs(number))).collect();
        let lines = longest(scenarios);
        assert_eq!(
            (lines.len(), lines[0].as_str(), lines[9].as_str()),
            (10, "       11.0 s  a/11", "        2.0 s  a/2")
        );
    }

    #[test]
    fn building_is_told_as_a_share() {
        let told = share(Duration::from_secs(30), Duration::from_secs(120));
        assert_eq!(told, "     120 s in all; building took 30 s, 25 %");
    }
}
