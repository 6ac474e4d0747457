//! Who rang the doorbells of the card's two queues: as the driver saw it where it rang them, and as
//! the kernel's ledger has it. `transfers/handlers/rest/*`: while nothing is sent, the handler of
//! what is transmitted hears all the same that the last frames were.

use crate::host::port;
use crate::image::machine_type::MachineType;
use crate::machine::emulator::{Forward, Machine};
use crate::test::scenario::{Bench, with_console};
use crate::test::scenarios::web;
use anyhow::{Context, Result, ensure};
use std::time::Duration;
use system::{Handlers, System};

/// A word of the kernel's command line: the driver tells who rings.
pub const TELL_WORD: &str = "virtio-net.doorbells";
/// The driver says so where the card has no message for a second handler.
const FALLS_BACK: &str = "the card has no third message";
/// Stacks of two contexts lie farther apart than one is long that is not the first's; two calls of
/// one context do not.
const STACK_BYTES: u64 = 16 << 10;
/// Lives of the driver that tell, at least.
const TOLD_MIN: usize = 3;
/// Who has the card.
const DRIVER: &str = "virtio-net";
/// Longer than a driver waits before it resets a device that stands still, which takes a second.
const REST: Duration = Duration::from_millis(1_500);
const RESET: &str = "the device is reset";
/// So often it is to have its rest, and is asked for that at most.
const RESTS: usize = 2;
const RESTS_MAX: usize = 5;

/// So many handlers of the card.
pub fn describe(system: &mut System, handlers: Handlers) -> Result<()> {
    let driver = system.components.iter_mut().find(|component| component.name == DRIVER);
    driver.context("the description has no driver")?.handlers = handlers;
    Ok(())
}

/// A page is fetched, and then nothing is sent: few frames are with the device, so it does not
/// interrupt for them, and its driver does not take it for one that stands still. An emulator that
/// stands still for a second while a frame is with it looks like one, so that is asked until it was
/// not so twice.
pub fn rest(bench: &Bench, machine: MachineType, cpus: u32) -> Result<()> {
    let mut system = bench.system().clone();
    describe(&mut system, Handlers::Two)?;
    let port = port::free()?;
    let guest = bench.boot_system(&system, machine, cpus, &web::SERVER, |root, machine: &mut Machine| {
        root.file("root/www/file", 0o644, b"page\n".to_vec());
        machine.forwards.push(Forward::local(port, 80));
        Ok(())
    })?;
    let address = format!("http://127.0.0.1:{port}/file");
    with_console(guest, |guest| {
        guest.expect("pelago: ready", web::READY_LIMIT)?;
        let (mut calm, mut resets) = (0, 0);
        for _ in 0..RESTS_MAX {
            let page = web::fetch(&guest.liveness(), &address, web::READY_LIMIT)?;
            ensure!(page == b"page\n", "another page came");
            std::thread::sleep(REST);
            guest.catch_up();
            let now = guest.transcript.iter().filter(|line| line.contains(RESET)).count();
            calm += usize::from(now == resets);
            resets = now;
            if calm == RESTS {
                break;
            }
        }
        let reset = guest.transcript.iter().find(|line| line.contains(RESET));
        ensure!(calm == RESTS, "a card at rest: {}", reset.map_or("", String::as_str));
        Ok(())
    })
}

/// What the driver told in one of its lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Told {
    /// Times and stack, of the receive and of the transmit queue.
    rang: [(u64, u64); 2],
    /// Contexts of the driver on whose time it ran.
    payers: u64,
}

/// From `doorbells: receive N times, stack X; transmit N times, stack X; N contexts paid`.
fn told(line: &str) -> Option<Told> {
    let (_, rest) = line.split_once("doorbells: ")?;
    let mut parts = rest.split("; ");
    let mut rang = |name: &str| {
        let (times, stack) = parts.next()?.trim().strip_prefix(name)?.split_once(" times, stack ")?;
        Some((times.trim().parse().ok()?, u64::from_str_radix(stack.trim(), 16).ok()?))
    };
    let rang = [rang("receive")?, rang("transmit")?];
    Some(Told { rang, payers: parts.next()?.split_once(" contexts paid")?.0.trim().parse().ok()? })
}

