//! What is known of Linux: figures of the same kernel under the same emulator, taken earlier on a
//! quiet host by other programs. A run that reproduces them measures what it says; one that does
//! not has a busy host, another kernel, or a mistake.

use super::results::{Results, Row, Unit};
use super::table::number;

/// A median within this part of the known figure reproduces it.
const MARGIN: f64 = 0.15;

/// Row, number of cores, Linux's figure in the row's unit (times: at 1 and 2 cores only, since more
/// than the host has show none).
const TIMES: [(&str, u32, f64); 25] = [
    ("power-on-to-first-user/q35", 1, 1600.0),
    ("power-on-to-first-user/q35", 4, 2100.0),
    ("idle-memory-touched/q35", 1, 106.0),
    ("page-keep-alive/q35", 1, 11_300.0),
    ("page-per-connection/q35", 1, 2300.0),
    ("cpu-per-request/keep-alive/q35", 1, 103.0),
    ("cpu-per-request/per-connection/q35", 1, 496.0),
    ("getppid", 1, 400.0),
    ("dup-close/threads", 1, 1300.0),
    ("dup-close/processes", 1, 1300.0),
    ("pipe-round-trip", 1, 54_000.0),
    ("unix-socket-round-trip", 1, 72_000.0),
    ("futex-round-trip/processes", 1, 49_000.0),
    ("futex-round-trip/threads", 1, 14_500.0),
    ("thread-create-join", 1, 64_000.0),
    ("fork-exit", 1, 416_000.0),
    ("fork-exec", 1, 1_450_000.0),
    ("page-touch/threads", 1, 4700.0),
    ("page-touch/processes", 1, 4500.0),
    ("mprotect-cycle", 1, 2700.0),
    ("mprotect-cycle", 2, 10_000.0),
    ("udp-loopback", 2, 951.0),
    ("tcp-stream", 2, 8500.0),
    ("tcp-connections", 2, 3400.0),
    ("word-index", 1, 68.0),
];

/// The same in instructions, on one core.
const COUNTS: [(&str, f64); 13] = [
    ("getppid", 337.0),
    ("dup-close/threads", 980.0),
    ("dup-close/processes", 980.0),
    ("pipe-round-trip", 10_500.0),
    ("unix-socket-round-trip", 14_500.0),
    ("futex-round-trip/processes", 10_900.0),
    ("thread-create-join", 36_000.0),
    ("fork-exit", 138_000.0),
    ("fork-exec", 510_000.0),
    ("page-touch/threads", 3600.0),
    ("page-touch/processes", 3600.0),
    ("tcp-connections", 96_000.0),
    ("word-index", 8_000_000.0),
];

/// What is known of a row's Linux.
fn figure(row: &Row) -> Option<f64> {
    match row.unit {
        Unit::Instructions => COUNTS.iter().find(|(name, _)| *name == row.name && row.cpus == 1).map(|known| known.1),
        _ => TIMES.iter().find(|(name, cpus, _)| *name == row.name && *cpus == row.cpus).map(|known| known.2),
    }
}

/// How far Linux's median is from what is known, as a part of that; `None` where one of them is
/// missing.
fn difference(row: &Row) -> Option<f64> {
    Some(row.linux.summary()?.0 / figure(row)? - 1.0)
}

/// For the table: the known figure, and how far this one is from it.
pub fn cell(row: &Row) -> String {
    match (figure(row), difference(row)) {
        (Some(known), Some(difference)) => {
            let verdict = if difference.abs() <= MARGIN { "" } else { " !" };
            format!("{} {:+.0} %{verdict}", number(known), difference * 100.0)
        }
        (Some(known), None) => number(known),
        _ => "-".into(),
    }
}

/// How many of the known figures this run reproduced; `None` if it has none of those rows.
pub fn summary(results: &Results) -> Option<String> {
    let part = |counts: bool| {
        let rows = results.rows.iter().filter(|row| (row.unit == Unit::Instructions) == counts);
        let all: Vec<f64> = rows.filter_map(difference).collect();
        (all.iter().filter(|difference| difference.abs() <= MARGIN).count(), all.len())
    };
    let ((counts, all_counts), (times, all_times)) = (part(true), part(false));
    (all_counts + all_times > 0).then(|| {
        format!(
            "known figures of Linux reproduced within {:.0} %: {counts} of {all_counts} counts, {times} of {all_times} others (marked ! where not)",
            MARGIN * 100.0
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::catalogue::ENTRIES;
    use super::super::results::tests::{results, row};
    use super::*;

    #[test]
    fn every_known_figure_has_its_row() {
        for name in TIMES.iter().map(|known| known.0).chain(COUNTS.iter().map(|known| known.0)) {
            assert!(ENTRIES.iter().any(|entry| entry.name == name), "{name}");
        }
        for name in COUNTS.iter().map(|known| known.0) {
            assert!(ENTRIES.iter().any(|entry| entry.name == name && entry.counts), "{name}");
        }
    }

    #[test]
    fn what_is_reproduced_is_told_and_what_is_not_is_marked() {
        let mut count = row("dup-close/threads", 1, &[], &[1000.0]);
        count.unit = Unit::Instructions;
        let far = row("dup-close/threads", 1, &[], &[2600.0]);
        assert_eq!(cell(&count), "980 +2 %");
        assert_eq!(cell(&far), "1300 +100 % !");
        assert_eq!(cell(&row("getppid", 1, &[1.0], &[])), "400");
        assert_eq!(cell(&row("dup-close/threads", 4, &[], &[1.0])), "-");
        let told = summary(&results(vec![count, far])).unwrap();
        assert!(told.contains("1 of 1 counts, 0 of 1 others"), "{told}");
        assert_eq!(summary(&results(vec![row("getpid", 1, &[1.0], &[1.0])])), None);
    }
}
