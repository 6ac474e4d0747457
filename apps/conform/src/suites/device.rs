//! Device: claims of several cores, and who pays for interrupts.

use alloc::rc::Rc;
use core::sync::atomic::{AtomicU64, Ordering};

use abi::{Error, Handle, Rights};
use runtime::Companion;

use crate::table::Words;
use crate::{Failure, Fixture, Outcome, Partner, refused, require, suite};

suite!("device"; alone: claims_are_the_monitors, a_flood_of_interrupts_is_on_its_handlers_bill; paired: one_core_has_a_device_at_a_time; far: hold, claim_too);

/// Claims that each of two cores gets and gives back.
const CLAIMS: u64 = 100;
/// A core says that it holds the device, and is told to give it back, by these of its shared words.
const HELD: u64 = 0;
const ENOUGH: u64 = 1;
/// Core 1's third word, which is nobody else's: how many cores hold the device that all pairs of
/// cores ask for.
const HOLDERS: (u64, u64) = (1, 2);

fn claims_are_the_monitors(fixture: &Fixture) -> Outcome {
    refused(sys::device_alloc(fixture.ram(), fixture.ram(), u64::MAX), Error::WrongType)?;
    refused(sys::device_alloc(fixture.pcore()?, fixture.ram(), u64::MAX), Error::NotFound)?;
    Ok(())
}

/// The last device there is: nobody drives it here.
fn device() -> Result<u64, Failure> {
    let found = (0..).map_while(|index| sys::device_list(index).ok()).filter(|device| device.vendor != 0).last();
    found.map(|device| device.hwid).ok_or_else(|| Failure::new("the machine has no device"))
}

/// The serial port: hardware id, its interrupt, the register that lets it interrupt, and that it
/// does so when it can take a byte.
const SERIAL: u64 = 0x2_0000;
const INTERRUPT: u64 = 0;
const ENABLE: u64 = 1;
const WHEN_EMPTY: u64 = 2;
/// Interrupts of a flood; what the program that they come upon does between two, and their handler
/// for each.
const FLOOD: u64 = 500;
const OWN_WORK_NS: u64 = 20_000;
const HANDLERS_WORK_NS: u64 = 60_000;
const PRIORITY: u64 = 1;
const SLICE_US: u64 = 1000;

/// What handler, program and test tell each other.
struct Flood {
    serial: AtomicU64,
    raised: AtomicU64,
    handled: AtomicU64,
}

static FLOODED: Flood = Flood { serial: AtomicU64::new(0), raised: AtomicU64::new(0), handled: AtomicU64::new(0) };

fn work(for_ns: u64) {
    let begin_ns = runtime::now_ns();
    while runtime::now_ns() < begin_ns + for_ns {}
}

extern "C" fn handle_interrupts(_: u64) -> ! {
    loop {
        if sys::wait(u64::MAX).is_ok() {
            work(HANDLERS_WORK_NS);
            FLOODED.handled.fetch_add(1, Ordering::Release);
        }
    }
}

/// Computes, and has the port interrupt it all the time: it is empty, and says so whenever that is
/// asked for anew.
extern "C" fn be_flooded(_: u64) -> ! {
    let serial = Handle(FLOODED.serial.load(Ordering::Acquire));
    for _ in 0..FLOOD {
        work(OWN_WORK_NS);
        let _ = [0, WHEN_EMPTY].map(|enable| sys::device_port_write(serial, ENABLE, 1, enable));
        FLOODED.raised.fetch_add(1, Ordering::Release);
    }
    loop {
        let _ = sys::wait(u64::MAX);
    }
}

fn bill_ns(companion: &Companion) -> Result<u64, Failure> {
    let time = companion.time().ok_or_else(|| Failure::new("without time"))?;
    Ok(sys::schedule_stat(time)?.0)
}

