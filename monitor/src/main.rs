//! The monitor of one core: wires the registry to the kernel and to messages.
#![cfg_attr(target_os = "none", no_std, no_main)]

extern crate alloc;

mod boot;
mod cores;
#[cfg(test)]
#[path = "tests/fake.rs"]
#[expect(dead_code, reason = "the registry's tests use the rest")]
mod fake;
mod kernel_calls;
mod link;
mod lookup;
mod memory;
mod service;
mod time_of_day;
mod work;

use alloc::rc::Rc;
use core::slice;

use abi::layout::START_INFO;
use abi::start::{StartHeader, kind};
use abi::{Handle, PAGE_BYTES};
use monitor_core::{Facts, Registry, archive};
use runtime::Start;

use crate::kernel_calls::KernelCalls;
use crate::service::Service;

runtime::main!(component);

/// What the kernel calls the boot archive.
const ARCHIVE: &str = "archive";
/// Status of a machine that cannot start.
const CANNOT_START: u64 = 70;

async fn component(start: Start) {
    if start.core() == 0 {
        // `./pelago bench` waits for this line: how soon the first program runs.
        runtime::log!("first program");
    }
    let Some((mut facts, archive)) = given(&start) else { return give_up("the kernel gave no boot archive") };
    if let Err(error) = time_of_day::start(&start, &mut facts, command_line(&start)) {
        return give_up(&alloc::format!("no clock page: {}", error.name()));
    }
    let service = Rc::new(Service::new(Registry::new(KernelCalls::default(), facts, archive, command_line(&start))));
    runtime::spawn(service.clone().watch_deaths());
    runtime::spawn(service.clone().watch_stalls());
    runtime::spawn(service.clone().beat());
    match link::far_end(&start) {
        Some(Ok(channel)) => service.serve(channel).await,
        Some(Err(error)) => runtime::log!("core {} has no link to core 0: {}", facts.core, error.name()),
        None => first(service, facts, archive).await,
    }
}

/// Core 0: everything else starts from here.
async fn first(service: Rc<Service>, facts: Facts, files: &'static [u8]) {
    let description = archive::file(files, system::SYSTEM_PATH).ok_or(system::DecodeError::Malformed);
    let description = match description.and_then(system::decode::<system::System>) {
        Ok(description) => description,
        Err(error) => return give_up(&alloc::format!("{}: {error:?}; build the archive again", system::SYSTEM_PATH)),
    };
    boot::list_devices(&description);
    runtime::spawn(service.clone().watch_cores());
    runtime::spawn(service.clone().beat_monitors());
    if let Err(reason) = boot::start_components(&service, &description, facts.cores) {
        return give_up(&reason);
    }
    boot::start_cores(service.clone(), facts.cores).await;
    service.cores_are_up();
    core::future::pending::<()>().await;
}

fn give_up(reason: &str) {
    runtime::log!("cannot start: {reason}");
    let _ = sys::power_off(Handle::PCORE, CANNOT_START);
}

/// Facts of this core, and the boot archive; `None` if the kernel gave none.
fn given(start: &Start) -> Option<(Facts, &'static [u8])> {
    // SAFETY: the kernel maps the start page here, read-only, for the monitor's life; plain data.
    let header = unsafe { &*(START_INFO as *const StartHeader) };
    let archive = start.file(ARCHIVE)?;
    let facts = Facts {
        core: start.core(),
        cores: start.cores(),
        tsc: [header.tsc_hz, header.tsc_at_boot, header.tsc_to_ns_mul],
        archive_offset: archive.as_ptr() as u64 % PAGE_BYTES,
        ..Facts::default()
    };
    Some((facts, archive))
}

/// The kernel's command line; components get it too.
fn command_line(start: &Start) -> &'static [u8] {
    let Some(record) = start.records().iter().find(|record| record.kind == kind::COMMAND_LINE) else { return &[] };
    // SAFETY: the kernel put it there for the monitor's life.
    unsafe { slice::from_raw_parts(record.address as *const u8, record.bytes as usize) }
}
