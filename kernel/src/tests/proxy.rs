//! How badge bits reach a Linux program and its proxy.

use super::World;
use crate::memory::phys_to_virt;
use crate::objects::context::Proxy;
use crate::objects::{Context, Domain, Ptr};
use crate::scheduler::Decision;
use abi::{ControlPage, ExceptionInfo, Handle, Rights, layout};

const SIGNALS: u64 = 0b110;
const PROXY: Proxy = Proxy { call_entry: Some(0x10_000), upcall_entry: 0x20_000, stack_top: 0x30_000 };
const PROGRAM: u64 = 0x4000;

fn control_page(domain: Ptr<Domain>) -> *mut ControlPage {
    let mapping = domain.range().at(layout::CONTROL_PAGE).unwrap();
    phys_to_virt(mapping.segment().unwrap().base().unwrap()).cast()
}

/// The word that program and proxy see, read as they do.
fn in_proxy(page: *mut ControlPage) -> u64 {
    // SAFETY: the page of a living context in the world's memory.
    unsafe { (&raw const (*page).in_proxy).read_volatile() }
}

#[test]
fn bits_interrupt_the_program_and_only_mark_the_proxy() {
    let mut world = World::new(512);
    let domain = world.monitor();
    let context = domain.share().find::<Context>(Handle(4), Rights(0)).unwrap().0;
    let page = control_page(domain);
    let kernel = &mut *world.kernel;
    context.proxy.set(Some(PROXY));
    // SAFETY: as above.
    unsafe {
        (&raw mut (*page).upcall_mask).write_volatile(SIGNALS);
        (&raw mut (*page).in_proxy).write_volatile(ControlPage::INSIDE);
    }
    let mut enter_and_leave = |bits| {
        kernel.signal(context, bits);
        assert!(matches!(kernel.decide(), Decision::Resume(_)));
    };
    context.with_registers(|registers| registers.rip = PROGRAM);
    // The proxy runs: bits nobody asked for leave no mark, a signal's do, and nothing moves.
    enter_and_leave(1);
    assert_eq!(in_proxy(page), ControlPage::INSIDE);
    enter_and_leave(0b010);
    assert_eq!(in_proxy(page), ControlPage::INSIDE | ControlPage::RUNG);
    assert_eq!(context.with_registers(|registers| registers.rip), PROGRAM);
    // The proxy takes the mark back but does not look: the next way through the kernel marks again.
    // SAFETY: as above.
    unsafe { (&raw mut (*page).in_proxy).write_volatile(ControlPage::INSIDE) };
    enter_and_leave(0);
    assert_eq!(in_proxy(page), ControlPage::INSIDE | ControlPage::RUNG);
    // The program runs: it is interrupted, with its place written down.
    // SAFETY: as above.
    unsafe { (&raw mut (*page).in_proxy).write_volatile(0) };
    enter_and_leave(0);
    assert_eq!(in_proxy(page), ControlPage::INSIDE);
    assert_eq!(context.with_registers(|registers| registers.rip), PROXY.upcall_entry);
    // SAFETY: as above.
    let (program, exception) = unsafe { ((*page).program, (*page).exception) };
    assert_eq!((program.rip, exception.vector), (PROGRAM, ExceptionInfo::NOTIFICATION));
}
