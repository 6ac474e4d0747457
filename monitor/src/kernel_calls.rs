//! The kernel's calls, as the trait [`monitor_core::Machine`].

use alloc::string::String;
use core::slice;

use abi::layout::{CONTROL_PAGE, REGIONS, context, domain, lock, portal, protection, segment};
use abi::start::DeviceRecord;
use abi::{DomainState, Error, Handle, PAGE_BYTES, Rights};
use channel::{Layout, Memory};
use monitor_core::offset::Look;
use monitor_core::{Machine, Registers, Stall, Time};
use runtime::LogLimit;

/// `DeviceRecord::hwid` of the real-time clock: an index port and a data port.
pub const RTC: u64 = 0x2_0001;

/// Where segments being filled are mapped for a moment.
const SCRATCH: u64 = REGIONS + (32 << 30);
/// Time slice of every context. What servers do for a program is not in it, so turns of programs
/// that send and receive are several times as long.
const SLICE_US: u64 = 2_000;
/// The part of a core's memory that an account of all leaves to what else runs there.
const KEPT_PART: u64 = 8;
/// What a doorbell may be used for by whom it is given to.
const BELL: Rights = Rights::NOTIFY.union(Rights::GRANT);

/// Makes the calls.
#[derive(Default)]
pub struct KernelCalls {
    /// What it refused.
    refusals: LogLimit,
}

/// Whether what else runs on a core has enough when so much is taken.
fn leaves_enough(all_pages: u64, free_pages: u64, taken_pages: u64) -> bool {
    free_pages >= taken_pages.saturating_add(all_pages / KEPT_PART)
}

/// Most pages of an account by its description.
fn limit(all_pages: u64, told_pages: u64) -> u64 {
    if told_pages == u64::from(system::ALL_MEMORY) { all_pages - all_pages / KEPT_PART } else { told_pages }
}

impl Machine for KernelCalls {
    fn segment(&mut self, pages: u64, contiguous: bool) -> Result<(Handle, u64), Error> {
        sys::segment_alloc(Handle::ROOT_RAM, pages, if contiguous { segment::CONTIGUOUS } else { 0 })
    }

    fn common(&mut self, pages: u64, spare_pages: u64) -> Result<Handle, Error> {
        let (all_pages, _, free_pages) = sys::ram_stat(Handle::ROOT_RAM)?;
        if !leaves_enough(all_pages, free_pages, pages.saturating_add(spare_pages)) {
            return Err(Error::NoMemory);
        }
        sys::segment_alloc(Handle::ROOT_RAM, pages, segment::EAGER | segment::COMMON).map(|(made, _)| made)
    }

    fn segment_of(&mut self, ram: Handle, pages: u64) -> Result<Handle, Error> {
        sys::segment_alloc(ram, pages, 0).map(|(segment, _)| segment)
    }

    fn import(&mut self, physical: u64, pages: u64) -> Result<Handle, Error> {
        sys::segment_import(Handle::PCORE, Handle::ROOT_RAM, physical, pages, 0)
    }

    fn pool(&mut self, pages: u64) -> Result<(Handle, u64), Error> {
        let (share, _) = sys::share_pool_alloc(Handle::ROOT_RAM, pages, lock::SPIN, [0; 2])?;
        let id = sys::share_pool(Handle::PCORE, share).inspect_err(|_| self.drop(share))?;
        Ok((share, id))
    }

    fn import_pool(&mut self, id: u64) -> Result<Handle, Error> {
        sys::share_import(Handle::PCORE, Handle::ROOT_RAM, id)
    }

    fn copy(&mut self, ram: Handle, segment: Handle) -> Result<Handle, Error> {
        sys::segment_copy(ram, segment, abi::layout::copy::ON_WRITE)
    }