/// What the driver told in its lives.
fn lives(transcript: &[String]) -> Result<Vec<Told>> {
    let lines = transcript.iter().filter(|line| line.contains("doorbells: "));
    lines.map(|line| told(line).with_context(|| format!("the driver says `{line}`"))).collect()
}

/// Of these those in which both doorbells rang.
fn both_rang(lives: Vec<Told>) -> Vec<Told> {
    lives.into_iter().filter(|told| told.rang.iter().all(|(times, _)| *times > 0)).collect()
}

/// Whether so many lives have told that [`judge`] can tell.
pub fn is_enough(transcript: &[String]) -> bool {
    lives(transcript).is_ok_and(|lives| both_rang(lives).len() >= TOLD_MIN)
}

/// In each life in which both rang it was by two contexts, or by one; and the kernel
/// says that so many paid. `has_message`: the card has one for a second handler.
pub fn judge(transcript: &[String], handlers: Handlers, has_message: bool) -> Result<()> {
    let says = transcript.iter().any(|line| line.contains(FALLS_BACK));
    ensure!(says == (handlers == Handlers::Two && !has_message), "that a message lacks was told: {says}");
    let wanted = if handlers == Handlers::Two && has_message { 2 } else { 1 };
    let both = both_rang(lives(transcript)?);
    ensure!(both.len() >= TOLD_MIN, "in {} lives of the driver both doorbells rang", both.len());
    for Told { rang: [(_, receiver), (_, transmitter)], payers } in &both {
        let ringers = if receiver.abs_diff(*transmitter) >= STACK_BYTES { 2 } else { 1 };
        ensure!(ringers == wanted, "{ringers} contexts rang, at {receiver:x} and {transmitter:x}: {wanted} were to");
        ensure!(*payers == wanted, "{payers} contexts paid for the driver: {wanted} were to");
    }
    let sum = |queue: usize| both.iter().map(|told| told.rang[queue].0).sum::<u64>();
    println!("     {} lives: doorbells rang {} and {} times, by {wanted}", both.len(), sum(0), sum(1));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(stacks: [u64; 2], payers: u64, more: &[&str]) -> Vec<String> {
        let line = |times: u64| {
            let [receiver, transmitter] = stacks;
            format!(
                "virtio-net: doorbells: receive {times} times, stack {receiver:x}; transmit 7 times, stack \
                 {transmitter:x}; {payers} contexts paid"
            )
        };
        // In the first life nothing was received.
        (0..4).map(line).chain(more.iter().map(|line| String::from(*line))).collect()
    }

    #[test]
    fn who_rang_is_judged_by_stacks_and_payers() {
        const APART: [u64; 2] = [0x7000_0000, 0x7000_4000];
        const SAME: [u64; 2] = [0x7000_0000, 0x7000_0100];
        let of = |stacks, payers, handlers| judge(&lines(stacks, payers, &[]), handlers, true).is_ok();
        assert!(of(APART, 2, Handlers::Two) && of(SAME, 1, Handlers::One));
        assert!(!of(SAME, 2, Handlers::Two) && !of(APART, 1, Handlers::Two) && !of(APART, 2, Handlers::One));
        assert!(!of(SAME, 2, Handlers::One));
        assert!(judge(&lines(APART, 2, &[])[..3], Handlers::Two, true).is_err(), "too few");
        assert!(is_enough(&lines(APART, 2, &[])) && !is_enough(&lines(APART, 2, &[])[..3]));
        // Without a message it is one, and is said.
        let falls_back = |more: &[&str]| judge(&lines(SAME, 1, more), Handlers::Two, false).is_ok();
        assert!(falls_back(&["virtio-net: the card has no third message (NotFound): one"]) && !falls_back(&[]));
    }
}
