//! The model's tables.

use super::catalogue::{ENTRIES, Means};
use coherence::{Counters, Report, Row};

/// The rows there are, and where each system's figures come from.
pub fn list() {
    println!("{:<44} {:<32} {:<10} {:<10} what is absent", "row of --model coherence", "paper", "Pelago", "Linux");
    for entry in &ENTRIES {
        let (pelago, linux) = (means(entry.pelago), means(entry.linux));
        let why: Vec<_> = [pelago.1, linux.1].into_iter().filter(|why| !why.is_empty()).collect();
        println!("{:<44} {:<32} {:<10} {:<10} {}", entry.row, entry.paper, pelago.0, linux.0, why.join("; "));
    }
}

fn means(means: Means) -> (&'static str, &'static str) {
    match means {
        Means::Component | Means::ComponentOnDisk => ("component", ""),
        Means::ComponentOfMany => ("component", "one core has nobody to send to"),
        Means::Program => ("program", ""),
        Means::ComponentUpTo(_, why) => ("component", why),
        Means::ProgramOnOneCore(why) => ("one core", why),
        Means::Absent(why) => ("-", why),
    }
}

/// Column heads; all but the last two are per operation.
pub fn head() {
    println!(
        "{:<7} {:<28} {:>4} {:>9} {:>8} {:>8} {:>8} {:>8} {:>8} {:>9} {:>9} {:>9} {:>9}",
        "system",
        "row, per operation",
        "cpus",
        "coherence",
        "cold",
        "capacity",
        "other pr",
        "upgrades",
        "invalid.",
        "kernel c.",
        "cycles",
        "instr.",
        "turn"
    );
}

/// One line a row, and the functions with most coherence misses under it.
pub fn print(system: &str, cpus: u32, report: &Report, functions: usize) {
    for row in &report.rows {
        println!("{}", line(system, cpus, report.turn, row));
        let mut worst: Vec<_> = row.functions.iter().collect();
        worst.sort_by_key(|function| std::cmp::Reverse((function.counters.coherence, function.counters.cycles)));
        for function in worst.into_iter().take(functions) {
            let [coherence, cycles] =
                [function.counters.coherence, function.counters.cycles].map(|count| per_operation(count, row));
            println!("{:>49.2} {cycles:>9.0} cycles  {}  {}", coherence, function.component, function.function);
        }
    }
    if report.unmatched > 0 {
        eprintln!(
            "pelago: {system}, {cpus} cores: {} marks without their other half: a measured thread moved, its stretches are not counted",
            report.unmatched
        );
    }
}

fn line(system: &str, cpus: u32, turn: u64, row: &Row) -> String {
    let Counters { coherence, cold, capacity, other_privilege, upgrades, invalidations, cycles, instructions, .. } =
        row.total;
    let [coherence, cold, capacity, other, upgrades, invalidations, cycles, instructions] =
        [coherence, cold, capacity, other_privilege, upgrades, invalidations, cycles, instructions]
            .map(|count| per_operation(count, row));
    let kernel = row.components.get(coherence::KERNEL).map_or(0.0, |kernel| per_operation(kernel.cycles, row));
    format!(
        "{system:<7} {:<28} {cpus:>4} {coherence:>9.2} {cold:>8.2} {capacity:>8.2} {other:>8.2} {upgrades:>8.2} {invalidations:>8.2} \
         {kernel:>9.0} {cycles:>9.0} {instructions:>9.0} {turn:>9}",
        row.name
    )
}

/// Each core's operations count, so cycles per operation are a core's own.
fn per_operation(count: u64, row: &Row) -> f64 {
    count as f64 / row.operations.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_each_cause_per_operation() {
        let total = Counters { coherence: 100, cold: 5, cycles: 1000, ..Counters::default() };
        let row = Row { name: "counter".into(), operations: 100, total, ..Row::default() };
        let line = line("Pelago", 2, 200, &row);
        let words: Vec<_> = line.split_whitespace().collect();
        assert_eq!(words[..5], ["Pelago", "counter", "2", "1.00", "0.05"]);
        assert_eq!(words[words.len() - 3..], ["10", "0", "200"]);
    }
}