    fn fill(&mut self, segment: Handle, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        let pages = (offset + bytes.len() as u64).div_ceil(PAGE_BYTES);
        if pages == 0 {
            return Ok(());
        }
        sys::range_map(Handle::SELF_RANGE, SCRATCH, segment, 0, pages, protection::READ | protection::WRITE)?;
        // SAFETY: just mapped for writing, `offset + bytes.len()` bytes at least, and nothing else
        // uses this address or, yet, the segment.
        unsafe { slice::from_raw_parts_mut((SCRATCH + offset) as *mut u8, bytes.len()) }.copy_from_slice(bytes);
        // SAFETY: the slice above is gone.
        unsafe { sys::range_unmap(Handle::SELF_RANGE, SCRATCH, pages) }.map(drop)
    }

    fn channel(&mut self, segment: Handle, layout: Layout, format: bool) -> Result<Memory, Error> {
        // The mapping takes a capability of its own and gives it back at its end.
        let own = sys::cap_copy(segment, Rights::READ.union(Rights::WRITE))?;
        let (address, bytes, keeper) = runtime::map_segment(own).inspect_err(|_| self.drop(own))?;
        // SAFETY: mapped for as long as the keeper lives, and reached as a channel only.
        let memory = unsafe {
            if format {
                Memory::format(address, bytes, layout, Some(keeper))
            } else {
                Memory::attach(address, bytes, Some(keeper))
            }
        };
        memory.map_err(|_| Error::BadArgument)
    }

    fn portal(&mut self, badge: u64) -> Result<Handle, Error> {
        sys::portal_alloc(Handle::ROOT_RAM, Handle::NONE, badge, portal::MAILBOX)
    }

    fn entrance(&mut self, badge: u64) -> Result<Handle, Error> {
        sys::portal_alloc(Handle::ROOT_RAM, Handle::NONE, badge, portal::RENDEZVOUS)
    }

    fn semaphore(&mut self) -> Result<Handle, Error> {
        sys::semaphore_alloc(Handle::ROOT_RAM, 0)
    }

    fn lead(&mut self, portal: Handle, context: Handle) -> Result<(), Error> {
        sys::portal_set(portal, context)
    }

    fn own_doorbell(&mut self, badge: u64) -> Result<Handle, Error> {
        sys::cap_mint(Handle::SELF_CONTEXT, BELL, badge)
    }

    fn own_portal(&mut self, badge: u64) -> Result<Handle, Error> {
        sys::portal_alloc(Handle::ROOT_RAM, Handle::SELF_CONTEXT, badge, portal::MAILBOX)
    }

    fn slot(&mut self, portal: Handle) -> Result<u64, Error> {
        sys::wake_slot_alloc(Handle::PCORE, portal, 0)
    }

    fn free_slot(&mut self, slot: u64) {
        // Of a slot that is free already nothing is lost.
        let _ = sys::wake_slot_free(Handle::PCORE, slot);
    }

    fn remote(&mut self, core: u32, slot: u64) -> Result<Handle, Error> {
        sys::wake_slot_import(Handle::PCORE, Handle::ROOT_RAM, core.into(), slot)
    }

    fn random(&mut self) -> u32 {
        let mut bytes = [0; 4];
        runtime::fill_random(&mut bytes);
        u32::from_le_bytes(bytes).max(1)
    }

    fn free_pages(&mut self) -> u64 {
        sys::ram_stat(Handle::ROOT_RAM).map_or(0, |(_, _, free_pages)| free_pages)
    }

    fn ring(&mut self, doorbell: Handle) {
        // A peer that cannot be notified is gone, and looks at its channels when it comes back.
        let _ = sys::notify(doorbell);
    }

    fn ring_busy(&mut self, doorbell: Handle) {
        let _ = sys::notify_busy(doorbell);
    }

    fn drop(&mut self, handle: Handle) {
        let _ = sys::cap_drop(handle);
    }

    fn account(&mut self, limit_pages: u64, turns_of: Option<Handle>) -> Result<Handle, Error> {
        let (all_pages, ..) = sys::ram_stat(Handle::ROOT_RAM)?;
        sys::ram_split(Handle::ROOT_RAM, limit(all_pages, limit_pages), turns_of.unwrap_or(Handle::PCORE))
    }

    fn begin_turns(&mut self, ram: Handle) -> Result<(), Error> {
        sys::ram_turns(ram)
    }

