//! The console: owns the serial line, serves the terminal on it, and answers control lines.
//!
//! Wiring only; rules are in the library beside it. Runs on core 0, where the kernel's own lines go
//! out too. Needs nobody to start: `process` and `supervisor`, which start later, are asked when
//! first needed.
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

extern crate alloc;

mod keys;
mod serial;

use alloc::boxed::Box;
use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;

use abi::Handle;
use abi::start::Entrance;
use channel::Bulk;
use console_core::commands::Commands;
use console_core::ending::put_away;
use console_core::record::{Kept, RECORD_BYTES, REGION, Request};
use console_core::service::{Console, Outside};
use console_core::settings::Settings;
use console_core::streams::{self, Found, Streams};
use contracts::descriptions;
use contracts::process::ProcessClient;
use packet::Memory;
use runtime::{Region, Start};
use virtio::device::{self, Card, Claim, RESET_NS};
use virtio::ports::KIND;

runtime::main!(component);

/// State of a fresh start: the first program is the foreground.
const FRESH: (u16, u16, u32) = (24, 80, 1);

/// Until a process server that is gone is asked again.
const PAUSE_NS: u64 = 10_000_000;
/// Badge bit of the streams' device; the one before is the serial line's.
const DEVICE_BIT: u64 = 1 << (runtime::OWN_BITS.start + 1);

async fn component(start: Start) {
    let device = start.device("serial");
    if device.is_none() {
        runtime::log!("no serial line given: the terminal is silent");
    }
    let memory = start.region(REGION).as_ref().map(Region::memory);
    let run = run(&start);
    let state = recovered(&start, memory.as_ref()).unwrap_or_else(|| {
        let (mut rows, mut columns, foreground) = FRESH;
        if run.window.0 > 0 && run.window.1 > 0 {
            (rows, columns) = run.window;
        }
        Kept { settings: Settings::default(), rows, columns, foreground, request: Request::NONE }
    });
    let (line, wiring) = (device, start.clone());
    let outside = Outside {
        write: Box::new(move |bytes| {
            if let Some(device) = line {
                serial::write(device.handle, bytes);
            }
        }),
        keep: Box::new(move |state| keep(memory.as_ref(), state)),
        process: Box::new(move || wiring.client("process").ok()),
        bring_key: keys::bringer(&start),
    };
    let mut console = Console::new(state, outside);
    let mut claim = None;
    match open_streams(&start) {
        Ok(None) => {}
        Ok(Some((streams, found))) => {
            claim = Some(found);
            console = console.with_streams(streams, run.terminals);
        }
        Err(reason) => runtime::log!("the streams are on the serial line: {reason}"),
    }
    let console = Rc::new(console);
    let (wiring, monitor, power) = (start.clone(), start.clone(), start.capability("power"));
    let keepers = start.clone();
    let commands = Rc::new(Commands {
        supervisor: Box::new(move || wiring.client("supervisor").ok()),
        lookup: Box::new(move || monitor.client("monitor").ok()),
        storages: Box::new(move || keepers.clients()),
        power_off: Box::new(move || power_off(power)),
    });
    runtime::spawn(console.clone().send_signals());
    runtime::spawn(commands.clone().answer_requests(console.clone()));
    runtime::spawn(end(start.clone(), console.clone()));
    if run.arguments.is_empty() {
        runtime::spawn(commands.answer_person(console.clone()));
    }
    if let Some(device) = device {
        runtime::spawn(serial::receive(device, console.clone()));
    }
    if let Some(claim) = claim {
        runtime::spawn(hear(claim, console.clone()));
    }
    start.serving();
    let mut channels = start.incoming(descriptions::NAME);
    loop {
        let channel = channels.next().await;
        runtime::spawn(descriptions::serve_descriptions(console.clone(), channel));
    }
}

fn recovered(start: &Start, memory: Option<&Bulk>) -> Option<Kept> {
    if start.entrance() == Entrance::Fresh {
        return None;
    }
    let mut record = [0; RECORD_BYTES];
    memory?.read(0, &mut record).ok()?;
    let kept = Kept::decode(&record);
    if kept.is_none() {
        runtime::log!("the state in {REGION} is damaged: starting with the defaults");
    }
    kept
}

/// Without a region the state is simply not kept.
fn keep(memory: Option<&Bulk>, state: &Kept) {
    if let Some(memory) = memory
        && memory.write(0, &state.encode()).is_err()
    {
        runtime::log!("the region {REGION} is too small: state is not kept");
    }
}

/// What is run. An archive that does not tell runs some program, as `process` sees it too.
fn run(start: &Start) -> system::Run {
    let run = start.file(system::RUN_PATH).map(system::decode::<system::Run>);
    match run {
        Some(Ok(run)) => run,
        _ => system::Run { arguments: alloc::vec![String::new()], ..system::Run::default() },
    }
}

/// The streams, if the machine has a device for them. The error is for people.
fn open_streams(start: &Start) -> Result<Option<(Streams, Claim)>, String> {
    let Some(found) = start.device("virtio-console") else { return Ok(None) };
    let region = start.region(streams::REGION).ok_or("the region streams is missing: correct system/*.toml")?;
    let (transport, claim) = device::begin(found.handle, KIND, DEVICE_BIT, DEVICE_BIT)?;
    let recovers = start.entrance() != Entrance::Fresh;
    let memory: Rc<dyn Memory> = Rc::new(region.memory());
    let mut card = Card::new(claim, RESET_NS);
    let (streams, found) = Streams::start(transport, memory, region.physical, recovers, &mut card)
        .map_err(|error| format!("their device does not start: {error:?}"))?;
    if let Found::Reset(why) = found {
        runtime::log!("the streams' device was reset ({why:?}): what was on its way is lost");
    }
    Ok(Some((streams, claim)))
}

/// Looks at the streams' device at each interrupt, for ever.
async fn hear(claim: Claim, console: Rc<Console>) {
    console.look();
    device::serve_interrupts(claim, DEVICE_BIT, || console.acknowledge(), || console.look()).await;
}

/// Ends the machine with the first program, when all that it wrote is kept or has left.
async fn end(start: Start, console: Rc<Console>) {
    let Ok(process) = start.client::<ProcessClient>("process") else { return };
    let how = loop {
        match process.first_ended().await {
            Ok(how) => break how,
            Err(_) => runtime::sleep(PAUSE_NS).await,
        }
    };
    put_away(start.clients()).await.iter().for_each(|problem| runtime::log!("{problem}"));
    console.finish(how).await;
    if let Some(power) = start.capability("power") {
        let error = sys::power_off(power, how.shell_status().into());
        runtime::log!("the machine does not end: {error:?}");
    }
}

fn power_off(power: Option<Handle>) -> String {
    match power {
        Some(power) => format!("the machine does not end: {:?}", sys::power_off(power, 0)),
        None => "the console may not end the machine; on the host, Ctrl-C does".into(),
    }
}
