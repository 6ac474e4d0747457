//! The Linux calls by number and name, and which of them this proxy answers.
//!
//! Invariant: all of it comes from the table ([`for_each_call`](crate::for_each_call)), as does the
//! dispatcher's match; so a call cannot be declared here and forgotten there.
//! `docs/linux-coverage.md` is generated from the same table (see the tests at the end).

/// What a call does to the thread that makes it, besides giving it a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing: the thread goes on.
    None,
    /// If it succeeds, it has set all registers itself.
    ReplacesRegisters,
    /// Other threads that are ready go on first.
    ParksThread,
    /// The thread ends, if there are others.
    EndsThread,
}

/// The effect by its words in a row.
macro_rules! effect {
    () => {
        Effect::None
    };
    (replaces_registers) => {
        Effect::ReplacesRegisters
    };
    (parks_thread) => {
        Effect::ParksThread
    };
    (ends_thread) => {
        Effect::EndsThread
    };
}

macro_rules! declare {
    ($(
        $number:literal
        $( $absent:literal absent )?
        $( $name:ident $text:literal ($( $argument:ident ),*) $class:ident $handler:tt
            $( or sleeps $line:tt )? $( or waits $later:tt )? $( and $effect:ident )?, $support:expr )?;
    )*) => {
        /// An answered call.
        #[allow(missing_docs)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u16)]
        pub enum Call { $( $( $name = $number, )? )* }

        impl Call {
            /// From RAX.
            pub const fn decode(number: u64) -> Option<Call> {
                match number { $( $( $number => Some(Call::$name), )? )* _ => None }
            }

            /// What it does to the thread that makes it.
            #[inline]
            pub const fn effect(self) -> Effect {
                match self { $( $( Call::$name => effect!($( $effect )?), )? )* }
            }
        }

        /// The names of all calls of Linux, in the order of their numbers.
        const NAMES: &[(u16, &str)] = &[ $( ($number, $( $absent )? $( $text )?), )* ];
    };
}

crate::for_each_call!(declare);