    fn domain(&mut self, ram: Handle, linux: bool, name: &str, log_of: Option<Handle>) -> Result<(Handle, u64), Error> {
        let flags = if linux { domain::WRITE_EXECUTE } else { 0 };
        sys::domain_alloc_named(ram, flags, Handle::PCORE, name, log_of.unwrap_or(Handle::NONE))
    }

    fn grant(&mut self, domain: Handle, source: Handle, rights: Rights) -> Result<Handle, Error> {
        sys::domain_grant(domain, source, rights)
    }

    fn range(&mut self, domain: Handle) -> Result<Handle, Error> {
        sys::domain_range(domain)
    }

    fn map(
        &mut self,
        range: Handle,
        address: u64,
        segment: Handle,
        first_page: u64,
        pages: u64,
        protection: u64,
    ) -> Result<(), Error> {
        sys::range_map(range, address, segment, first_page, pages, protection)
    }

    fn context(&mut self, ram: Handle, domain: Handle, time: Time, registers: Registers) -> Result<Handle, Error> {
        let flags = match registers {
            Registers::General => 0,
            Registers::Vectors => context::FPU,
            Registers::Linux => context::FPU | context::LINUX,
        };
        let priority = time.priority.into();
        let made = sys::context_alloc(ram, domain, CONTROL_PAGE, flags, priority)?;
        // The context keeps its time; nobody else needs a name for it.
        let scheduled = sys::context_schedule(ram, made, priority, SLICE_US).and_then(|schedule| {
            let limited = time
                .budget
                .map_or(Ok(()), |(slice_us, period_us)| sys::schedule_set(schedule, slice_us.into(), period_us.into()));
            sys::cap_drop(schedule).and(limited)
        });
        match scheduled {
            Ok(()) => Ok(made),
            Err(error) => {
                self.drop(made);
                Err(error)
            }
        }
    }

    fn start(&mut self, context: Handle, entry: u64, stack: u64) -> Result<(), Error> {
        // The return address that a called function would find: none.
        // SAFETY: the context is of another domain, whose program's entry this is.
        unsafe { sys::context_start(context, entry, stack - 8, [0, 0]) }
    }

    fn watch(&mut self, domain: Handle, context: Handle, death_badge: u64, stall: Option<Stall>) -> Result<(), Error> {
        let doorbell = sys::cap_mint(Handle::SELF_CONTEXT, Rights::NOTIFY, death_badge)?;
        let done = sys::domain_on_death(domain, doorbell);
        self.drop(doorbell);
        done?;
        let Some(Stall { badge, limit_ns }) = stall else { return Ok(()) };
        let doorbell = sys::cap_mint(Handle::SELF_CONTEXT, Rights::NOTIFY, badge)?;
        let done = sys::context_watch(context, limit_ns, doorbell);
        self.drop(doorbell);
        done
    }

    fn kill(&mut self, domain: Handle, status: u64) -> Result<(), Error> {
        sys::domain_kill(domain, status)
    }

    fn log_refusal(&self, line: String) {
        self.refusals.log(line);
    }

    fn state(&mut self, domain: Handle) -> Result<DomainState, Error> {
        sys::domain_state(domain)
    }

    fn ledger(&mut self, domain: Handle, number: u64) -> Result<(u64, u64, u64), Error> {
        sys::ledger_read(domain, number)
    }

    fn counter(&mut self, index: u64) -> u64 {
        sys::counter_read(index).unwrap_or_default()
    }

    fn now_ns(&self) -> u64 {
        runtime::now_ns()
    }

    fn device(&mut self, index: u64) -> Option<DeviceRecord> {
        sys::device_list(index).ok()
    }

    fn claim(&mut self, hwid: u64) -> Result<Handle, Error> {
        sys::device_alloc(Handle::PCORE, Handle::ROOT_RAM, hwid)
    }

    fn quiet(&mut self, device: Handle) -> Result<(), Error> {
        sys::device_master(device, false)
    }
}

/// The machine's real-time clock, claimed.
pub struct RealTimeClock(Handle);

impl RealTimeClock {
    /// Claims it.
    pub fn claim() -> Option<RealTimeClock> {
        sys::device_alloc(Handle::PCORE, Handle::ROOT_RAM, RTC).ok().map(RealTimeClock)
    }

