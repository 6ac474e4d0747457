//! House rules of pages: what a link, a promise or a worked example leans on is there.
//!
//! It knows links to files of the tree. Addresses of the network and places within a page are not
//! looked at.

use std::path::Path;

/// Finds links of the Markdown page `name`, below `root`, that lead to no file.
pub fn check(root: &Path, name: &str, text: &str, found: &mut Vec<String>) {
    if !name.ends_with(".md") {
        return;
    }
    let folder = root.join(name).parent().unwrap_or(root).to_path_buf();
    for (number, line) in (1..).zip(text.lines()) {
        for target in links(line) {
            if !folder.join(target).exists() {
                found.push(format!("{name}:{number}: the link leads to no file: {target}"));
            }
        }
    }
}

/// Files that a line links to, or that it names for links elsewhere on the page (`[60]: FILE`).
fn links(line: &str) -> impl Iterator<Item = &str> {
    let named = line.strip_prefix('[').and_then(|rest| rest.split_once("]: ")).map(|(_, target)| target.trim());
    let targets = line.split("](").skip(1).filter_map(|rest| rest.split(')').next()).chain(named);
    let files = targets.filter(|target| !target.contains("://")).map(|target| target.split('#').next().unwrap_or(""));
    files.filter(|target| !target.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::place;
    use crate::test::scenarios;

    #[test]
    fn links_that_lead_nowhere_are_found() {
        let root = place::root();
        let check = |text: &str| {
            let mut found = Vec::new();
            check(&root, "docs/glossary.md", text, &mut found);
            found.len()
        };
        assert_eq!(check("see [a](style.md), [b](../README.md#commands), [c](#here), [d](https://x.y/z)"), 0);
        assert_eq!(check("\n[a](style.md) and [b](no-style.md)\n"), 1);
        assert_eq!(check("[a](README.md/x)"), 1);
        assert_eq!(check("[a]: style.md\n[b]: https://x.y/z\nsee [b]: x\n"), 0);
        assert_eq!(check("[a]: no-style.md#here\n"), 1);
    }

    /// Pages with tables of promises.
    const PROMISING: [&str; 8] = [
        "SPEC.md",
        "docs/components.md",
        "docs/disks.md",
        "docs/kernel.md",
        "docs/linux.md",
        "docs/measuring.md",
        "docs/network.md",
        "docs/running.md",
    ];

    /// Scenarios that the rows of the page's tables of promises name as what enforces them.
    fn scenarios_named(page: &str) -> Vec<&str> {
        let mut names = Vec::new();
        for table in
            page.split("\n\n").filter(|table| table.lines().next().is_some_and(|head| head.ends_with(" enforced by |")))
        {
            let cells =
                table.lines().filter_map(|row| row.strip_suffix(" |")?.rsplit_once(" | ")).map(|(_, cell)| cell);
            let quoted = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
            names.extend(quoted.filter(|name| name.contains('/') && !name.starts_with("./")));
        }
        names
    }

    /// Whether `name` is of `pattern`, whose parts between stars come one after the other.
    fn is_of(name: &str, pattern: &str) -> bool {
        let mut rest = name;
        pattern.split('*').enumerate().all(|(index, part)| match rest.find(part) {
            Some(at) if index > 0 || at == 0 => {
                rest = &rest[at + part.len()..];
                true
            }
            _ => false,
        })
    }

    #[test]
    fn what_enforces_a_promise_is_there() {
        let root = place::root();
        let all = scenarios::all();
        let mut count = 0;
        for page in PROMISING {
            let text = std::fs::read_to_string(root.join(page)).expect(page);
            let named = scenarios_named(&text);
            assert!(!named.is_empty(), "{page} names no scenario");
            for pattern in named {
                assert!(all.iter().any(|scenario| is_of(&scenario.name, pattern)), "{page}: no scenario is {pattern}");
                count += 1;
            }
        }
        assert!(count > 250, "{count} scenarios are named");
        assert!(is_of("boot/ping/q35/2", "boot/*/2") && !is_of("boot/q35/1", "boot/*/2"));
        assert!(!is_of("boot/q35/1", "q35/*"));
    }

    /// The lines and rows that CONTRIBUTING.md has a reader change. If one has gone, the example
    /// cannot be followed any more: write it anew, or take another one.
    const LEANT_ON: [(&str, &str); 11] = [
        ("linux/proxy/src/table.rs", "441 \"epoll_pwait2\" absent;"),
        ("linux/proxy/src/bare/poll.rs", "let deadline_ns = milliseconds(timeout_ms);"),
        ("abi/src/call/rows.rs", "12 fn cap_revoke = CapRevoke"),
        ("kernel/src/calls/capability.rs", "pub(super) fn cap_stat(_: &Kernel, request: Request, call: CapStat)"),
        ("kernel/src/calls/mod.rs", "fn retry<const N: usize>(self, changed: [(usize, u64); N]) -> Outcome"),
        ("apps/fuzz/src/target.rs", "const ECHOES: [Call; 6]"),
        ("kernel/src/tests/rights.rs", "use super::World;"),
        ("tools/pelago/src/test/scenarios/rare_calls.c", "return all_checked();"),
        ("tools/pelago/src/test/scenarios/mod.rs", "mod processes;"),
        ("tools/pelago/src/test/scenarios/mod.rs", "        shell::scenarios(),"),
        ("system/default.toml", "name = \"virtio-net\""),
    ];
    /// What the examples make, so it is not there.
    const MADE: [&str; 3] = ["contracts/src/tally.rs", "servers/tally", "tools/pelago/src/test/scenarios/pipeline.rs"];

    #[test]
    fn the_examples_of_contributing_can_be_followed() {
        let root = place::root();
        let read = |name: &str| std::fs::read_to_string(root.join(name)).expect(name);
        let page = read("CONTRIBUTING.md");
        for (name, text) in LEANT_ON {
            assert!(page.contains(&format!("`{name}`")), "CONTRIBUTING.md does not name {name}");
            assert!(read(name).contains(text), "{name} lacks what an example leans on: {text}");
        }
        for name in MADE {
            assert!(page.contains(name), "no example makes {name}");
            assert!(!root.join(name).exists(), "{name} is there: take another example");
        }
        assert!(!read("abi/src/call/rows.rs").contains("\n13 fn"), "call 13 is taken: take another number");
    }
}
