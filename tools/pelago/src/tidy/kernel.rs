//! What privileged code may be about: each of its rooms is listed with the mechanism that it is,
//! and no word of policy is in its code. It has no heap, and lets interrupts in at one place only,
//! where it idles (NOVA section 1, Barrelfish sections 4.3 and 4.7).

/// The rooms of `kernel/src`: what each is a mechanism of. A new one is a line here, with a reason
/// why it is no policy.
const ROOMS: [(&str, &str); 25] = [
    ("arch/", "processor"),
    ("boot/", "processor"),
    ("core_local", "processor"),
    ("hardware", "processor"),
    ("lib.rs", "processor"),
    ("main.rs", "processor"),
    ("start", "processor"),
    ("memory.rs", "spatial separation"),
    ("objects/", "separation, resources and communication: the objects that calls are about"),
    ("clock.rs", "temporal separation"),
    ("scheduler", "temporal separation"),
    ("steps.rs", "temporal separation: how long interrupts stay off"),
    ("calls/", "communication"),
    ("mailbox", "communication"),
    ("polling.rs", "communication"),
    ("shared/", "communication"),
    ("trap.rs", "communication"),
    ("devices/", "resources"),
    ("core_commands.rs", "resources"),
    ("state.rs", "resources"),
    ("backtrace.rs", "diagnosis"),
    ("counters.rs", "diagnosis"),
    ("log.rs", "diagnosis"),
    ("panic.rs", "diagnosis"),
    ("trace.rs", "diagnosis"),
];
/// Words of what is decided elsewhere: who runs where, what is started again, what is served to
/// whom.
const POLICY: [&str; 21] = [
    "balance",
    "balancer",
    "cache",
    "ethernet",
    "filesystem",
    "httpd",
    "inode",
    "ip",
    "migrate",
    "monitors",
    "packet",
    "placement",
    "policy",
    "quota",
    "replica",
    "restart",
    "shell",
    "socket",
    "spawn",
    "supervisor",
    "tcp",
];
/// Words of a heap.
const HEAP: [&str; 7] = ["Arc", "Box", "BTreeMap", "Rc", "String", "Vec", "global_allocator"];
/// Where interrupts are let in, and what comes then.
const IDLE: (&str, &str) = ("kernel/src/arch/x86_64/entry.s", "hlt");

/// Breaches in a file of the kernel; `name` from the root on.
pub fn check(name: &str, text: &str, found: &mut Vec<String>) {
    let Some(inside) = name.strip_prefix("kernel/src/") else { return };
    if inside.starts_with("tests/") || inside.ends_with("_host.rs") || inside.ends_with("_tests.rs") {
        return;
    }
    if !ROOMS.iter().any(|(room, _)| inside.starts_with(room)) {
        found.push(format!("{name}:1: no room of the kernel: say in {} which mechanism it is", file!()));
    }
    // Tests inside a file are its end.
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or("");
    let comment = if name.ends_with(".s") { "#" } else { "//" };
    let lines: Vec<&str> = code.lines().map(|line| line.split(comment).next().unwrap_or("").trim()).collect();
    for (index, line) in lines.iter().enumerate() {
        let mut breach = |what: String| found.push(format!("{name}:{}: {what}", index + 1));
        if let Some(word) = words(line).find(|word| POLICY.contains(&word.to_lowercase().as_str())) {
            breach(format!("`{word}`: the kernel has mechanisms, what is done with them is decided by programs"));
        }
        let mut identifiers = line.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
        if let Some(word) = identifiers.clone().find(|word| HEAP.contains(word)) {
            breach(format!("`{word}`: the kernel has no heap, whoever asks for something names the account that pays"));
        }
        let idles = name == IDLE.0 && lines.get(index + 1) == Some(&IDLE.1);
        if identifiers.any(|word| word == "sti") && !idles {
            breach(format!("`sti`: interrupts are off in the kernel but where it idles, in {} before `hlt`", IDLE.0));
        }
    }
}

/// The words that names are made of.
fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|letter: char| !letter.is_alphabetic())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn breaches(name: &str, text: &str) -> usize {
        let mut found = Vec::new();
        check(name, text, &mut found);
        found.len()
    }

    #[test]
    fn policy_heap_and_interrupts_are_found() {
        let trap = "kernel/src/trap.rs";
        assert_eq!(breaches(trap, "//! What the supervisor sees.\nfn go() {} // Vec, sti\n"), 0);
        for line in ["fn restart_core() {}", "let it: Vec<u8>;", "asm!(\"sti\");", "static TCP: u8 = 0;"] {
            assert_eq!(breaches(trap, line), 1, "{line}");
            assert_eq!(breaches("servers/fs/src/lib.rs", line), 0);
            assert_eq!(breaches("kernel/src/tests/fuzz.rs", line), 0);
            assert_eq!(breaches(trap, &format!("#[cfg(test)]\nmod tests {{\n{line}\n}}")), 0);
        }
        assert_eq!(breaches("kernel/src/files.rs", "//! Files.\n"), 1);
        assert_eq!(breaches(IDLE.0, "sti\n    hlt # and off again\n"), 0);
        assert_eq!(breaches(IDLE.0, "sti\nnop\nhlt\n"), 1);
    }
}