/// Interrupts that come while a program computes are handled on their handler's time: first by a
/// better handler, who interrupts the program each time, then by one of the same priority, beside
/// whom it gets its share. Core 0 alone takes interrupts of lines.
fn a_flood_of_interrupts_is_on_its_handlers_bill(fixture: &Fixture) -> Outcome {
    if fixture.core() > 0 {
        return Err(Failure::absent("core 0 alone takes interrupts of lines"));
    }
    for better in [1, 0] {
        let serial = sys::device_alloc(fixture.pcore()?, fixture.ram(), SERIAL)?;
        FLOODED.serial.store(serial.0, Ordering::Release);
        [&FLOODED.raised, &FLOODED.handled].iter().for_each(|count| count.store(0, Ordering::Release));
        // SAFETY: they compute and make calls.
        let handler = unsafe { Companion::start(handle_interrupts, 0, Some((PRIORITY + better, SLICE_US))) }?;
        let doorbell = sys::cap_mint(handler.context(), Rights::ALL, 1)?;
        sys::device_interrupt(serial, INTERRUPT, doorbell)?;
        let begin_ns = runtime::now_ns();
        // SAFETY: as above.
        let program = unsafe { Companion::start(be_flooded, 0, Some((PRIORITY, SLICE_US))) }?;
        fixture.until("the flood is over", || FLOODED.raised.load(Ordering::Acquire) == FLOOD)?;
        let (took_ns, own_ns, handlers_ns) = (runtime::now_ns() - begin_ns, bill_ns(&program)?, bill_ns(&handler)?);
        let handled = FLOODED.handled.load(Ordering::Acquire);
        sys::device_port_write(serial, ENABLE, 1, 0)?;
        drop((program, handler));
        [doorbell, serial].into_iter().try_for_each(sys::cap_drop)?;
        runtime::log!("flood: {FLOOD} raised, {handled} handled; bills {own_ns} and {handlers_ns} ns of {took_ns}");
        // Those that come while it has no turn are one to a handler.
        let enough = if better > 0 && fixture.has_exact_time() { FLOOD - 1 } else { 1 };
        require!(handled >= enough, "{handled} of {FLOOD} interrupts were handled");
        require!(
            handlers_ns >= (handled - 1) * HANDLERS_WORK_NS,
            "the handler's bill is {handlers_ns} ns for {handled}"
        );
        let is_fit = own_ns < 2 * FLOOD * OWN_WORK_NS && took_ns < own_ns * 5 / 2 + handlers_ns * better;
        require!(is_fit || !fixture.has_exact_time(), "the program's bill is {own_ns} ns of {took_ns}");
    }
    Ok(())
}

/// Claims it as soon as nobody else has it; sees that nobody else does.
fn claim(fixture: &Fixture, hwid: u64) -> Result<Handle, Failure> {
    let end_ns = fixture.deadline_ns();
    loop {
        match sys::device_alloc(fixture.pcore()?, fixture.ram(), hwid) {
            Err(Error::Busy) => {
                require!(runtime::now_ns() < end_ns, "the device {hwid:#x} is never free");
                fixture.look()?;
            }
            Err(error) => return Err(error.into()),
            Ok(device) => {
                let others = fixture.shared(HOLDERS.0, HOLDERS.1).fetch_add(1, Ordering::AcqRel);
                require!(others == 0, "{others} other cores have the device {hwid:#x}");
                return Ok(device);
            }
        }
    }
}

fn release(fixture: &Fixture, device: Handle) -> Outcome {
    fixture.shared(HOLDERS.0, HOLDERS.1).fetch_sub(1, Ordering::AcqRel);
    Ok(sys::cap_drop(device)?)
}

/// While the next core has a device we are refused it; when both ask at once, and other pairs of
/// cores too, it never has two owners, and each is one in the end.
async fn one_core_has_a_device_at_a_time(fixture: Rc<Fixture>, partner: Rc<Partner>) -> Outcome {
    let hwid = device()?;
    let [held, enough] = [HELD, ENOUGH].map(|word| fixture.shared(fixture.core(), word));
    [held, enough].iter().for_each(|word| word.store(0, Ordering::Release));
    let answer = partner.act("device/hold", [fixture.core(), hwid, 0, 0]);
    let end_ns = fixture.deadline_ns();
    while held.load(Ordering::Acquire) == 0 {
        require!(runtime::now_ns() < end_ns, "the next core does not get the device");
        runtime::sleep(1_000_000).await;
    }
    refused(sys::device_alloc(fixture.pcore()?, fixture.ram(), hwid), Error::Busy)?;
    enough.store(1, Ordering::Release);
    answer.await?;
    let answer = partner.act("device/claim_too", [hwid, 0, 0, 0]);
    runtime::sleep(1).await;
    claim_often(&fixture, hwid)?;
    answer.await?;
    Ok(())
}

fn hold(fixture: &Fixture, [core, hwid, ..]: Words) -> Result<Words, Failure> {
    let device = claim(fixture, hwid)?;
    fixture.shared(core, HELD).store(1, Ordering::Release);
    fixture.until("the core before has tried", || fixture.shared(core, ENOUGH).load(Ordering::Acquire) != 0)?;
    release(fixture, device)?;
    Ok([0; 4])
}

fn claim_too(fixture: &Fixture, [hwid, ..]: Words) -> Result<Words, Failure> {
    claim_often(fixture, hwid)?;
    Ok([0; 4])
}

fn claim_often(fixture: &Fixture, hwid: u64) -> Outcome {
    (0..CLAIMS).try_for_each(|_| release(fixture, claim(fixture, hwid)?))
}