    /// Looks at it; `None` if there is none, or none that tells sense.
    pub fn look(&self) -> Option<Look> {
        let register = |number: u8| {
            let chosen = sys::device_port_write(self.0, 0, 1, number.into());
            // What is not there reads as all ones.
            chosen.and_then(|()| sys::device_port_read(self.0, 1, 1)).map_or(0xff, |value| value as u8)
        };
        let before_ns = runtime::now_ns();
        let seconds = monitor_core::clock::read(register)?;
        Some(Look { before_ns, after_ns: runtime::now_ns(), seconds })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::borrow::ToOwned;

    /// On a host it refuses everything.
    #[test]
    fn what_the_kernel_refuses_is_told_as_refused() {
        let mut calls = KernelCalls::default();
        let (one, stall) = (Handle(1), Some(Stall { badge: 1, limit_ns: 1 }));
        let outcomes = [
            calls.fill(one, 8, b"bytes"),
            calls.lead(one, one),
            calls.begin_turns(one),
            calls.map(one, 0, one, 0, 1, protection::READ),
            calls.start(one, 0x1000, 0x2000),
            calls.watch(one, one, 1, stall),
            calls.watch(one, one, 1, None),
            calls.kill(one, 9),
            calls.quiet(one),
        ];
        assert_eq!(outcomes, [Err(Error::BadCall); 9]);
        let made = [
            calls.segment(1, true).map(|(segment, _)| segment),
            calls.segment_of(one, 1),
            calls.common(1, 0),
            calls.import(0x1000, 1),
            calls.pool(1).map(|(share, _)| share),
            calls.import_pool(1),
            calls.copy(one, one),
            calls.portal(1),
            calls.entrance(1),
            calls.semaphore(),
            calls.own_doorbell(1),
            calls.own_portal(1),
            calls.remote(1, 1),
            calls.account(1, None),
            calls.domain(one, false, "one", None).map(|(domain, _)| domain),
            calls.grant(one, one, Rights::READ),
            calls.range(one),
            calls.claim(1),
        ];
        assert_eq!(made, [Err(Error::BadCall); 18]);
        assert_eq!(
            (calls.slot(one), calls.state(one).map(|state: DomainState| state.id)),
            (Err(Error::BadCall), Err(Error::BadCall))
        );
        assert_eq!(calls.ledger(one, 0), Err(Error::BadCall));
        // There is nothing to fill, no device and no clock, and nothing is free.
        assert_eq!(calls.fill(one, 0, b""), Ok(()));
        assert_eq!((calls.free_pages(), calls.counter(1)), (0, 0));
        assert!(calls.device(0).is_none() && RealTimeClock::claim().is_none() && RealTimeClock(one).look().is_none());
    }

    #[test]
    fn an_eighth_of_a_core_is_left_to_what_else_runs_there() {
        assert_eq!([0, 1, 7, 5000].map(|told_pages| limit(1000, told_pages)), [0, 1, 7, 5000]);
        assert_eq!(limit(1000, u64::from(system::ALL_MEMORY)), 875);
        let leaves = |free_pages, taken_pages| leaves_enough(1000, free_pages, taken_pages);
        assert!(leaves(135, 10) && leaves(136, 10) && leaves(125, 0));
        assert!(!leaves(134, 10) && !leaves(124, 0) && !leaves(1000, u64::MAX));
    }

    #[test]
    fn a_generation_is_never_0_and_time_goes_on() {
        let mut calls = KernelCalls::default();
        assert_ne!(calls.random(), 0);
        let before_ns = calls.now_ns();
        assert!(calls.now_ns() > before_ns);
    }

    #[test]
    fn refusals_are_written_to_the_log_once_a_second() {
        let (_, lines) = runtime::testing::logged(async {
            let calls = KernelCalls::default();
            (0..9).for_each(|_| calls.log_refusal("no page".to_owned()));
            runtime::sleep(2_000_000_000).await;
        });
        assert_eq!(lines.len(), 2, "{lines:?}");
    }
}
