//! `--against`: what has changed since other results.

use super::results::{Column, Results, Row};
use super::table::number;

/// A median outside the other run's quartiles by more than this part of it has changed.
const MARGIN: f64 = 0.05;

/// One line per row that both have and that has changed, for either system; at the end, how many
/// have not.
pub fn print(before: &Results, after: &Results) {
    let lines = changes(before, after);
    let same = |one: &Row, other: &Row| one.name == other.name && one.unit == other.unit && one.cpus == other.cpus;
    let both = after.rows.iter().filter(|row| before.rows.iter().any(|other| same(row, other))).count();
    println!("against the earlier results ({} rows in both, {} changes):", both, lines.len());
    lines.iter().for_each(|line| println!("  {line}"));
    if before.setting.linux_command_line != after.setting.linux_command_line
        || before.setting.linux_kernel != after.setting.linux_kernel
        || before.setting.host_cores != after.setting.host_cores
    {
        println!("  the setting differs too (kernel, its command line or the host's cores): compare with care");
    }
}

fn changes(before: &Results, after: &Results) -> Vec<String> {
    let mut lines = Vec::new();
    for row in &after.rows {
        let other =
            before.rows.iter().find(|other| other.name == row.name && other.unit == row.unit && other.cpus == row.cpus);
        let Some(other) = other else { continue };
        for (system, old, new) in [("Pelago", &other.ours, &row.ours), ("Linux", &other.linux, &row.linux)] {
            if let Some(change) = change(old, new) {
                lines.push(format!("{} at {}, {system}, {}: {change}", row.name, row.cpus, row.unit.name()));
            }
        }
    }
    lines
}

fn change(old: &Column, new: &Column) -> Option<String> {
    match (old.summary(), new.summary()) {
        (Some((was, low, high)), Some((is, ..))) => {
            let room = MARGIN * was.abs();
            let changed = is < low - room || is > high + room;
            changed.then(|| format!("{} -> {} ({:+.0} %)", number(was), number(is), (is / was - 1.0) * 100.0))
        }
        (Some((was, ..)), None) => Some(format!("{} -> no figure", number(was))),
        (None, Some((is, ..))) => Some(format!("no figure -> {}", number(is))),
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::results::tests::{results, row};
    use super::*;

    #[test]
    fn only_what_leaves_the_spread_is_told() {
        let before = results(vec![row("a", 1, &[90.0, 100.0, 110.0], &[50.0]), row("gone", 1, &[1.0], &[1.0])]);
        let quiet = results(vec![row("a", 1, &[112.0], &[51.0]), row("new", 1, &[1.0], &[1.0])]);
        assert_eq!(changes(&before, &quiet), Vec::<String>::new());
        let loud = results(vec![row("a", 1, &[150.0], &[])]);
        let lines = changes(&before, &loud);
        assert_eq!(lines.len(), 2);
        assert!(lines[0].contains("Pelago") && lines[0].contains("100 -> 150 (+50 %)"), "{lines:?}");
        assert!(lines[1].contains("Linux") && lines[1].contains("no figure"), "{lines:?}");
    }
}
