//! Host tests of the object code over a block of fake RAM: random programs that make every call
//! there is with bad and good arguments, and models.

mod backtrace;
mod chains;
mod context_calls;
mod devices;
mod drivers;
mod ends;
mod faults;
mod fuzz;
mod gang;
mod ids;
mod invariants;
mod kernel_cores;
mod ledger;
mod log;
pub(crate) mod machine;
mod mappings;
mod pci;
mod pcores;
mod portals;
mod processor;
mod proxy;
mod range_calls;
mod ranges;
mod revoke;
mod rights;
mod rows;
mod scheduling;
mod segment_calls;
mod shared;
mod shared_copies;
mod shared_ends;
mod shared_ranges;
mod shared_segments;
mod shared_threads;
mod shared_waits;
mod slots;
mod spaces;
mod states;
mod steps;
mod stuck;
mod time;
mod transcript;
mod turns;
mod vectors;
mod wakes;
mod watch;

use crate::boot::info::{CoreEntry, CoreInfo};
use crate::hardware;
use crate::memory::{PAGE_BYTES, PhysRange, set_test_ram};
use crate::objects::context::Options;
use crate::objects::mapping::PageRun;
use crate::objects::share::Capability;
use crate::objects::writer::Name;
use crate::objects::{Context, Domain, Pcore, Ptr, Ram, Schedule, pcore};
use crate::state::Kernel;
use ::fuzz::Random;
use abi::{Handle, Rights, layout};

/// A machine of some cores and no devices.
static INFO: CoreInfo = MACHINE;
const MACHINE: CoreInfo = CoreInfo {
    core: 0,
    cores: &[CoreEntry { apic_id: 0, node: 0 }; hardware::CORES],
    ram: &[],
    archive: None,
    command_line: "",
    devices: &[],
    tsc_hz: 1,
    boot_tsc: 0,
};

/// What domains of tests are called.
fn name() -> Name {
    Name::new(b"test").unwrap()
}

/// A kernel on `pages` of fake RAM. Page 0 plays the kernel's own root table.
struct World {
    kernel: Box<Kernel>,
    ram: Ptr<Ram>,
    used: u64,
    // Goes last: the kernel's lists lie in it.
    _memory: Vec<u128>,
}

impl World {
    fn new(pages: u64) -> World {
        World::on(0, pages)
    }

    /// The same, of any core.
    fn on(core: usize, pages: u64) -> World {
        let mut memory = vec![0u128; (pages as usize + 1) * PAGE_BYTES / 16];
        let offset = memory.as_ptr().cast::<u8>().align_offset(PAGE_BYTES);
        set_test_ram(memory.as_mut_ptr().cast::<u8>().wrapping_add(offset));
        World { _memory: memory, ..World::of_core(core, 1, pages - 1) }
    }

    /// The kernel of a core whose memory begins at page `first` of what `set_test_ram` was told.
    fn of_core(core: usize, first: u64, pages: u64) -> World {
        let mut kernel = Box::new(Kernel::new(core, Some(&INFO)));
        let page = PAGE_BYTES as u64;
        kernel.frames.add(PhysRange::new(first * page, pages * page)).unwrap();
        let ram = kernel.make_root_ram().unwrap();
        let table = kernel.frames.allocate_run(crate::objects::remote::WAKE_TABLE_PAGES).unwrap();
        kernel.wake_slots.set_table(table);
        let used = kernel.frames.total() - kernel.frames.free();
        World { _memory: Vec::new(), kernel, ram, used }
    }

    /// A domain with a running context and a monitor's capabilities.
    fn monitor(&mut self) -> Ptr<Domain> {
        let (kernel, ram) = (&mut *self.kernel, self.ram);
        let domain = Ptr::<Domain>::create(kernel, ram, 0, name()).unwrap();
        let core = kernel.core();
        let pcore = kernel.create(ram, |header| Pcore::own(header, core)).unwrap();
        kernel.retain(ram);
        for (handle, object) in [(Handle::PCORE, pcore.any()), (Handle::ROOT_RAM, ram.any())] {
            domain.insert(handle.0 as usize, Capability { object, badge: 0, rights: Rights::ALL });
        }
        let place = PageRun { start: layout::CONTROL_PAGE, pages: 1 };
        let options = Options { has_vectors: true, is_linux: true, priority_max: 7 };
        let context = Ptr::<Context>::create(kernel, ram, domain, place, options).unwrap();
        domain.insert(4, Capability { object: context.any(), badge: 0, rights: Rights::ALL });
        let schedule = kernel.create(ram, |header| Schedule::new(header, context, 7, 1_000_000)).unwrap();
        context.schedule.set(Some(schedule));
        kernel.start(context, 0x1000, 0x2000, [0; 2]);
        domain
    }

    /// Everything that was made is gone again.
    fn assert_empty(&mut self) {
        self.kernel.drain_all();
        // Cores whose claim was dropped were commanded to halt, and did.
        pcore::cores_changed(&mut self.kernel);
        self.kernel.drain_all();
        // Pages carved for other cores are in neither number.
        assert_eq!(self.kernel.frames.total() - self.kernel.frames.free(), self.used, "pages are missing");
        assert_eq!(self.kernel.kernel_objects, 1, "objects besides the root Ram");
        assert_eq!(self.ram.used(), crate::objects::ram::ROOT_PAGES);
    }
}

impl Kernel {
    /// Steps until nothing that died is left; counts them.
    fn drain_all(&mut self) -> usize {
        for step in 0.. {
            if self.destroy_queue.is_empty() && self.ending.is_empty() {
                return step;
            }
            hardware::take_work();
            self.drain_dead();
            let work = hardware::take_work();
            assert!(work <= revoke::STEP_WORK_MAX, "a step does {work} units of work");
            assert!(step < 100_000, "it does not come to an end");
        }
        unreachable!()
    }
}
