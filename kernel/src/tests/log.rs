//! What programs say in the log.

use super::World;
use super::time::context;
use crate::hardware;
use crate::memory::phys_to_virt;
use abi::{Call, layout};

/// A terminal obeys nothing that a program says there, and a program cannot answer control requests
/// in the console's name (0x1e).
#[test]
fn control_characters_are_shown_and_not_obeyed() {
    let mut world = World::new(512);
    let domain = world.monitor();
    let mapping = context(domain).domain().range().at(layout::CONTROL_PAGE).unwrap();
    let page = phys_to_virt(mapping.segment().unwrap().base().unwrap());
    world.kernel.decide();
    // Behind what the kernel writes there.
    let at = 2048;
    let mut logged = |text: &[u8]| {
        // SAFETY: the page of a living context in the world's memory.
        unsafe { core::ptr::copy_nonoverlapping(text.as_ptr(), page.add(at), text.len()) };
        let words = [layout::CONTROL_PAGE + at as u64, text.len() as u64, 0, 0, 0, 0];
        assert_eq!(world.runner_calls(Call::Log, words).0, 0);
        hardware::take_line()
    };
    for (text, line) in [
        ("plain \u{e9}\u{4e2d}\n\n", "plain \u{e9}\u{4e2d}"),
        ("two\n\tlines", "two\n\tlines"),
        ("\x1b[2J\x1b]0;x\x07y", "\\x1b[2J\\x1b]0;x\\x07y"),
        ("\r\x1eok done\x08\x7f\0", "\\x0d\\x1eok done\\x08\\x7f\\x00"),
        ("a\u{9b}31m", "a\\x9b31m"),
        ("", ""),
    ] {
        assert_eq!(logged(text.as_bytes()), line);
    }
    assert_eq!(logged(b"\xff\x1b"), "\\xff\\x1b");
}
