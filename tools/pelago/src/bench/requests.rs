//! Instructions of a request to a server that nobody here wrote: of program, proxy and servers
//! apart.
//!
//! The client is the measuring program, in the guest and over its loopback interface, since a
//! program has to make the marks. It stands in the counts beside the server, and is told apart from
//! it.

use super::catalogue::{Entry, Source};
use super::outside::Experiment;
use super::program::{self, Counting};
use super::results::{Column, Results, Unit};
use super::servers::Server;
use super::systems::{LINUX, Side, Systems};
use super::table::number;
use crate::bench::counts::{self, Count, KERNEL};
use crate::bench::plugin::{Mode, Plugin};
use coherence::{Row, proxy_name};
use std::collections::BTreeMap;

/// Parts of a count: who makes the marks, and the other Linux programs, which are the server.
const CLIENT: &str = "client";
const PROGRAM: &str = "program";
/// A server with less than this part of a request is one of the others.
const NAMED_PART: f64 = 1000.0;

/// Counts the chosen rows on one system, and adds them.
pub fn turn(
    systems: &Systems,
    chosen: &[&Entry],
    side: Side,
    plugin: &Plugin,
    say: &dyn Fn(&str),
    results: &mut Results,
) {
    for server in Server::ALL {
        let is_its = |entry: &&&Entry| {
            entry.counts
                && matches!(entry.source, Source::Outside { experiment: Experiment::Server(of), .. } if of == server)
        };
        let rows: Vec<&str> = chosen.iter().filter(is_its).map(|entry| entry.name).collect();
        if rows.is_empty() {
            continue;
        }
        let boot = |rows: &[&str]| {
            let instruments = plugin.instruments(Mode::Count, counts::TURN, &systems.names(side, 1)?)?;
            server.boot_asked(systems, side, instruments, rows)
        };
        let counting = Counting { plugin, functions: systems.functions, of: by_role };
        for (row, column) in program::count(&rows, &counting, boot, say) {
            results.add(row, Unit::Instructions, 1, side, column);
        }
    }
}

/// A count in which Linux programs are called by what they do, if they have names of ours.
fn by_role(row: &Row) -> Count {
    let mut count = Count::of(row);
    if !row.begun_by.starts_with(LINUX) {
        return count;
    }
    let mut parts: BTreeMap<String, f64> = BTreeMap::new();
    for (component, instructions) in std::mem::take(&mut count.components) {
        *parts.entry(role(&component, &row.begun_by)).or_default() += instructions;
    }
    count.components = parts.into_iter().collect();
    count
}

fn role(component: &str, client: &str) -> String {
    if component == client {
        return CLIENT.into();
    }
    if component == proxy_name(client) {
        return proxy_name(CLIENT);
    }
    match component.strip_prefix(LINUX) {
        Some(number) if number.ends_with(&proxy_name("")) => proxy_name(PROGRAM),
        Some(_) => PROGRAM.into(),
        None => component.into(),
    }
}

/// A line for each row that was counted: what of our instructions is whose.
pub fn summaries(results: &Results) -> Vec<String> {
    let rows = results.rows.iter().filter(|row| row.unit == Unit::Instructions);
    rows.filter_map(|row| Some(format!("{}: instructions of a request, ours: {}", row.name, parts(&row.ours)?)))
        .collect()
}

/// `None` if it is no count of a server and its client.
fn parts(column: &Column) -> Option<String> {
    let own = [CLIENT.to_owned(), proxy_name(CLIENT), PROGRAM.to_owned(), proxy_name(PROGRAM), KERNEL.to_owned()];
    let [client, client_proxy, program, proxy, kernel] =
        own.each_ref().map(|name| number(column.parts.get(name).copied().unwrap_or_default()));
    column.parts.get(&own[1])?;
    let least = column.parts.values().sum::<f64>() / NAMED_PART;
    let servers = column.parts.iter().filter(|(name, _)| !own.contains(name));
    let (mut named, others): (Vec<_>, Vec<_>) = servers.partition(|(_, count)| **count >= least);
    named.sort_by(|one, other| other.1.total_cmp(one.1));
    let mut servers: Vec<_> = named.into_iter().map(|(name, count)| format!("{name} {}", number(*count))).collect();
    if !others.is_empty() {
        servers.push(format!("others {}", number(others.iter().map(|(_, count)| **count).sum())));
    }
    Some(format!(
        "program {program}, its proxy {proxy}; servers: {}; kernel {kernel}; client {client}, its proxy {client_proxy}",
        servers.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::super::catalogue::ENTRIES;
    use super::super::results::tests::{results, row};
    use super::*;
    use coherence::Sample;

    #[test]
    fn who_makes_the_marks_is_the_client_and_other_programs_are_the_server() {
        let parts = [
            ("kernel", 400),
            ("linux-2", 10),
            ("linux-2/proxy", 20),
            ("linux-3", 30),
            ("linux-3/proxy", 40),
            ("linux-4", 2),
            ("tcp", 50_000),
            ("fs", 3000),
            ("ip", 20),
            ("names", 10),
        ];
        let components = parts.map(|(name, count)| (name.to_owned(), count)).into();
        let median = Sample { operations: 10, instructions: 53_532, components };
        let count = by_role(&Row { begun_by: "linux-2".into(), median, ..Row::default() });
        let part = |name: &str| count.components.iter().find(|(of, _)| of == name).map(|(_, count)| *count);
        let own = ["client", "client/proxy", "program", "program/proxy"].map(part);
        assert_eq!((own, count.components.len()), ([Some(1.0), Some(2.0), Some(3.2), Some(4.0)], 8));
        assert_eq!((count.kernel, count.instructions), (40.0, 5353.2));
        let counted = super::super::results::Row {
            unit: Unit::Instructions,
            ours: Column::from(&count),
            ..row("redis-get/1-client", 1, &[], &[])
        };
        let lines = summaries(&results(vec![counted, row("getpid", 1, &[1.0], &[1.0])]));
        let [line] = &lines[..] else { panic!("{lines:?}") };
        let told = "program 3.20, its proxy 4.00; servers: tcp 5000, fs 300, others 3.00; kernel 40.0; client 1.00, its proxy 2.00";
        assert!(line.starts_with("redis-get/1-client: ") && line.ends_with(told), "{line}");
    }

    #[test]
    fn in_linux_nobody_has_a_name() {
        let components = [("kernel".to_owned(), 400), ("program".to_owned(), 60)].into();
        let median = Sample { operations: 1, instructions: 460, components };
        let count = by_role(&Row { begun_by: "program".into(), median, ..Row::default() });
        assert_eq!((count.components.as_slice(), count.kernel), (&[("program".to_owned(), 60.0)][..], 400.0));
        assert_eq!(parts(&Column::from(&count)), None);
    }

    #[test]
    fn the_program_knows_each_row_of_a_server() {
        let of_servers =
            |entry: &&Entry| matches!(entry.source, Source::Outside { experiment: Experiment::Server(_), .. });
        let counted: Vec<_> =
            ENTRIES.iter().filter(of_servers).filter(|entry| entry.counts).map(|entry| entry.name).collect();
        let rows = measure_core::requests::ROWS.map(|row| row.name);
        assert_eq!(counted, rows);
    }
}
