//! What is printed: one line per row, and the setting that the rows were measured in.

use super::catalogue::{ENTRIES, Source};
use super::chart;
use super::known;
use super::results::{Column, Results, Row, Unit};
use crate::bench::counts::KERNEL;
use crate::bench::nova;

/// `--list`.
pub fn list() {
    println!("{:<44} {:<14} {:<12} {:<18} beside", "row", "unit", "trust", "paper");
    for entry in ENTRIES {
        let units: Vec<_> = entry.units(1).into_iter().map(Unit::name).collect();
        let trust = entry.trust_at(entry.unit, 1).name();
        let trust = if entry.counts { format!("{trust}, counts") } else { trust.to_owned() };
        let trust = if entry.by_name() { format!("{trust}, by name") } else { trust };
        let paper = if entry.paper.is_empty() { "-" } else { entry.paper };
        let beside = match entry.source {
            Source::Inside { .. } | Source::Layouts { .. } => entry.beside().unwrap_or("-"),
            _ => "the same",
        };
        println!("{:<44} {:<14} {trust:<12} {paper:<18} {beside}", entry.name, short(&units));
    }
    for figure in &chart::FIGURES {
        println!("{:<44} a chart: {}", figure.name, figure.title);
    }
    println!("{:<44} NOVA, figures 1, 4 and 5: by name alone, in the coherence model and by instructions", nova::NAME);
}

fn short(units: &[&str]) -> String {
    units.iter().map(|unit| if *unit == "instructions" { "instr." } else { unit }).collect::<Vec<_>>().join(", ")
}

/// The rows, their setting, and what is absent.
pub fn print(results: &Results) {
    println!(
        "{:<44} {:>4} {:<12} {:>26} {:>26} {:>7}  {:<12} {:<16} paper",
        "row", "cpus", "unit", "Pelago (quartiles)", "Linux (quartiles)", "ratio", "trust", "Linux known"
    );
    results.rows.iter().for_each(|row| println!("{}", line(row)));
    if let Some(summary) = known::summary(results) {
        println!("{summary}");
    }
    let setting = &results.setting;
    println!("ratio: Pelago's median by Linux's; {} rounds, the systems in turns", setting.rounds);
    println!("Linux: {}, {}", setting.linux_kernel, setting.linux_command_line);
    let placement: Vec<_> = setting.placement.iter().map(|(system, how)| format!("{system} {how}")).collect();
    println!("both: {} MiB of memory, {}; workers: {}", setting.memory_mib, setting.accelerator, placement.join(", "));
    println!(
        "host: {} cores, load {} before and {} after",
        setting.host_cores, setting.load_before, setting.load_after
    );
    let mut told: Vec<String> = Vec::new();
    for row in &results.rows {
        for (system, column) in [("Pelago", &row.ours), ("Linux", &row.linux)] {
            let Some(what) = &column.absent else { continue };
            let line = format!("absent: {}: {system}: {what}", row.name);
            if !told.contains(&line) {
                println!("{line}");
                told.push(line);
            }
        }
    }
}

fn line(row: &Row) -> String {
    let ratio = row.ratio().map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
    let text = format!(
        "{:<44} {:>4} {:<12} {:>26} {:>26} {ratio:>7}  {:<12} {:<16} {}",
        row.name,
        row.cpus,
        row.unit.name(),
        cell(&row.ours),
        cell(&row.linux),
        row.trust.name(),
        known::cell(row),
        row.paper
    );
    text.trim_end().to_owned()
}

fn cell(column: &Column) -> String {
    match column.summary() {
        Some((count, ..)) if !column.parts.is_empty() => {
            let kernel = column.parts.get(KERNEL).copied().unwrap_or_default();
            format!("{} ({} user)", number(count), number(count - kernel))
        }
        Some((median, low, high)) => format!("{} ({} .. {})", number(median), number(low), number(high)),
        None if column.failed.is_some() => "failed".into(),
        None if column.absent.is_some() => "absent".into(),
        None => "-".into(),
    }
}

/// Three or more digits.
pub fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        size if size < 10.0 => format!("{value:.2}"),
        size if size < 100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::results::tests::row;
    use super::*;

    #[test]
    fn a_line_has_both_and_their_ratio() {
        let text = line(&row("getppid", 1, &[140.0, 110.0, 120.0, 130.0, 100.0], &[100.0]));
        assert!(
            text.contains("120 (110 .. 130)") && text.contains("100 (100 .. 100)") && text.contains("1.20"),
            "{text}"
        );
    }

    #[test]
    fn what_has_no_figure_says_so() {
        let mut one = row("thread-create-join", 1, &[], &[5.0]);
        one.ours.absent = Some("clone".into());
        assert!(line(&one).contains(" absent "));
        one.ours.failed = Some("died".into());
        assert!(line(&one).contains(" failed "));
    }

    #[test]
    fn a_count_shows_its_user_part() {
        let mut one = row("getppid", 1, &[], &[337.0]);
        one.linux.parts = [(KERNEL.to_owned(), 317.0), ("program".to_owned(), 20.0)].into();
        assert!(line(&one).contains("337 (20.0 user)"), "{}", line(&one));
    }

    #[test]
    fn numbers_have_three_digits() {
        assert_eq!([0.0, 1.234, 12.34, 1234.5].map(number), ["0", "1.23", "12.3", "1234"]);
    }
}