/// The name of any call of Linux, answered or not, for the log.
pub fn name(number: u64) -> Option<&'static str> {
    NAMES.iter().find(|(listed, _)| u64::from(*listed) == number).map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flag_table::{Group, State, UNKNOWN, groups};
    use Support::{Full, Partial};
    use std::fmt::Write;

    /// How far a call is answered.
    enum Support {
        /// As Linux does.
        Full,
        /// The text says what is narrower.
        Partial(&'static str),
    }

    /// An answered call: itself, Linux's name and arguments, how far.
    type Row = (Call, &'static str, &'static str, Support);

    macro_rules! list {
        ($(
            $number:literal
            $( $absent:literal absent )?
            $( $name:ident $text:literal ($( $argument:ident ),*) $class:ident $handler:tt
                $( or sleeps $line:tt )? $( or waits $later:tt )? $( and $effect:ident )?, $support:expr )?;
        )*) => {
            const ANSWERED: &[Row] = &[
                $( $( (Call::$name, $text, stringify!($( $argument ),*), $support), )? )*
            ];
            const ABSENT: &[(u16, &str)] = &[ $( $( ($number, $absent), )? )* ];
        };
    }

    crate::for_each_call!(list);

    /// How far a call is answered, and where its flags are told.
    fn support(name: &str, support: &Support, groups: &[Group]) -> String {
        let own: Vec<_> = groups.iter().filter(|group| group.calls.contains(&name)).collect();
        let is_whole = |group: &&Group| group.rows.iter().all(|row| row.state == State::Honoured || row.as_linux);
        let links: Vec<_> = own.iter().map(|group| format!("[{}](#{})", group.argument, group.id())).collect();
        let word = match support {
            Full if own.iter().all(is_whole) => "full".into(),
            Full => "full but for".into(),
            Partial(what) => format!("partial: {what}"),
        };
        match (links.is_empty(), support) {
            (true, _) => word,
            (false, Full) if word != "full" => format!("{word} {}", links.join(", ")),
            (false, _) => format!("{word}; {}", links.join(", ")),
        }
    }

    fn flags(groups: &[Group]) -> String {
        let rows = || groups.iter().flat_map(|group| &group.rows);
        let count = |is: fn(&State) -> bool| rows().filter(|row| is(&row.state)).count();
        let mut text = format!(
            "\n## Flags, commands and options\n\nGenerated from `linux/proxy/src/flag_table.txt`: what the headers of Linux 6.1 name, and for each call a value that they do not. \
             The scenarios `coverage/1` and `coverage/2` try each, `coverage/linux` tries in Linux what is honoured and what is said to be as there. \
             Of {} there are {} honoured, {} accepted without effect, and {} refused.\n",
            rows().count(),
            count(|state| *state == State::Honoured),
            count(|state| *state == State::WithoutEffect),
            count(|state| matches!(state, State::Refused(_))),
        );
        for group in groups {
            let title = format!("{}: {}", group.calls.join(", "), group.argument);
            writeln!(text, "\n<a id=\"{}\"></a>\n### {title}\n\n| name | value | |\n|---|---:|---|", group.id())
                .unwrap();
            for row in &group.rows {
                let state = match row.state {
                    State::Honoured => "honoured".into(),
                    State::WithoutEffect => "without effect".into(),
                    State::Refused(errno) => format!("refused: {errno}"),
                };
                let as_linux = if row.as_linux { ", as Linux" } else { "" };
                let because = if row.because.is_empty() { String::new() } else { format!("; {}", row.because) };
                let name = if row.name == UNKNOWN { "(none)" } else { row.name };
                writeln!(text, "| {name} | {} | {state}{as_linux}{because} |", row.value).unwrap();
            }
        }
        text
    }

    fn page() -> String {
        let groups = groups().unwrap();
        let mut text = String::from(
            "# Linux calls\n\nGenerated from `linux/proxy/src/table.rs`; after a change run `UPDATE_COVERAGE=1 cargo test -p pelago-proxy --lib coverage`.\n\
             The dispatcher is expanded from the same table. A call that is not listed gives ENOSYS and is logged once by name or number.\n\n\
             | number | call | arguments | support |\n|---:|---|---|---|\n",
        );
        for (call, name, arguments, how) in ANSWERED {
            let support = support(name, how, &groups);
            writeln!(text, "| {} | {name} | {arguments} | {support} |", *call as u16).unwrap();
        }
        let absent: Vec<_> = ABSENT.iter().map(|(_, name)| *name).collect();
        writeln!(text, "\nKnown by name and absent: {}.", absent.join(", ")).unwrap();
        wrapped(&(text + &flags(&groups)))
    }

    /// The page with its paragraphs wrapped at 120 columns; rows of tables stay as they are.
    fn wrapped(text: &str) -> String {
        let mut page = String::new();
        for line in text.lines() {
            let mut column = 0;
            for word in line.split(' ') {
                let columns = word.chars().count();
                if column > 0 && !line.starts_with('|') && column + 1 + columns > 120 {
                    page.push('\n');
                    column = 0;
                } else if column > 0 {
                    page.push(' ');
                    column += 1;
                }
                page.push_str(word);
                column += columns;
            }
            page.push('\n');
        }
        page
    }

    /// A number of C.
    fn number(text: &str) -> Option<i64> {
        match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok().map(|number| number as i64),
            None => text.parse().ok(),
        }
    }

    #[test]
    fn rows_of_flags_are_sound() {
        let groups = groups().unwrap();
        for group in &groups {
            let id = group.id();
            assert!(groups.iter().filter(|other| other.id() == id).count() == 1, "{id} is there twice");
            for call in &group.calls {
                assert!(ANSWERED.iter().any(|row| row.1 == *call), "{id}: {call} is not answered");
            }
            for row in &group.rows {
                let name = row.name;
                assert!(number(row.value).is_some(), "{id}: {name}: {} is no number", row.value);
                let named = group.rows.iter().filter(|other| other.name == name).count();
                assert!(named == 1 || name == UNKNOWN, "{id}: {name} is there twice");
                let is_said = row.state != State::WithoutEffect || row.as_linux || !row.because.is_empty();
                assert!(is_said, "{id}: {name}: why does it do no harm?");
                assert!(!(row.as_linux && row.state == State::Honoured), "{id}: {name}: what is honoured is as Linux");
            }
        }
    }

    /// Each call that is tried has a value that Linux does not know.
    #[test]
    fn an_unknown_value_is_tried_of_every_call() {
        let groups = groups().unwrap();
        let of = |call: &str| {
            let mut rows = groups.iter().filter(|group| group.calls[0] == call).flat_map(|group| &group.rows);
            rows.any(|row| row.name == UNKNOWN && row.as_linux)
        };
        for group in &groups {
            assert!(of(group.calls[0]), "{}", group.calls[0]);
        }
    }

    #[test]
    fn coverage_page_is_fresh() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/linux-coverage.md");
        if std::env::var_os("UPDATE_COVERAGE").is_some() {
            std::fs::write(path, page()).unwrap();
        }
        assert_eq!(std::fs::read_to_string(path).unwrap_or_default(), page(), "docs/linux-coverage.md is stale");
    }

    /// Linux has a call of each of these numbers (arch/x86/entry/syscalls/syscall_64.tbl, 6.17).
    #[test]
    fn every_number_of_linux_has_a_name() {
        const NUMBERS: [core::ops::RangeInclusive<u64>; 2] = [0..=336, 424..=469];
        let mut names = std::collections::BTreeSet::new();
        for number in NUMBERS.into_iter().flatten() {
            let name = name(number).unwrap_or_default();
            assert!(!name.is_empty() && names.insert(name), "call {number} is named {name:?}");
        }
        assert_eq!(names.len(), NAMES.len());
        for number in [337, 423, 470, u64::MAX] {
            assert_eq!(name(number), None);
        }
    }

    #[test]
    fn numbers_ascend_and_absent_ones_are_not_answered() {
        assert!(NAMES.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert_eq!(NAMES.len(), ANSWERED.len() + ABSENT.len());
        for (number, known) in ABSENT {
            assert_eq!(Call::decode(u64::from(*number)), None);
            assert_eq!(name(u64::from(*number)), Some(*known));
        }
        for (call, known, ..) in ANSWERED {
            assert_eq!(Call::decode(*call as u64), Some(*call));
            assert_eq!(name(*call as u64), Some(*known));
        }
    }

    #[test]
    fn few_calls_do_more_than_give_a_result() {
        let with = |effect| ANSWERED.iter().map(|row| row.0).filter(|call| call.effect() == effect).collect::<Vec<_>>();
        assert_eq!(with(Effect::ReplacesRegisters), [Call::RtSigreturn, Call::Execve, Call::Execveat]);
        assert_eq!(with(Effect::ParksThread), [Call::SchedYield]);
        assert_eq!(with(Effect::EndsThread), [Call::Exit]);
    }
}
